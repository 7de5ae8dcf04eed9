// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/calls.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/answer/completions_answer.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/messages/messages_answer.h"
#include "services/gateway/openai/messages/messages_error.h"
#include "services/gateway/openai/messages/messages_request.h"
#include "services/gateway/openai/responses/responses_answer.h"
#include "services/gateway/openai/responses/responses_request.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

absl::StatusOr<HttpCall> ReadCompletions(Endpoint endpoint, std::string_view body) {
  ASSIGN_OR_RETURN(ParsedCall parsed, ParseCall(endpoint, body));
  HttpCall call;
  call.stream = parsed.form.stream;
  call.event_ids = parsed.form.event_ids;
  // The echo is kept beside the prompt.
  call.num_copies = parsed.form.echo ? 2 : 1;
  call.names = parsed.form.names;
  call.requests = std::move(parsed.requests);
  call.make_answer = [form = std::move(parsed.form)](std::string id, std::string model,
                                                     int64_t created) {
    return std::make_unique<CompletionsAnswer>(form, std::move(id), std::move(model), created);
  };
  return call;
}

// The names as the value of a header, which has to be short and of printable ASCII.
std::string ListOf(const std::vector<std::string>& names) {
  constexpr size_t kMaxBytes = 256;
  std::string list = absl::CHexEscape(absl::StrJoin(names, ", "));
  if (list.size() > kMaxBytes) list.resize(kMaxBytes);
  return list;
}

absl::StatusOr<HttpCall> ReadMessagesCall(std::string_view body) {
  ASSIGN_OR_RETURN(MessagesCall parsed, ParseMessages(body));
  HttpCall call;
  call.stream = parsed.stream;
  // The first event has the number of the prompt's tokens.
  if (parsed.stream) parsed.request.mutable_output()->set_progress(true);
  call.requests.push_back(std::move(parsed.request));
  call.headers = SkippedToolsHeaders(parsed.tools.skipped);
  call.names.tool_places = std::move(parsed.tools.places);
  call.names.constraint = std::move(parsed.format_member);
  const MessagesAnswer::Form form = {.stream = parsed.stream,
                                     .shows_thinking = parsed.shows_thinking};
  call.make_answer = [form](std::string id, std::string model, int64_t /*created*/) {
    return std::make_unique<MessagesAnswer>(form, std::move(id), std::move(model));
  };
  return call;
}

absl::StatusOr<HttpCall> ReadResponsesCall(std::string_view body) {
  ASSIGN_OR_RETURN(ResponsesCall parsed, ParseResponses(body));
  HttpCall call;
  call.stream = parsed.form.stream;
  call.event_ids = parsed.form.event_ids;
  // What the response repeats is kept beside the prompt.
  call.num_copies = 2;
  call.requests.push_back(std::move(parsed.request));
  call.headers = SkippedToolsHeaders(parsed.skipped_tools);
  call.names.tool_places = std::move(parsed.tool_places);
  call.make_answer = [form = std::move(parsed.form)](std::string id, std::string model,
                                                     int64_t created) mutable {
    return std::make_unique<ResponsesAnswer>(std::move(form), std::move(id), std::move(model),
                                             created);
  };
  return call;
}

// The same error, with the field's name in the body of /v1/responses.
absl::Status WithResponsesName(const std::vector<int>& tool_places, const absl::Status& status) {
  const std::string field = protocol::FieldOf(status);
  return field.empty() ? status : WithField(status, ResponsesParamOf(tool_places, field));
}

}  // namespace

ErrorForm::ErrorForm(RouteId route)
    : route(route), is_anthropics(route == RouteId::kMessages || route == RouteId::kCountTokens) {}

std::string ErrorBody(const ErrorForm& form, int http_status, std::string_view message,
                      std::string_view code) {
  return form.is_anthropics ? MessagesErrorJson(http_status, message, form.request_id)
                            : ErrorJson(http_status, message, code);
}

std::string ErrorBody(const ErrorForm& form, const absl::Status& status) {
  if (form.is_anthropics) {
    return MessagesErrorJson(form.names, status, form.request_id);
  }
  if (form.route == RouteId::kResponses && !form.names.as_written) {
    ParamNames names;
    names.as_written = true;
    return ErrorJson(names, WithResponsesName(form.names.tool_places, status));
  }
  return ErrorJson(form.names, status);
}

HttpHeaders SkippedToolsHeaders(const std::vector<std::string>& types) {
  if (types.empty()) return {};
  return {{"x-skipped-tools", ListOf(types)}};
}

HttpHeaders IdHeaders(const ErrorForm& form) {
  if (!form.is_anthropics) return {};
  return {{"request-id", form.request_id}};
}

HttpResponse ErrorResponse(const ErrorForm& form, const absl::Status& status, HttpHeaders headers) {
  if (const std::optional<int> seconds = RetryAfterOf(status)) {
    headers.emplace_back("Retry-After", absl::StrCat(*seconds));
  }
  return {.status = HttpStatusOf(status),
          .headers = std::move(headers),
          .body = ErrorBody(form, status)};
}

HttpHeaders MakeRepeatable(const std::string& fingerprint_before, v1::GenerateResponse* response) {
  // The tokens that the cache had, and the durations, differ each time.
  if (response->has_progress()) response->mutable_progress()->clear_cached_prompt_tokens();
  if (response->has_summary()) {
    response->mutable_summary()->mutable_usage()->clear_cached_prompt_tokens();
    response->mutable_summary()->clear_timings();
  }
  HttpHeaders headers;
  const std::string& fingerprint = response->accepted().fingerprint();
  if (fingerprint.empty()) return headers;
  headers.emplace_back("x-fingerprint", fingerprint);
  if (!fingerprint_before.empty() && fingerprint_before != fingerprint) {
    headers.emplace_back("x-fingerprint-before", fingerprint_before);
  }
  return headers;
}

absl::StatusOr<HttpCall> ReadCall(RouteId route, std::string_view body) {
  switch (route) {
    case RouteId::kCompletions:
      return ReadCompletions(Endpoint::kCompletions, body);
    case RouteId::kMessages:
      return ReadMessagesCall(body);
    case RouteId::kResponses:
      return ReadResponsesCall(body);
    default:
      return ReadCompletions(Endpoint::kChat, body);
  }
}

}  // namespace continuo::gateway::openai
