// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/calls.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/gateway/kserve/call/answer_json.h"
#include "services/gateway/kserve/call/infer_json.h"
#include "services/gateway/openai/answer/completions_answer.h"
#include "services/gateway/openai/answer/kserve_answer.h"
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

// Tensors stand behind as many bytes of JSON; nullopt where the header does not say it.
absl::StatusOr<std::optional<uint64_t>> JsonBytesOf(const HttpRequest& request) {
  const auto value = request[kInferenceHeaderLength];
  if (value.empty()) return std::nullopt;
  uint64_t bytes;
  if (!absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kInferenceHeaderLength, " is no number of bytes"));
  }
  return bytes;
}

absl::StatusOr<HttpCall> ReadInferenceCall(RouteId route, const HttpRequest& request,
                                           const OwnNameOf& own_name) {
  const auto target = request.target();
  const InferencePath path = InferencePathOf({target.data(), target.size()});
  const kserve::ServedName name = {
      .model = own_name ? own_name(path.model) : std::string(path.model),
      .version = std::string(path.version)};
  kserve::InferCall read;
  std::optional<kserve::BinaryOutputs> binary;
  if (route == RouteId::kInfer) {
    ASSIGN_OR_RETURN(const std::optional<uint64_t> json_bytes, JsonBytesOf(request));
    ASSIGN_OR_RETURN(kserve::HttpInferCall infer,
                     kserve::ReadInferJson(name, request.body(), json_bytes));
    read = std::move(infer.call);
    binary = std::move(infer.binary);
  } else {
    ASSIGN_OR_RETURN(
        read, kserve::ReadGenerateJson(name, request.body(), route == RouteId::kGenerateStream));
  }
  HttpCall call;
  call.stream = read.stream;
  call.num_copies = read.echo.empty() ? 1 : 2;
  call.names = read.names;
  call.requests.push_back(std::exchange(read.request, {}));
  call.make_answer = [read = std::move(read), binary = std::move(binary)](
                         std::string /*id*/, std::string /*model*/, int64_t /*created*/) {
    return std::make_unique<KserveAnswer>(read, binary);
  };
  return call;
}

ErrorStyle StyleOf(RouteId route) {
  switch (route) {
    case RouteId::kMessages:
    case RouteId::kCountTokens:
      return ErrorStyle::kAnthropic;
    case RouteId::kInferenceServer:
    case RouteId::kInferenceLive:
    case RouteId::kInferenceReady:
    case RouteId::kRepositoryIndex:
    case RouteId::kInferenceModel:
    case RouteId::kInferenceModelReady:
    case RouteId::kInfer:
    case RouteId::kGenerate:
    case RouteId::kGenerateStream:
      return ErrorStyle::kOpenInference;
    default:
      return ErrorStyle::kOpenAi;
  }
}

// The same error, with the field's name in the body of /v1/responses.
absl::Status WithResponsesName(const std::vector<int>& tool_places, const absl::Status& status) {
  const std::string field = protocol::FieldOf(status);
  return field.empty() ? status : WithField(status, ResponsesParamOf(tool_places, field));
}

}  // namespace

ErrorForm::ErrorForm(RouteId route) : route(route), style(StyleOf(route)) {}

std::string ErrorBody(const ErrorForm& form, int http_status, std::string_view message,
                      std::string_view code) {
  switch (form.style) {
    case ErrorStyle::kAnthropic:
      return MessagesErrorJson(http_status, message, form.request_id);
    case ErrorStyle::kOpenInference:
      return kserve::InferErrorJson(message);
    case ErrorStyle::kOpenAi:
      break;
  }
  return ErrorJson(http_status, message, code);
}

std::string ErrorBody(const ErrorForm& form, const absl::Status& status) {
  if (form.style == ErrorStyle::kAnthropic) {
    return MessagesErrorJson(form.names, status, form.request_id);
  }
  if (form.style == ErrorStyle::kOpenInference) {
    return kserve::InferErrorJson(MessageOf(form.names, status));
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
  if (form.style != ErrorStyle::kAnthropic) return {};
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

absl::StatusOr<HttpCall> ReadCall(RouteId route, const HttpRequest& request,
                                  const OwnNameOf& own_name) {
  const std::string_view body = request.body();
  switch (route) {
    case RouteId::kInfer:
    case RouteId::kGenerate:
    case RouteId::kGenerateStream:
      return ReadInferenceCall(route, request, own_name);
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
