// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {
namespace {

// Errors of the text module name no field; this names it.
absl::Status At(std::string_view field, const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument ||
      status.code() == absl::StatusCode::kFailedPrecondition) {
    // The text module begins with the name of its argument where that is at fault.
    const std::string message(status.message());
    for (const std::string_view name : {"template_arguments", "chat_template"}) {
      if (!message.starts_with(name)) continue;
      const size_t rest = message.find_first_not_of(": ", name.size());
      return protocol::FieldError(absl::StrCat(std::string(field), ".", std::string(name)),
                                  rest == std::string::npos ? "" : message.substr(rest));
    }
    // An element of a list is named as "messages[0].content is …".
    for (const std::string_view name : {"messages[", "tools["}) {
      const size_t end = message.find(' ');
      if (!message.starts_with(name) || end == std::string::npos) continue;
      return protocol::FieldError(absl::StrCat(std::string(field), ".", message.substr(0, end)),
                                  message.substr(end + 1));
    }
    return protocol::FieldError(field, message);
  }
  return status;
}

absl::StatusOr<EncodedPrompt> Encode(std::string field, std::string rendered, bool add_special,
                                     const text::TextModel& text) {
  auto tokens = text.Encode(rendered, add_special);
  if (!tokens.ok()) return At(field, tokens.status());
  return EncodedPrompt{std::move(field), std::move(rendered), *std::move(tokens)};
}

absl::StatusOr<EncodedPrompt> EncodeChat(std::string field, text::RenderedChat rendered,
                                         const ServedModel& model) {
  const size_t template_end = rendered.content.empty() ? 0 : rendered.content.back().end;
  if (model.parse_special_in_content) rendered.content.clear();
  auto tokens = model.text->EncodeChat(rendered);
  if (!tokens.ok()) return At(field, tokens.status());
  return EncodedPrompt{std::move(field), std::move(rendered.text), *std::move(tokens),
                       template_end};
}

// A text of more bytes than its tokens can have is refused before it is encoded, and any beyond the
// bound of what is encoded to be cut.
absl::Status CheckFitsContext(std::string_view field, size_t bytes, bool is_cut,
                              const ServedModel& model) {
  const size_t longest = model.text->max_token_bytes();
  size_t most = static_cast<size_t>(model.max_context_tokens) * longest;
  if (is_cut || !model.text->keeps_bytes()) most = std::max(most, protocol::kMaxTokenizeBytes);
  if (bytes <= most) return absl::OkStatus();
  return ContextTooLong(field, absl::StrCat(bytes, " bytes, where it can have at most ", most),
                        model);
}

absl::StatusOr<EncodedPrompt> EncodeFillInMiddle(const v1::GenerateRequest& request,
                                                 const ServedModel& model) {
  if (!model.fill_in_middle.has_value()) {
    return protocol::FieldError(
        "suffix", absl::StrCat("model \"", model.name, "\" has no fill-in-the-middle tokens"));
  }
  RETURN_IF_ERROR(CheckFitsContext("text", request.text().size() + request.suffix().size(),
                                   /*is_cut=*/false, model));
  return Encode("text", model.fill_in_middle->Join(request.text(), request.suffix()),
                /*add_special=*/true, *model.text);
}

absl::Status CheckTokenizeBytes(std::string_view field, size_t bytes) {
  if (bytes <= protocol::kMaxTokenizeBytes) return absl::OkStatus();
  return protocol::FieldError(
      field, absl::StrCat("has ", bytes, " bytes, the limit is ", protocol::kMaxTokenizeBytes));
}

}  // namespace

absl::StatusOr<text::RenderedChat> RenderConversation(const v1::Conversation& conversation,
                                                      std::string_view field, absl::Time now,
                                                      const text::TextModel& text) {
  text::ChatPrompt prompt;
  prompt.messages.reserve(conversation.messages_size());
  for (const v1::ChatMessage& message : conversation.messages()) {
    prompt.messages.push_back(
        {.role = message.role(),
         .content = message.content(),
         .parts = {message.content_parts().begin(), message.content_parts().end()},
         .reasoning = message.reasoning(),
         .tool_call_id = message.tool_call_id(),
         .name = message.name()});
    for (const v1::ToolCall& call : message.tool_calls()) {
      prompt.messages.back().tool_calls.push_back(
          {.id = call.id(), .name = call.name(), .arguments = call.arguments()});
    }
  }
  if (conversation.tool_choice().mode() != v1::ToolChoice::MODE_NONE) {
    for (const v1::Tool& tool : conversation.tools()) {
      prompt.tools.push_back({.name = tool.name(),
                              .description = tool.description(),
                              .parameters = tool.parameters()});
    }
  }
  prompt.template_arguments = conversation.template_arguments();
  prompt.continue_final_message = conversation.continue_final_message();
  prompt.omit_generation_prompt = conversation.omit_generation_prompt();
  prompt.chat_template = conversation.chat_template();
  prompt.now_seconds = absl::ToUnixSeconds(now);
  auto rendered = text.RenderMarkedChat(prompt);
  if (!rendered.ok()) return At(field, rendered.status());
  if (prompt.messages.empty()) {
    return protocol::FieldError(absl::StrCat(std::string(field), ".messages"), "is empty");
  }
  return rendered;
}

absl::StatusOr<EncodedPrompt> EncodePrompt(const v1::GenerateRequest& request, absl::Time now,
                                           const ServedModel& model) {
  if (request.has_token_ids()) {
    const auto& ids = request.token_ids().ids();
    return EncodedPrompt{"token_ids", "", std::vector<int32_t>(ids.begin(), ids.end())};
  }
  if (request.has_text()) {
    if (request.has_suffix()) return EncodeFillInMiddle(request, model);
    RETURN_IF_ERROR(
        CheckFitsContext("text", request.text().size(), request.has_truncation(), model));
    return Encode("text", request.text(), /*add_special=*/true, *model.text);
  }
  ASSIGN_OR_RETURN(text::RenderedChat rendered,
                   RenderConversation(request.conversation(), "conversation", now, *model.text));
  RETURN_IF_ERROR(
      CheckFitsContext("conversation", rendered.text.size(), request.has_truncation(), model));
  return EncodeChat("conversation", std::move(rendered), model);
}

absl::StatusOr<std::vector<int32_t>> EncodeText(const std::string& field, const std::string& text,
                                                bool add_special, bool is_cut,
                                                const ServedModel& model) {
  RETURN_IF_ERROR(CheckFitsContext(field, text.size(), is_cut, model));
  auto tokens = model.text->Encode(text, add_special);
  if (!tokens.ok()) return At(field, tokens.status());
  return tokens;
}

absl::StatusOr<std::vector<int32_t>> EncodeRendered(const std::string& field,
                                                    const text::RenderedChat& rendered, bool is_cut,
                                                    const ServedModel& model) {
  RETURN_IF_ERROR(CheckFitsContext(field, rendered.text.size(), is_cut, model));
  ASSIGN_OR_RETURN(EncodedPrompt prompt, EncodeChat(field, rendered, model));
  return std::move(prompt.tokens);
}

absl::StatusOr<text::EncodedPair> EncodeTextPair(const std::string& field, const std::string& first,
                                                 const std::string& second, bool is_cut,
                                                 const ServedModel& model) {
  RETURN_IF_ERROR(CheckFitsContext(field, first.size() + second.size(), is_cut, model));
  auto pair = model.text->EncodePair(first, second, model.parse_special_in_content);
  if (!pair.ok()) return At(field, pair.status());
  return pair;
}

absl::StatusOr<EncodedPrompt> EncodePrompt(const v1::TokenizeRequest& request, absl::Time now,
                                           const ServedModel& model) {
  if (request.has_text()) {
    RETURN_IF_ERROR(CheckTokenizeBytes("text", request.text().size()));
    return Encode("text", request.text(), !request.omit_special_tokens(), *model.text);
  }
  ASSIGN_OR_RETURN(text::RenderedChat rendered,
                   RenderConversation(request.conversation(), "conversation", now, *model.text));
  RETURN_IF_ERROR(CheckTokenizeBytes("conversation", rendered.text.size()));
  return EncodeChat("conversation", std::move(rendered), model);
}

}  // namespace continuo::server
