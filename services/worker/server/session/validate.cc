// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/validate.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/validate_request.h"

namespace continuo::server {
namespace {

absl::Status ValidatePrompt(const v1::GenerateRequest& request, const ServedModel& model) {
  if (request.has_conversation()) {
    return ValidateConversation("conversation", request.conversation(), model);
  }
  for (int i = 0; i < request.token_ids().ids_size(); ++i) {
    const uint32_t id = request.token_ids().ids(i);
    if (id < static_cast<uint32_t>(model.vocab_size)) continue;
    return ValidateToken(absl::StrCat("token_ids.ids[", i, "]"), id, model);
  }
  return absl::OkStatus();
}

// Refuses `field` if the model's format of calls cannot be constrained.
absl::Status CheckCanConstrain(std::string_view field, const ServedModel& model) {
  if (model.call_grammar_status.ok()) return absl::OkStatus();
  return protocol::FieldError(
      field, absl::StrCat("calls of model \"", model.name, "\" cannot be constrained: ",
                          std::string(model.call_grammar_status.message())));
}

absl::Status ValidateStopping(const v1::Stopping& s, const ServedModel& model) {
  const auto context = static_cast<uint32_t>(model.max_context_tokens);
  if (!s.has_max_tokens() && s.min_tokens() > context) {
    return protocol::FieldError(
        "stopping.min_tokens",
        absl::StrCat(s.min_tokens(), " is above the model's context of ", context, " tokens"));
  }
  for (int i = 0; i < s.token_ids_size(); ++i) {
    RETURN_IF_ERROR(
        ValidateToken(absl::StrCat("stopping.token_ids[", i, "]"), s.token_ids(i), model));
  }
  return absl::OkStatus();
}

// Bytes that the beginning of a call takes in an answer, without its name.
constexpr uint64_t kMaxCallBytes = 32;

// The most bytes that `count` log-probabilities with `alternatives` each can take in an answer: a
// tag and a length before each message, ids as varints, logprobs, the tokens' bytes.
uint64_t LogprobBytes(uint64_t count, uint64_t alternatives, const ServedModel& model) {
  const uint64_t one = 6 + 5 + 5 + model.max_token_bytes + 6;
  return count * one * (1 + alternatives);
}

}  // namespace

absl::Status ValidateModelName(std::string_view name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("model \"",
                                          absl::CHexEscape(std::string(name.substr(0, 128))),
                                          "\" is not served here, \"", model.name, "\" is"));
}

absl::Status ValidateToken(std::string_view field, uint64_t id, const ServedModel& model) {
  if (id < static_cast<uint64_t>(model.vocab_size)) return absl::OkStatus();
  return protocol::FieldError(field, absl::StrCat("id ", id, " is outside the vocabulary of ",
                                                  model.vocab_size, " tokens"));
}

absl::Status ValidateConversation(std::string_view path, const v1::Conversation& conversation,
                                  const ServedModel& model) {
  RETURN_IF_ERROR(protocol::ValidateConversation(path, conversation));
  const auto field = [&](std::string_view name) {
    return absl::StrCat(std::string(path), ".", std::string(name));
  };
  if (conversation.tools_size() > 0 &&
      !model.text->response_format().response_template.has(text::ResponseField::Channel::kCalls)) {
    return protocol::FieldError(
        field("tools"), absl::StrCat("model \"", model.name, "\" has no known format of calls"));
  }
  for (int i = 0; i < conversation.tools_size(); ++i) {
    const auto part = [&](const char* name) {
      return absl::StrCat(field("tools"), "[", i, "].", name);
    };
    const v1::Tool& tool = conversation.tools(i);
    if (tool.name().empty()) return protocol::FieldError(part("name"), "is empty");
    if (tool.strict()) RETURN_IF_ERROR(CheckCanConstrain(part("strict"), model));
  }
  const v1::ToolChoice& choice = conversation.tool_choice();
  if (choice.mode() == v1::ToolChoice::MODE_REQUIRED) {
    if (conversation.tools().empty()) {
      return protocol::FieldError(field("tool_choice"), "requires a call, and there are no tools");
    }
    RETURN_IF_ERROR(CheckCanConstrain(field("tool_choice"), model));
  }
  if (!choice.name().empty()) {
    if (choice.mode() != v1::ToolChoice::MODE_REQUIRED) {
      return protocol::FieldError(field("tool_choice.name"), "needs MODE_REQUIRED");
    }
    const auto is_named = [&](const v1::Tool& tool) { return tool.name() == choice.name(); };
    if (!std::ranges::any_of(conversation.tools(), is_named)) {
      return protocol::FieldError(field("tool_choice.name"), "is not the name of a tool");
    }
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::ChatMessage& message = conversation.messages(i);
    for (int k = 0; k < message.tool_calls_size(); ++k) {
      if (!message.tool_calls(k).name().empty()) continue;
      return protocol::FieldError(
          absl::StrCat(field("messages"), "[", i, "].tool_calls[", k, "].name"), "is empty");
    }
  }
  if (!conversation.chat_template().empty()) {
    if (model.allow_request_chat_template) return absl::OkStatus();
    return protocol::FieldError(
        field("chat_template"),
        "is not accepted here: the worker runs without --allow_request_chat_template");
  }
  if (!model.text->has_chat_template()) {
    return protocol::FieldError(path,
                                absl::StrCat("model \"", model.name, "\" has no chat template"));
  }
  return absl::OkStatus();
}

absl::Status ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model) {
  RETURN_IF_ERROR(protocol::RejectUnknownFields(request));
  RETURN_IF_ERROR(ValidateModelName(request.model(), model));
  if (!model.generates()) {
    return absl::UnimplementedError(absl::StrCat("model \"", model.name, "\" makes ",
                                                 model.score == nullptr ? "embeddings" : "scores",
                                                 " and generates nothing; Embed is its method"));
  }
  RETURN_IF_ERROR(protocol::ValidateGenerate(request));
  RETURN_IF_ERROR(ValidatePrompt(request, model));
  for (const auto& [id, bias] : request.sampling().logit_bias()) {
    RETURN_IF_ERROR(ValidateToken("sampling.logit_bias", id, model));
  }
  for (int i = 0; i < request.sampling().allowed_token_ids_size(); ++i) {
    const uint32_t id = request.sampling().allowed_token_ids(i);
    if (id < static_cast<uint32_t>(model.vocab_size)) continue;
    return ValidateToken(absl::StrCat("sampling.allowed_token_ids[", i, "]"), id, model);
  }
  RETURN_IF_ERROR(ValidateStopping(request.stopping(), model));
  if (request.has_constraint() &&
      request.constraint().kind_case() == v1::Constraint::KIND_NOT_SET) {
    return protocol::FieldError("constraint", "has none of its kinds");
  }
  const v1::Conversation& conversation = request.conversation();
  if (request.has_constraint() && conversation.tools_size() > 0 &&
      conversation.tool_choice().mode() != v1::ToolChoice::MODE_NONE) {
    RETURN_IF_ERROR(CheckCanConstrain("constraint", model));
  }
  return absl::OkStatus();
}

namespace {

// What a model of scores adds to the contract of Embed.
absl::Status ValidateScore(const v1::EmbedRequest& request, const ServedModel& model) {
  for (const v1::EmbedInput& input : request.inputs()) {
    if (!input.has_text()) continue;
    return absl::UnimplementedError(absl::StrCat(
        "model \"", model.name, "\" makes scores of pairs and no embeddings of texts"));
  }
  if (request.has_instruction() && model.pairs == nullptr) {
    return protocol::FieldError("instruction",
                                "goes into a template of pairs, and the model has none");
  }
  if (request.has_dimensions()) {
    return protocol::FieldError("dimensions", "is of vectors, and the model makes scores");
  }
  if (request.has_normalize()) {
    return protocol::FieldError("normalize", "is of vectors, and the model makes scores");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateEmbed(const v1::EmbedRequest& request, const ServedModel& model) {
  RETURN_IF_ERROR(protocol::RejectUnknownFields(request));
  RETURN_IF_ERROR(ValidateModelName(request.model(), model));
  if (model.generates()) {
    return absl::UnimplementedError(absl::StrCat(
        "model \"", model.name, "\" generates and has no embeddings; Generate is its method"));
  }
  RETURN_IF_ERROR(protocol::ValidateEmbed(request));
  if (model.score != nullptr) return ValidateScore(request, model);
  if (protocol::HasPairs(request)) {
    return absl::UnimplementedError(absl::StrCat(
        "model \"", model.name, "\" makes embeddings of texts and no scores of pairs"));
  }
  const int most = model.embedding->dimensions();
  if (request.has_dimensions() && request.dimensions() > static_cast<uint32_t>(most)) {
    return protocol::FieldError("dimensions", absl::StrCat(request.dimensions(), " is above the ",
                                                           most, " values of the model's vectors"));
  }
  if (request.has_prompt_name() && !request.prompt_name().empty() &&
      model.embedding->FindPrompt(request.prompt_name()) == nullptr) {
    return protocol::FieldError(
        "prompt_name",
        absl::StrCat("is none of the model's: ",
                     absl::StrJoin(model.embedding->prompts(), ", ",
                                   [](std::string* out, const embedding::Prompt& prompt) {
                                     out->append(prompt.name);
                                   })));
  }
  return absl::OkStatus();
}

absl::Status ContextTooLong(std::string_view field, std::string_view size,
                            const ServedModel& model) {
  const char* const what = field == "conversation"       ? "messages"
                           : field.starts_with("inputs") ? "input"
                                                         : "prompt";
  const char* const have = field == "conversation" ? "have " : "has ";
  return protocol::WithReason(
      protocol::FieldError(
          field, absl::StrCat("This model's maximum context length is ", model.max_context_tokens,
                              " tokens. However, your ", what, " ", have, std::string(size),
                              ". Please reduce the length of the ", what, ".")),
      protocol::kReasonContextTooLong);
}

absl::Status ValidatePromptTokens(std::string_view field, const std::vector<int32_t>& prompt,
                                  const ServedModel& model) {
  if (prompt.empty()) return protocol::FieldError(field, "the prompt encodes to no token");
  if (prompt.size() > static_cast<size_t>(model.max_context_tokens)) {
    return ContextTooLong(field, absl::StrCat(prompt.size(), " tokens"), model);
  }
  for (const int32_t id : prompt) {
    if (id < 0) return protocol::FieldError(field, absl::StrCat("id ", id, " is negative"));
    RETURN_IF_ERROR(ValidateToken(field, static_cast<uint64_t>(id), model));
  }
  return absl::OkStatus();
}

absl::Status ValidateCollect(const v1::GenerateRequest& request, size_t prompt_tokens,
                             int max_tokens, const ServedModel& model) {
  constexpr size_t kMaxBytes = protocol::kMaxUnsplitResponseBytes;
  const v1::Output& output = request.output();
  if (!output.collect()) return absl::OkStatus();
  const uint64_t sequences =
      request.sampling().has_num_sequences() ? request.sampling().num_sequences() : 1;
  const uint64_t tokens = sequences * static_cast<uint64_t>(max_tokens);
  uint64_t fixed = 4096 + sequences * (64 + protocol::kMaxStopStringBytes);
  if (output.has_prompt_logprobs()) {
    fixed += LogprobBytes(prompt_tokens, output.prompt_logprobs(), model);
  }
  if (output.prompt_tokens()) fixed += LogprobBytes(prompt_tokens, 0, model);
  uint64_t token_bytes = 5 + model.max_text_bytes_per_token;
  if (request.conversation().tools_size() > 0) {
    // A byte of arguments may become an escape of six, and a marker a call with its id.
    token_bytes = 5 + 6 * model.max_text_bytes_per_token + kMaxCallBytes;
  }
  if (output.has_logprobs()) token_bytes += LogprobBytes(1, output.logprobs(), model);
  const uint64_t bytes = fixed + tokens * token_bytes;
  if (bytes <= kMaxBytes) return absl::OkStatus();
  return protocol::FieldError(
      "output.collect", absl::StrCat("an answer of ", sequences, " x ", max_tokens,
                                     " tokens can take ", bytes, " bytes, at most ", kMaxBytes,
                                     " are collected; lower stopping.max_tokens or stream"));
}

}  // namespace continuo::server
