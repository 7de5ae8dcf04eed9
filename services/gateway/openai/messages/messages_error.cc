// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_error.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/answer/answer.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string Body(int http_status, std::string_view message, std::string_view request_id,
                 OrderedJson details = nullptr) {
  OrderedJson error = {{"type", TypeOf(http_status)}, {"message", message}};
  if (!details.is_null()) error["details"] = std::move(details);
  return Dump({{"type", "error"},
               {"error", std::move(error)},
               {"request_id", request_id.empty() ? OrderedJson() : OrderedJson(request_id)}});
}

// Tool runners of Anthropic's SDKs ask the server to hold the conversation as a thread. Where an
// error has these details, they go on by themselves and send all messages each time.
OrderedJson DetailsOf(std::string_view field) {
  if (field != "thread") return nullptr;
  return {{"error_code", "thread_unsupported_request"},
          {"unsupported", OrderedJson::array({"thread"})}};
}

// The number that stands behind `words` in the text, "" if none does.
std::string NumberBehind(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == text.npos) return "";
  text.remove_prefix(at + words.size());
  return std::string(text.substr(0, text.find_first_not_of("0123456789")));
}

// The words for a prompt that is too long by which clients of Anthropic's API know that they have
// to shorten the conversation.
std::string TooLongMessage(std::string_view message) {
  const std::string most = NumberBehind(message, "maximum context length is ");
  const std::string has = NumberBehind(message, "your messages have ");
  if (most.empty() || has.empty() || message.find(has + " tokens") == message.npos) {
    return absl::StrCat("prompt is too long: ", std::string(message));
  }
  return absl::StrCat("prompt is too long: ", has, " tokens > ", most, " maximum");
}

}  // namespace

std::string MessagesParamOf(const ParamNames& names, std::string_view field) {
  const std::pair<std::string_view, std::string_view> ours_and_theirs[] = {
      {"stopping.strings", "stop_sequences"},
      {"conversation.tool_choice", "tool_choice"},
      {"conversation.tools", "tools"},
      {"conversation.template_arguments", "output_config.effort"},
      {"conversation", "messages"},
  };
  if (field.starts_with("constraint")) return absl::StrCat(names.constraint, ".schema");
  for (const auto& [ours, theirs] : ours_and_theirs) {
    if (!field.starts_with(ours)) continue;
    std::string_view rest = field.substr(ours.size());
    if (!rest.empty() && rest[0] != '[' && rest[0] != '.') continue;
    if (theirs == "messages") rest = {};
    const std::string placed = theirs == "tools" ? ToolPlaceOf(names.tool_places, rest) : "";
    if (theirs == "tools") rest = placed;
    std::string name = absl::StrCat(std::string(theirs), std::string(rest));
    if (theirs == "tools" && name.ends_with(".parameters")) {
      name.replace(name.size() - 10, 10, "input_schema");
    }
    return name;
  }
  for (const std::string_view group : {"sampling.", "stopping.", "output."}) {
    if (field.starts_with(group)) return std::string(field.substr(group.size()));
  }
  return std::string(field);
}

std::string MessagesErrorJson(const ParamNames& names, const absl::Status& status,
                              std::string_view request_id) {
  const int http_status = HttpStatusOf(status);
  std::string message(status.message());
  const std::string field = protocol::FieldOf(status);
  if (!field.empty() && !names.as_written) {
    const std::string prefix = field + ": ";
    if (message.starts_with(prefix)) {
      message.erase(0, prefix.size());
      message = protocol::ReasonOf(status) == protocol::kReasonContextTooLong
                    ? TooLongMessage(message)
                    : absl::StrCat(MessagesParamOf(names, field), ": ", message);
    }
  }
  // A message without a reason may come from a library and disclose anything.
  if (http_status == 500 && protocol::ReasonOf(status).empty()) {
    message = "the server had an error while it processed the request";
  }
  return Body(http_status, message, request_id, DetailsOf(field));
}

std::string MessagesErrorJson(int http_status, std::string_view message,
                              std::string_view request_id) {
  return Body(http_status, message, request_id);
}

}  // namespace continuo::gateway::openai
