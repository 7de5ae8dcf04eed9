// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/api.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/fleet_json.h"
#include "services/gateway/openai/http/inflate.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/kserve_api.h"
#include "services/gateway/openai/models_json.h"
#include "services/gateway/openai/page/page.h"
#include "services/gateway/openai/routes/routes.h"
#include "services/gateway/openai/routes/unknown_path.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Clients of Anthropic's API say which version of it they speak.
ModelsForm ModelsFormOf(const HttpRequest& request) {
  return request["anthropic-version"].empty() ? ModelsForm::kOpenAi : ModelsForm::kAnthropic;
}

HttpResponse Text(int status, std::string body) {
  return {.status = status,
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = std::move(body)};
}

}  // namespace

Api::Api(ApiDependencies dependencies)
    : dependencies_(std::move(dependencies)),
      text_(dependencies_.text, dependencies_.clock),
      embeddings_(dependencies_.text, dependencies_.clock, dependencies_.models),
      adapters_(dependencies_.adapters, dependencies_.clock, dependencies_.may_update_adapter),
      rerank_(dependencies_.text, dependencies_.clock, dependencies_.models),
      steps_(dependencies_.steps, dependencies_.clock, dependencies_.max_step_watchers),
      generations_({.service = dependencies_.service,
                    .clock = dependencies_.clock,
                    .secret = dependencies_.secret,
                    .event_ids = dependencies_.event_ids,
                    .models = dependencies_.models}),
      start_seconds_(absl::ToUnixSeconds(dependencies_.clock->Now())) {}

ErrorForm Api::FormOf(const HttpRequest& header) const {
  const Route* const route = FindRoute(PathOf(View(header.target())));
  ErrorForm form = route == nullptr ? RouteId::kPage : route->id;
  switch (form.route) {
    case RouteId::kCompletions:
      form.names = Endpoint::kCompletions;
      break;
    case RouteId::kTokenize:
      form.names = Endpoint::kTokenize;
      break;
    case RouteId::kDetokenize:
      form.names = Endpoint::kDetokenize;
      break;
    case RouteId::kPage:
    case RouteId::kModels:
    case RouteId::kModel:
      // Both APIs have these paths, or have paths that are not served.
      if (!header["anthropic-version"].empty()) form.style = ErrorStyle::kAnthropic;
      break;
    default:
      break;
  }
  if (form.style == ErrorStyle::kAnthropic)
    form.request_id = dependencies_.service->MakeRequestId();
  return form;
}

HttpResponse Api::ErrorOf(const HttpRequest& header, int status, std::string_view message,
                          std::string_view code, std::string_view logged) {
  const ClientCall call = CallOf(header, dependencies_.clock->Now());
  dependencies_.service->OnRejected("", call.correlation_id, StatusOf(status, logged));
  const ErrorForm form = FormOf(header);
  return {
      .status = status, .headers = IdHeaders(form), .body = ErrorBody(form, status, message, code)};
}

HttpResponse Api::Error(const HttpRequest& header, int status, std::string_view message) {
  return ErrorOf(header, status, message, "", message);
}

HttpHeaders Api::CommonHeaders(const HttpRequest& header) {
  HttpHeaders headers;
  if (const auto id = header["x-request-id"]; !id.empty()) {
    headers.emplace_back("x-request-id", std::string(View(id)));
  }
  dependencies_.cors.AddTo(View(header[http::field::origin]), &headers);
  return headers;
}

HttpResponse Api::Options(const HttpRequest& header, const Route* route) const {
  HttpResponse response = {.status = 204, .content_type = ""};
  const std::string allow = AllowOf(route);
  response.headers.emplace_back("Allow", allow);
  const std::string_view origin = View(header[http::field::origin]);
  // A browser asks without a key.
  if (!origin.empty() && !header[http::field::access_control_request_method].empty()) {
    dependencies_.cors.AddPreflight(origin, allow,
                                    View(header[http::field::access_control_request_headers]),
                                    &response.headers);
  }
  return response;
}

// Without a preflight, which asks first, browsers send for any page what a form could send (Fetch
// standard, "CORS-safelisted request-header").
bool Api::IsOfAForeignPage(const HttpRequest& header) const {
  const std::string_view origin = View(header[http::field::origin]);
  if (origin.empty() || dependencies_.cors.Allows(origin)) return false;
  const std::string_view type = View(header[http::field::content_type]);
  const std::string media_type = absl::AsciiStrToLower(absl::StripAsciiWhitespace(
      absl::string_view(type.data(), type.find(';') == type.npos ? type.size() : type.find(';'))));
  constexpr std::string_view kForms[] = {"", "text/plain", "application/x-www-form-urlencoded",
                                         "multipart/form-data"};
  if (std::ranges::find(kForms, media_type) == std::end(kForms)) return false;
  // The gateway's own page.
  const size_t scheme = origin.find("://");
  return scheme == origin.npos ||
         !absl::EqualsIgnoreCase(std::string(origin.substr(scheme + 3)),
                                 std::string(View(header[http::field::host])));
}

std::optional<HttpResponse> Api::Reject(const HttpRequest& header) {
  const std::string_view path = View(header.target());
  const http::verb method = header.method();
  const std::string name(View(header.method_string()));
  if (method == http::verb::unknown || method == http::verb::connect) {
    return ErrorOf(header, 501, absl::StrCat("the method ", ShowName(name), " is not served"), "",
                   "the method is not served");
  }
  const Route* const route = FindRoute(path);
  if (method == http::verb::options && (route != nullptr || path == "*")) {
    return Options(header, route);
  }
  if (route == nullptr) {
    // A HEAD gets the header of a GET.
    return ErrorOf(header, 404, UnknownPathMessage(method == http::verb::head ? "GET" : name, path),
                   "unknown_url", "there is nothing at this path");
  }
  if (!Takes(*route, method)) {
    const std::string allow = AllowOf(route);
    HttpResponse response =
        Error(header, 405,
              absl::StrCat("the method ", name, " is not for this path, which takes ", allow));
    response.headers.emplace_back("Allow", allow);
    return response;
  }
  if (const std::string_view coding = View(header[http::field::content_encoding]);
      !IsKnownCoding(coding)) {
    HttpResponse response =
        ErrorOf(header, 415,
                absl::StrCat("Content-Encoding: ", std::string(coding),
                             " is not supported; a body may come as it is, or as gzip or deflate"),
                "", "Content-Encoding is not supported");
    response.headers.emplace_back("Accept-Encoding", "gzip, deflate");
    return response;
  }
  if (method == http::verb::post && IsOfAForeignPage(header)) {
    return Error(header, 415,
                 "a page of another origin has to be named in --http_cors_origins; a program may "
                 "leave Origin out, or send Content-Type: application/json");
  }
  if (route->needs_key) {
    const ClientCall call = CallOf(header, dependencies_.clock->Now());
    const auto tenant = dependencies_.service->Authenticate(call);
    if (!tenant.ok()) {
      dependencies_.service->OnRejected("", call.correlation_id, tenant.status());
      const ErrorForm form = FormOf(header);
      HttpResponse response = ErrorResponse(form, tenant.status(), IdHeaders(form));
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return response;
    }
  }
  return std::nullopt;
}

HttpResponse Api::Ready() const {
  if (dependencies_.ready()) return {.content_type = ""};
  return {.status = 503,
          .headers = {{"Retry-After", "1"}},
          .body = ErrorJson(503, "no worker takes requests", "no_worker")};
}

HttpResponse Api::Served(RouteId route, const HttpRequest& request) {
  const ClientCall call = CallOf(request, dependencies_.clock->Now());
  KserveInfo info = {.is_ready = dependencies_.ready(), .gateway_version = dependencies_.version};
  // Probes have no key, and ask for no model.
  if (route != RouteId::kInferenceLive && route != RouteId::kInferenceReady) {
    info.models = dependencies_.models(call);
  }
  absl::StatusOr<HttpResponse> response =
      TellServed(info, route, View(request.target()), request.body());
  if (response.ok()) return *std::move(response);
  dependencies_.service->OnRejected("", call.correlation_id,
                                    WithoutClientsWords(response.status()));
  return ErrorResponse(route, response.status(), {});
}

HttpResponse Api::Get(const Route& route, const HttpRequest& request) {
  const std::string_view path = View(request.target());
  switch (route.id) {
    case RouteId::kPage:
      return PageResponse();
    case RouteId::kFleet:
      return {.body = FleetJson(*dependencies_.fleet())};
    case RouteId::kModels:
      return {.body = ModelsJson(ModelsFormOf(request),
                                 dependencies_.models(CallOf(request, dependencies_.clock->Now())),
                                 start_seconds_)};
    case RouteId::kHealth:
    case RouteId::kPing:
      return Ready();
    case RouteId::kHealthz:
      return Text(200, "ok\n");
    case RouteId::kReadyz:
      return dependencies_.ready() ? Text(200, "ready\n") : Text(503, "no worker takes requests\n");
    case RouteId::kVersion:
      return {.body = absl::StrCat(R"({"version":")", dependencies_.version, R"("})")};
    case RouteId::kMetrics:
      return dependencies_.metrics ? Text(200, dependencies_.metrics())
                                   : Text(404, "metrics have a port of their own\n");
    case RouteId::kInferenceServer:
    case RouteId::kInferenceLive:
    case RouteId::kInferenceReady:
    case RouteId::kRepositoryIndex:
    case RouteId::kInferenceModel:
    case RouteId::kInferenceModelReady:
      return Served(route.id, request);
    case RouteId::kLoadMetrics:
      return Text(200, dependencies_.load_metrics());
    default:
      break;
  }
  const std::string name(ModelNameOf(path));
  const ClientCall call = CallOf(request, dependencies_.clock->Now());
  for (const v1::Model& model : dependencies_.models(call)) {
    // A name may be a path itself.
    if (ModelNameOf(NormalPath(absl::StrCat("/v1/models/", model.name()))) == name) {
      return {.body = ModelJson(ModelsFormOf(request), model, start_seconds_)};
    }
  }
  const ErrorForm form = FormOf(request);
  return ErrorResponse(form,
                       absl::NotFoundError(absl::StrCat("model \"", name, "\" is not served here")),
                       IdHeaders(form));
}

asio::awaitable<void> Api::Handle(HttpConnection& connection, HttpRequest request) {
  const std::string path(View(request.target()));
  const Route& route = *FindRoute(path);
  switch (route.id) {
    case RouteId::kChat:
    case RouteId::kCompletions:
    case RouteId::kMessages:
    case RouteId::kResponses:
    case RouteId::kInfer:
    case RouteId::kGenerate:
    case RouteId::kGenerateStream:
      co_await generations_.Serve(connection, FormOf(request), std::move(request));
      co_return;
    case RouteId::kTokenize:
    case RouteId::kDetokenize:
    case RouteId::kTokenizerInfo:
    case RouteId::kCountTokens:
      co_await AnswerText(connection, route.id, std::move(request));
      co_return;
    case RouteId::kEmbeddings:
    case RouteId::kRerank:
    case RouteId::kRerankV2:
    case RouteId::kScore:
      co_await AnswerEmbeddings(connection, route.id, std::move(request));
      co_return;
    case RouteId::kLoadAdapter:
    case RouteId::kUnloadAdapter:
      co_await UpdateAdapter(connection, route.id, std::move(request));
      co_return;
    case RouteId::kResponse:
    case RouteId::kCancelResponse:
      co_await AnswerLive(connection, route.id, std::move(request));
      co_return;
    case RouteId::kSteps:
      co_await WatchSteps(connection, std::move(request));
      co_return;
    default:
      break;
  }
  HttpResponse response = Get(route, request);
  connection.DropBody(request);
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::AnswerText(HttpConnection& connection, RouteId route,
                                      HttpRequest request) {
  const std::string correlation_id = CallOf(request, dependencies_.clock->Now()).correlation_id;
  ErrorForm form = FormOf(request);
  TextApi::Answer answer = co_await text_.Serve(connection, route, std::move(request));
  ByteBudget::Share room(&connection.answers_budget());
  if (answer.status.ok() && !room.ResizeLeavingRoom(static_cast<int64_t>(answer.body.size()))) {
    answer.body.clear();
    room.Release();
    answer.status = protocol::OverloadedError("answers in one piece have taken their memory");
  }
  HttpResponse response;
  if (answer.status.ok()) {
    response.body = std::move(answer.body);
    response.headers = IdHeaders(form);
    for (auto& header : answer.headers) response.headers.push_back(std::move(header));
  } else {
    dependencies_.service->OnRejected("", correlation_id, WithoutClientsWords(answer.status));
    form.names.as_written = answer.as_written;
    form.names.tool_places = std::move(answer.tool_places);
    response = ErrorResponse(form, answer.status, IdHeaders(form));
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::AnswerEmbeddings(HttpConnection& connection, RouteId route,
                                            HttpRequest request) {
  ClientCall call = CallOf(request, dependencies_.clock->Now());
  const std::string correlation_id = call.correlation_id;
  EmbeddingsApi::Answer answer;
  if (route == RouteId::kEmbeddings) {
    answer = co_await embeddings_.Serve(connection, request, std::move(call));
  } else {
    const ScoreForm form = route == RouteId::kRerank     ? ScoreForm::kRerank
                           : route == RouteId::kRerankV2 ? ScoreForm::kRerankV2
                                                         : ScoreForm::kScore;
    answer = co_await rerank_.Serve(connection, form, request, std::move(call),
                                    dependencies_.service->MakeRequestId());
  }
  HttpResponse response = {.body = std::move(answer.body)};
  if (!answer.status.ok()) {
    ErrorForm form = route;
    form.names.as_written = true;
    response = ErrorResponse(form, answer.status, {});
    if (!answer.is_logged) {
      dependencies_.service->OnRejected("", correlation_id, WithoutClientsWords(answer.status));
    }
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::UpdateAdapter(HttpConnection& connection, RouteId route,
                                         HttpRequest request) {
  ClientCall call = CallOf(request, dependencies_.clock->Now());
  const std::string correlation_id = call.correlation_id;
  const auto kind =
      route == RouteId::kLoadAdapter ? AdapterUpdate::Kind::kLoad : AdapterUpdate::Kind::kUnload;
  AdaptersApi::Answer answer = co_await adapters_.Serve(connection, request, kind, std::move(call));
  HttpResponse response = {.body = std::move(answer.body)};
  if (!answer.status.ok()) {
    dependencies_.service->OnRejected("", correlation_id, WithoutClientsWords(answer.status));
    ErrorForm form = route;
    form.names.as_written = true;
    response = ErrorResponse(form, answer.status, {});
    if (!answer.workers.empty()) {
      // Behind the error, in the same object.
      response.body.pop_back();
      absl::StrAppend(&response.body, ",", answer.workers, "}");
    }
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::WatchSteps(HttpConnection& connection, HttpRequest request) {
  const ClientCall call = CallOf(request, dependencies_.clock->Now());
  absl::StatusOr<std::string> tenant = dependencies_.service->Authenticate(call);
  absl::Status status = tenant.status();
  const std::string correlation_id = call.correlation_id;
  if (status.ok()) {
    std::vector<std::string> models;
    for (v1::Model& model : dependencies_.models(call)) {
      models.push_back(std::move(*model.mutable_name()));
    }
    StepsApi::Asked asked = {.tenant = *std::move(tenant),
                             .worker = QueryValue(connection.query(), "worker").value_or(""),
                             .fleet = dependencies_.fleet,
                             .may_use =
                                 [models = std::move(models)](const std::string& model) {
                                   return std::ranges::find(models, model) != models.end();
                                 },
                             .deadline = call.deadline,
                             .is_head = request.method() == http::verb::head};
    connection.DropBody(request);
    status = co_await steps_.Serve(connection, std::move(asked));
  }
  if (status.ok()) co_return;
  dependencies_.service->OnRejected("", correlation_id, status);
  HttpResponse response = ErrorResponse(RouteId::kSteps, status, {});
  if (absl::IsNotFound(status)) {
    response.body = ErrorJson(404, std::string(status.message()), "worker_not_found");
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::AnswerLive(HttpConnection& connection, RouteId route,
                                      HttpRequest request) {
  const ClientCall call = CallOf(request, dependencies_.clock->Now());
  const std::string correlation_id = call.correlation_id;
  LiveApi::Asked asked = {.response = std::string(ResponseIdOf(View(request.target())))};
  absl::Status status;
  if (route == RouteId::kCancelResponse) {
    asked.action = LiveApi::Action::kCancel;
  } else if (request.method() == http::verb::delete_) {
    asked.action = LiveApi::Action::kDelete;
  } else if (request.method() == http::verb::get) {
    auto first_event = LiveApi::FirstEventOf(connection.query());
    if (first_event.ok()) {
      asked.first_event = *first_event;
    } else {
      status = first_event.status();
    }
  }
  absl::StatusOr<std::string> tenant = dependencies_.service->Authenticate(call);
  status.Update(tenant.status());
  connection.DropBody(request);
  if (status.ok()) {
    asked.tenant = *std::move(tenant);
    status = co_await live_.Serve(connection, asked);
  }
  if (status.ok()) co_return;
  dependencies_.service->OnRejected("", correlation_id, WithoutClientsWords(status));
  ErrorForm form = route;
  form.names.as_written = true;
  HttpResponse response = ErrorResponse(form, status, {});
  if (absl::IsNotFound(status)) {
    response.body = ErrorJson(404, std::string(status.message()), "response_not_found");
  }
  co_await connection.Respond(std::move(response));
}

}  // namespace continuo::gateway::openai
