// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/validate_request.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/proto_time.h"

namespace continuo::protocol {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Join(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(std::string(path), ".", std::string(name));
}

bool IsPrintableAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c <= 0x7e; });
}

// With all digits that tell the number from its neighbours, such as a limit just beside it.
template <typename T>
std::string Show(T number) {
  std::array<char, 64> digits;
  const std::to_chars_result end = std::to_chars(digits.begin(), digits.end(), number);
  return std::string(digits.begin(), end.ptr);
}

// A NaN is in no range.
template <typename T>
absl::Status CheckRange(std::string_view field, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return FieldError(field,
                    absl::StrCat(Show(value), " is not in [", Show(low), ", ", Show(high), "]"));
}

absl::Status CheckAboveZero(std::string_view field, float value, float high) {
  if (value > 0 && value <= high) return absl::OkStatus();
  return FieldError(field, absl::StrCat(Show(value), " is not in (0, ", Show(high), "]"));
}

absl::Status CheckCount(std::string_view field, int count, int limit) {
  if (count <= limit) return absl::OkStatus();
  return FieldError(field, absl::StrCat("has ", count, " entries, the limit is ", limit));
}

absl::Status CheckBytes(std::string_view field, size_t bytes, size_t limit) {
  if (bytes <= limit) return absl::OkStatus();
  return FieldError(field, absl::StrCat("has ", bytes, " bytes, the limit is ", limit));
}

absl::Status CheckUtf8(std::string_view field, std::string_view text) {
  return IsUtf8(text) ? absl::OkStatus() : FieldError(field, "is not UTF-8");
}

// Each of at most `limit` texts has 1 to `max_bytes` bytes.
absl::Status CheckTexts(std::string_view path,
                        const google::protobuf::RepeatedPtrField<std::string>& texts, int limit,
                        size_t max_bytes) {
  RETURN_IF_ERROR(CheckCount(path, texts.size(), limit));
  for (int i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    const auto field = [path, i] { return absl::StrCat(std::string(path), "[", i, "]"); };
    if (text.empty() || text.size() > max_bytes) {
      return FieldError(field(),
                        absl::StrCat("has ", text.size(), " bytes, must have 1 to ", max_bytes));
    }
    if (!IsUtf8(text)) return FieldError(field(), "is not UTF-8");
  }
  return absl::OkStatus();
}

absl::Status FindUnknown(const Message& message, const std::string& path) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (unknown.field_count() > 0) {
    return FieldError(Join(path, absl::StrCat(unknown.field(0).number())),
                      "no field of this number is known here");
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

// Checks what bounds memory; the worker's replay finds every other fault of a continuation.
absl::Status CheckReceived(const v1::GenerateResponse& received) {
  // The received model stands in for the request's where that is left out.
  RETURN_IF_ERROR(CheckBytes("continuation.received.accepted.model",
                             received.accepted().model().size(), kMaxModelNameBytes));
  for (int i = 0; i < received.deltas_size(); ++i) {
    const uint32_t index = received.deltas(i).index();
    if (index < kMaxSequences) continue;
    return FieldError(absl::StrCat("continuation.received.deltas[", i, "].index"),
                      absl::StrCat(index, " is not below ", kMaxSequences));
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(const v1::GenerateRequest& request) {
  if (request.has_suffix()) {
    if (!request.has_text()) return FieldError("suffix", "needs a prompt that is text");
    RETURN_IF_ERROR(CheckUtf8("suffix", request.suffix()));
    if (request.has_truncation()) return FieldError("truncation", "is not possible with suffix");
  }
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return CheckUtf8("text", request.text());
    case v1::GenerateRequest::kTokenIds:
      return absl::OkStatus();
    case v1::GenerateRequest::kConversation:
      return ValidateConversation("conversation", request.conversation());
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return FieldError("prompt", "is missing: one of text, token_ids and conversation");
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const v1::Sampling& s) {
  if (s.has_temperature()) {
    RETURN_IF_ERROR(CheckRange("sampling.temperature", s.temperature(), 0.0f, kMaxTemperature));
  }
  if (s.has_top_p()) RETURN_IF_ERROR(CheckRange("sampling.top_p", s.top_p(), 0.0f, 1.0f));
  if (s.has_min_p()) RETURN_IF_ERROR(CheckRange("sampling.min_p", s.min_p(), 0.0f, 1.0f));
  if (s.has_num_sequences()) {
    RETURN_IF_ERROR(
        CheckRange<uint32_t>("sampling.num_sequences", s.num_sequences(), 1, kMaxSequences));
  }
  if (s.has_repetition_penalty()) {
    RETURN_IF_ERROR(CheckAboveZero("sampling.repetition_penalty", s.repetition_penalty(),
                                   kMaxRepetitionPenalty));
  }
  if (s.has_presence_penalty()) {
    RETURN_IF_ERROR(
        CheckRange("sampling.presence_penalty", s.presence_penalty(), -kMaxPenalty, kMaxPenalty));
  }
  if (s.has_frequency_penalty()) {
    RETURN_IF_ERROR(
        CheckRange("sampling.frequency_penalty", s.frequency_penalty(), -kMaxPenalty, kMaxPenalty));
  }
  RETURN_IF_ERROR(
      CheckCount("sampling.logit_bias", static_cast<int>(s.logit_bias().size()), kMaxLogitBiases));
  for (const auto& [id, bias] : s.logit_bias()) {
    RETURN_IF_ERROR(CheckRange("sampling.logit_bias", bias, -kMaxLogitBias, kMaxLogitBias));
  }
  RETURN_IF_ERROR(
      CheckCount("sampling.allowed_token_ids", s.allowed_token_ids_size(), kMaxAllowedIds));
  return CheckTexts("sampling.bad_words", s.bad_words(), kMaxBadWords, kMaxBadWordBytes);
}

absl::Status CheckStopping(const v1::Stopping& s) {
  if (s.has_min_tokens() && s.has_max_tokens() && s.min_tokens() > s.max_tokens()) {
    return FieldError(
        "stopping.min_tokens",
        absl::StrCat(s.min_tokens(), " is above max_tokens, which is ", s.max_tokens()));
  }
  RETURN_IF_ERROR(
      CheckTexts("stopping.strings", s.strings(), kMaxStopStrings, kMaxStopStringBytes));
  RETURN_IF_ERROR(CheckCount("stopping.token_ids", s.token_ids_size(), kMaxStopIds));
  if (s.has_time_limit()) return ReadDuration("stopping.time_limit", s.time_limit()).status();
  return absl::OkStatus();
}

absl::Status CheckConstraintText(std::string_view field, const std::string& text) {
  RETURN_IF_ERROR(CheckBytes(field, text.size(), kMaxConstraintBytes));
  return CheckUtf8(field, text);
}

absl::Status CheckConstraint(const v1::Constraint& c) {
  switch (c.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return CheckConstraintText("constraint.json_schema", c.json_schema());
    case v1::Constraint::kJsonObject:
      if (c.json_object()) return absl::OkStatus();
      return FieldError("constraint.json_object", "is false; leave constraint out");
    case v1::Constraint::kRegex:
      return CheckConstraintText("constraint.regex", c.regex());
    case v1::Constraint::kLark:
      return CheckConstraintText("constraint.lark", c.lark());
    case v1::Constraint::kChoice: {
      constexpr std::string_view kOptions = "constraint.choice.options";
      const auto& options = c.choice().options();
      if (options.empty()) return FieldError(kOptions, "is empty");
      RETURN_IF_ERROR(CheckCount(kOptions, options.size(), kMaxChoiceOptions));
      size_t bytes = 0;
      for (int i = 0; i < options.size(); ++i) {
        bytes += options[i].size();
        RETURN_IF_ERROR(CheckUtf8(absl::StrCat(std::string(kOptions), "[", i, "]"), options[i]));
      }
      return CheckBytes(kOptions, bytes, kMaxConstraintBytes);
    }
    case v1::Constraint::KIND_NOT_SET:  // perhaps of a newer release
      break;
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const v1::Output& o) {
  RETURN_IF_ERROR(CheckRange<uint32_t>("output.logprobs", o.logprobs(), 0, kMaxLogprobs));
  RETURN_IF_ERROR(
      CheckRange<uint32_t>("output.prompt_logprobs", o.prompt_logprobs(), 0, kMaxLogprobs));
  if (o.collect() && o.progress()) {
    return FieldError("output.progress", "is not possible with output.collect");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateId(std::string_view field, std::string_view id) {
  if (!id.empty() && id.size() <= kMaxIdBytes && IsPrintableAscii(id)) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat("is not 1 to ", kMaxIdBytes, " printable ASCII characters (it has ",
                          id.size(), " bytes)"));
}

bool IsForwardable(std::string_view value) {
  return !value.empty() && value.size() <= kMaxForwardedHeaderBytes && IsPrintableAscii(value);
}

absl::Status RejectUnknownFields(const Message& message) { return FindUnknown(message, ""); }

absl::StatusOr<absl::Time> ReadTimestamp(std::string_view field,
                                         const google::protobuf::Timestamp& time) {
  if (time.seconds() < kMinTimestampSeconds || time.seconds() > kMaxTimestampSeconds ||
      time.nanos() < 0 || time.nanos() > kMaxNanos) {
    return FieldError(field, "is no valid Timestamp: years 1 to 9999, nanos below 1e9");
  }
  return FromProto(time);
}

absl::StatusOr<absl::Duration> ReadDuration(std::string_view field,
                                            const google::protobuf::Duration& duration,
                                            absl::Duration max) {
  if (duration.seconds() < 0 || duration.nanos() < 0) return FieldError(field, "is negative");
  if (duration.seconds() > kMaxDurationSeconds || duration.nanos() > kMaxNanos) {
    return FieldError(field, absl::StrCat("is no valid Duration: at most ", kMaxDurationSeconds,
                                          " seconds and ", kMaxNanos, " nanos"));
  }
  const absl::Duration value = FromProto(duration);
  if (value <= max) return value;
  return FieldError(field, absl::StrCat(absl::FormatDuration(value), " is above the limit of ",
                                        absl::FormatDuration(max)));
}

namespace {

absl::Status CheckParts(std::string_view field, const v1::ChatMessage& message) {
  if (message.content_parts_size() == 0) return absl::OkStatus();
  if (!message.content().empty()) return FieldError(field, "is not possible beside content");
  RETURN_IF_ERROR(CheckCount(field, message.content_parts_size(), kMaxContentParts));
  for (int i = 0; i < message.content_parts_size(); ++i) {
    if (IsUtf8(message.content_parts(i))) continue;
    return FieldError(absl::StrCat(std::string(field), "[", i, "]"), "is not UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateConversation(std::string_view path, const v1::Conversation& conversation) {
  const auto field = [path](std::string_view name) { return Join(path, name); };
  RETURN_IF_ERROR(CheckCount(field("messages"), conversation.messages_size(), kMaxMessages));
  RETURN_IF_ERROR(CheckCount(field("tools"), conversation.tools_size(), kMaxTools));
  const std::string& arguments = conversation.template_arguments();
  RETURN_IF_ERROR(
      CheckBytes(field("template_arguments"), arguments.size(), kMaxTemplateArgumentsBytes));
  RETURN_IF_ERROR(CheckUtf8(field("template_arguments"), arguments));
  RETURN_IF_ERROR(CheckBytes(field("chat_template"), conversation.chat_template().size(),
                             kMaxChatTemplateBytes));
  RETURN_IF_ERROR(CheckUtf8(field("chat_template"), conversation.chat_template()));
  if (conversation.omit_generation_prompt() && conversation.continue_final_message()) {
    return FieldError(field("omit_generation_prompt"),
                      "is not possible with continue_final_message, which implies it");
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::ChatMessage& message = conversation.messages(i);
    for (const auto& [name, text] :
         {std::pair<const char*, const std::string&>{"role", message.role()},
          {"content", message.content()},
          {"tool_call_id", message.tool_call_id()},
          {"name", message.name()}}) {
      if (IsUtf8(text)) continue;
      return FieldError(absl::StrCat(field("messages"), "[", i, "].", name), "is not UTF-8");
    }
    RETURN_IF_ERROR(
        CheckParts(absl::StrCat(field("messages"), "[", i, "].content_parts"), message));
  }
  return absl::OkStatus();
}

absl::Status ValidateGenerate(const v1::GenerateRequest& request) {
  if (!request.request_id().empty()) {
    RETURN_IF_ERROR(ValidateId("request_id", request.request_id()));
  }
  RETURN_IF_ERROR(CheckBytes("model", request.model().size(), kMaxModelNameBytes));
  RETURN_IF_ERROR(CheckReceived(request.continuation().received()));
  RETURN_IF_ERROR(CheckPrompt(request));
  RETURN_IF_ERROR(CheckSampling(request.sampling()));
  RETURN_IF_ERROR(CheckStopping(request.stopping()));
  if (request.has_constraint()) RETURN_IF_ERROR(CheckConstraint(request.constraint()));
  RETURN_IF_ERROR(CheckOutput(request.output()));
  return CheckRange("priority", request.priority(), -kMaxPriority, kMaxPriority);
}

bool HasPairs(const v1::EmbedRequest& request) {
  return std::ranges::any_of(request.inputs(),
                             [](const v1::EmbedInput& input) { return input.has_pair(); });
}

absl::Status ValidateEmbed(const v1::EmbedRequest& request) {
  if (!request.request_id().empty()) {
    RETURN_IF_ERROR(ValidateId("request_id", request.request_id()));
  }
  RETURN_IF_ERROR(CheckBytes("model", request.model().size(), kMaxModelNameBytes));
  if (request.inputs().empty()) return FieldError("inputs", "is empty");
  RETURN_IF_ERROR(CheckCount("inputs", request.inputs_size(), kMaxEmbedInputs));
  for (int i = 0; i < request.inputs_size(); ++i) {
    const v1::EmbedInput& input = request.inputs(i);
    const auto field = [i](const char* name) { return absl::StrCat("inputs[", i, "]", name); };
    switch (input.input_case()) {
      case v1::EmbedInput::kText:
        if (!IsUtf8(input.text())) return FieldError(field(".text"), "is not UTF-8");
        break;
      case v1::EmbedInput::kTokenIds:
        if (request.has_prompt_name() && !request.prompt_name().empty()) {
          return FieldError("prompt_name",
                            absl::StrCat("goes in front of texts, and ", field(""), " is ids"));
        }
        break;
      case v1::EmbedInput::kPair:
        RETURN_IF_ERROR(CheckUtf8(field(".pair.query"), input.pair().query()));
        RETURN_IF_ERROR(CheckUtf8(field(".pair.document"), input.pair().document()));
        if (request.has_prompt_name() && !request.prompt_name().empty()) {
          return FieldError("prompt_name",
                            absl::StrCat("goes in front of texts, and ", field(""), " is a pair"));
        }
        break;
      case v1::EmbedInput::INPUT_NOT_SET:
        return FieldError(field(""), "is missing: one of text, token_ids and pair");
    }
  }
  if (!HasPairs(request)) {
    if (request.has_instruction()) return FieldError("instruction", "is of pairs, there are none");
    if (request.max_document_tokens() > 0) {
      return FieldError("max_document_tokens", "is of pairs, there are none");
    }
  }
  RETURN_IF_ERROR(CheckBytes("instruction", request.instruction().size(), kMaxInstructionBytes));
  RETURN_IF_ERROR(CheckUtf8("instruction", request.instruction()));
  if (request.has_dimensions() && request.dimensions() == 0) {
    return FieldError("dimensions", "is 0, must be at least 1");
  }
  return CheckRange("priority", request.priority(), -kMaxPriority, kMaxPriority);
}

}  // namespace continuo::protocol
