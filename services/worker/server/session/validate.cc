// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/validate.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"

namespace continuo::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Join(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(std::string(path), ".", std::string(name));
}

absl::Status FindUnknown(const Message& message, const std::string& path) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (unknown.field_count() > 0) {
    return protocol::FieldError(Join(path, absl::StrCat(unknown.field(0).number())),
                                "the worker knows no field of this number");
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (field->message_type() == v1::Continuation::descriptor()) continue;
    const std::string name = Join(path, field->name());
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(FindUnknown(reflection->GetMessage(message, field), name));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(FindUnknown(reflection->GetRepeatedMessage(message, field, i),
                                  absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

absl::Status InRange(std::string_view field, float value, float low, float high,
                     bool low_excluded = false) {
  const bool above = low_excluded ? value > low : value >= low;
  if (above && value <= high) return absl::OkStatus();  // false for a NaN
  return protocol::FieldError(
      field, absl::StrCat(value, " is not in ", low_excluded ? "(" : "[", low, ", ", high, "]"));
}

absl::Status AtMost(std::string_view field, uint64_t value, uint64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return protocol::FieldError(field, absl::StrCat(value, " is above the limit of ", limit));
}

absl::Status CountAtMost(std::string_view field, int count, int limit) {
  if (count <= limit) return absl::OkStatus();
  return protocol::FieldError(field, absl::StrCat("has ", count, " entries, the limit is ", limit));
}

absl::Status InVocabulary(std::string_view field, uint64_t id, const ServedModel& model) {
  if (id < static_cast<uint64_t>(model.vocab_size)) return absl::OkStatus();
  return protocol::FieldError(field, absl::StrCat("id ", id, " is outside the vocabulary of ",
                                                  model.vocab_size, " tokens"));
}

absl::Status ValidateSampling(const v1::Sampling& s, const ServedModel& model) {
  if (s.has_temperature()) {
    RETURN_IF_ERROR(InRange("sampling.temperature", s.temperature(), 0, 100));
  }
  if (s.has_top_p()) RETURN_IF_ERROR(InRange("sampling.top_p", s.top_p(), 0, 1, true));
  if (s.has_min_p()) RETURN_IF_ERROR(InRange("sampling.min_p", s.min_p(), 0, 1));
  if (s.has_num_sequences() && (s.num_sequences() < 1 || s.num_sequences() > kMaxSequences)) {
    return protocol::FieldError(
        "sampling.num_sequences",
        absl::StrCat(s.num_sequences(), " is not in [1, ", kMaxSequences, "]"));
  }
  if (s.has_repetition_penalty()) {
    RETURN_IF_ERROR(InRange("sampling.repetition_penalty", s.repetition_penalty(), 0, 2, true));
  }
  if (s.has_presence_penalty()) {
    RETURN_IF_ERROR(InRange("sampling.presence_penalty", s.presence_penalty(), -2, 2));
  }
  if (s.has_frequency_penalty()) {
    RETURN_IF_ERROR(InRange("sampling.frequency_penalty", s.frequency_penalty(), -2, 2));
  }
  RETURN_IF_ERROR(
      CountAtMost("sampling.logit_bias", static_cast<int>(s.logit_bias().size()), kMaxLogitBiases));
  for (const auto& [id, bias] : s.logit_bias()) {
    RETURN_IF_ERROR(InVocabulary("sampling.logit_bias", id, model));
    RETURN_IF_ERROR(InRange("sampling.logit_bias", bias, -100, 100));
  }
  return absl::OkStatus();
}

absl::Status ValidateTimeLimit(const google::protobuf::Duration& d) {
  // The range of google.protobuf.Duration; its two parts must not differ in sign.
  constexpr int64_t kMaxSeconds = 315'576'000'000;
  if (d.seconds() < 0 || d.nanos() < 0) {
    return protocol::FieldError("stopping.time_limit", "is negative");
  }
  if (d.seconds() > kMaxSeconds || d.nanos() > 999'999'999) {
    return protocol::FieldError("stopping.time_limit",
                                absl::StrCat("is no valid Duration: at most ", kMaxSeconds,
                                             " seconds and 999999999 nanos"));
  }
  return absl::OkStatus();
}

absl::Status ValidateStopping(const v1::Stopping& s, const ServedModel& model) {
  if (s.has_min_tokens()) {
    const uint64_t most = s.has_max_tokens() ? s.max_tokens() : model.max_context_tokens;
    if (s.min_tokens() > most) {
      return protocol::FieldError(
          "stopping.min_tokens",
          absl::StrCat(s.min_tokens(), " is above max_tokens, which is ", most));
    }
  }
  RETURN_IF_ERROR(CountAtMost("stopping.strings", s.strings_size(), kMaxStopStrings));
  for (int i = 0; i < s.strings_size(); ++i) {
    const std::string& stop = s.strings(i);
    const std::string field = absl::StrCat("stopping.strings[", i, "]");
    if (stop.empty() || stop.size() > kMaxStopStringBytes) {
      return protocol::FieldError(
          field, absl::StrCat("has ", stop.size(), " bytes, not from 1 to ", kMaxStopStringBytes));
    }
    if (!IsUtf8(stop)) return protocol::FieldError(field, "is not UTF-8");
  }
  RETURN_IF_ERROR(CountAtMost("stopping.token_ids", s.token_ids_size(), kMaxStopIds));
  for (int i = 0; i < s.token_ids_size(); ++i) {
    RETURN_IF_ERROR(
        InVocabulary(absl::StrCat("stopping.token_ids[", i, "]"), s.token_ids(i), model));
  }
  if (s.has_time_limit()) RETURN_IF_ERROR(ValidateTimeLimit(s.time_limit()));
  return absl::OkStatus();
}

// Of what was received only what bounds memory, as gateways do; the rest is replay's.
absl::Status ValidateReceived(const v1::GenerateResponse& received) {
  if (received.accepted().model().size() > kMaxModelBytes) {
    return protocol::FieldError("continuation.received.accepted.model",
                                absl::StrCat("has ", received.accepted().model().size(),
                                             " bytes, the limit is ", kMaxModelBytes));
  }
  for (int i = 0; i < received.deltas_size(); ++i) {
    const uint32_t index = received.deltas(i).index();
    if (index < kMaxSequences) continue;
    return protocol::FieldError(absl::StrCat("continuation.received.deltas[", i, "].index"),
                                absl::StrCat(index, " is not below ", kMaxSequences));
  }
  return absl::OkStatus();
}

absl::Status ValidateOutput(const v1::Output& o) {
  if (o.has_logprobs()) RETURN_IF_ERROR(AtMost("output.logprobs", o.logprobs(), kMaxLogprobs));
  if (o.has_prompt_logprobs()) {
    RETURN_IF_ERROR(AtMost("output.prompt_logprobs", o.prompt_logprobs(), kMaxLogprobs));
  }
  if (o.progress() && o.collect()) {
    return protocol::FieldError("output.progress", "cannot be had together with output.collect");
  }
  return absl::OkStatus();
}

absl::Status ValidatePrompt(const v1::GenerateRequest& request, const ServedModel& model) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      if (!IsUtf8(request.text())) return protocol::FieldError("text", "is not UTF-8");
      return absl::OkStatus();
    case v1::GenerateRequest::kTokenIds:
      for (int i = 0; i < request.token_ids().ids_size(); ++i) {
        const uint32_t id = request.token_ids().ids(i);
        if (id < static_cast<uint32_t>(model.vocab_size)) continue;
        return InVocabulary(absl::StrCat("token_ids.ids[", i, "]"), id, model);
      }
      return absl::OkStatus();
    case v1::GenerateRequest::kConversation:
      return ValidateConversation(request.conversation(), "conversation", model);
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return protocol::FieldError("prompt", "is missing: one of text, token_ids and conversation");
  }
  return absl::OkStatus();
}

// Of the answer, the most bytes that `count` log-probabilities with `alternatives` each can take:
// a tag and a length before each message, ids as varints, logprobs, tokens' bytes.
uint64_t LogprobBytes(uint64_t count, uint64_t alternatives, const ServedModel& model) {
  const uint64_t one = 6 + 5 + 5 + model.max_token_bytes + 6;
  return count * one * (1 + alternatives);
}

}  // namespace

absl::Status RefuseUnknownFields(const Message& message) { return FindUnknown(message, ""); }

absl::Status ValidateModelName(std::string_view name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("model \"",
                                          absl::CHexEscape(std::string(name.substr(0, 128))),
                                          "\" is not served here, \"", model.name, "\" is"));
}

absl::Status ValidateId(std::string_view id, std::string_view field) {
  if (id.empty() || id.size() > kMaxIdBytes ||
      !std::all_of(id.begin(), id.end(), [](unsigned char c) { return absl::ascii_isprint(c); })) {
    return protocol::FieldError(
        field, absl::StrCat("is not 1 to ", kMaxIdBytes, " printable ASCII characters (it has ",
                            id.size(), " bytes)"));
  }
  return absl::OkStatus();
}

absl::Status ValidateConversation(const v1::Conversation& conversation, std::string_view path,
                                  const ServedModel& model) {
  const auto field = [&](std::string_view name) { return Join(path, name); };
  RETURN_IF_ERROR(CountAtMost(field("messages"), conversation.messages_size(), kMaxMessages));
  if (conversation.template_arguments().size() > kMaxTemplateArgumentsBytes) {
    return protocol::FieldError(field("template_arguments"),
                                absl::StrCat("has ", conversation.template_arguments().size(),
                                             " bytes, the limit is ", kMaxTemplateArgumentsBytes));
  }
  if (conversation.tools_size() > 0) {
    return protocol::FieldError(field("tools"), "tools are not supported");
  }
  if (conversation.has_tool_choice()) {
    return protocol::FieldError(field("tool_choice"), "tools are not supported");
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::ChatMessage& message = conversation.messages(i);
    const std::string prefix = absl::StrCat(field("messages["), i, "].");
    if (message.tool_calls_size() > 0) {
      return protocol::FieldError(prefix + "tool_calls", "tools are not supported");
    }
    if (!message.reasoning().empty()) {
      return protocol::FieldError(prefix + "reasoning", "thoughts in a prompt are not supported");
    }
    for (const auto& [name, text] :
         {std::pair<const char*, const std::string&>{"role", message.role()},
          {"content", message.content()},
          {"tool_call_id", message.tool_call_id()},
          {"name", message.name()}}) {
      if (!IsUtf8(text)) return protocol::FieldError(prefix + name, "is not UTF-8");
    }
  }
  if (!IsUtf8(conversation.template_arguments())) {
    return protocol::FieldError(field("template_arguments"), "is not UTF-8");
  }
  if (!model.text->has_chat_template()) {
    return protocol::FieldError(path,
                                absl::StrCat("model \"", model.name, "\" has no chat template"));
  }
  return absl::OkStatus();
}

absl::Status ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model) {
  RETURN_IF_ERROR(RefuseUnknownFields(request));
  if (!request.request_id().empty()) {
    RETURN_IF_ERROR(ValidateId(request.request_id(), "request_id"));
  }
  RETURN_IF_ERROR(ValidateModelName(request.model(), model));
  RETURN_IF_ERROR(ValidateReceived(request.continuation().received()));
  RETURN_IF_ERROR(ValidatePrompt(request, model));
  RETURN_IF_ERROR(ValidateSampling(request.sampling(), model));
  RETURN_IF_ERROR(ValidateStopping(request.stopping(), model));
  if (request.has_constraint())
    return protocol::FieldError("constraint", "constraints are not supported");
  RETURN_IF_ERROR(ValidateOutput(request.output()));
  if (request.has_priority() && (request.priority() < -100 || request.priority() > 100)) {
    return protocol::FieldError("priority",
                                absl::StrCat(request.priority(), " is not in [-100, 100]"));
  }
  return absl::OkStatus();
}

absl::Status ValidatePromptTokens(const std::vector<int32_t>& prompt, std::string_view field,
                                  const ServedModel& model) {
  if (prompt.empty()) return protocol::FieldError(field, "the prompt encodes to no token");
  if (prompt.size() > static_cast<size_t>(model.max_context_tokens)) {
    return protocol::WithReason(
        protocol::FieldError(
            field, absl::StrCat("the prompt has ", prompt.size(), " tokens, the model takes ",
                                model.max_context_tokens)),
        protocol::kReasonContextTooLong);
  }
  for (const int32_t id : prompt) {
    if (id < 0) return protocol::FieldError(field, absl::StrCat("id ", id, " is negative"));
    RETURN_IF_ERROR(InVocabulary(field, static_cast<uint64_t>(id), model));
  }
  return absl::OkStatus();
}

absl::Status ValidateCollect(const v1::GenerateRequest& request, size_t prompt_tokens,
                             int max_tokens, const ServedModel& model) {
  const v1::Output& output = request.output();
  if (!output.collect()) return absl::OkStatus();
  const uint64_t sequences =
      request.sampling().has_num_sequences() ? request.sampling().num_sequences() : 1;
  const uint64_t tokens = sequences * static_cast<uint64_t>(max_tokens);
  uint64_t fixed = 4096 + sequences * (64 + kMaxStopStringBytes);
  if (output.has_prompt_logprobs()) {
    fixed += LogprobBytes(prompt_tokens, output.prompt_logprobs(), model);
  }
  uint64_t token_bytes = 5 + model.max_text_bytes_per_token;
  if (output.has_logprobs()) token_bytes += LogprobBytes(1, output.logprobs(), model);
  const uint64_t bytes = fixed + tokens * token_bytes;
  if (bytes <= kMaxCollectedBytes) return absl::OkStatus();
  return protocol::FieldError(
      "output.collect",
      absl::StrCat("an answer of ", sequences, " x ", max_tokens, " tokens can take ", bytes,
                   " bytes, at most ", kMaxCollectedBytes,
                   " are collected; lower stopping.max_tokens or stream"));
}

}  // namespace continuo::server
