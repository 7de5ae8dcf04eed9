// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/api.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/fleet_json.h"
#include "services/gateway/openai/http/event_stream.h"
#include "services/gateway/openai/http/inflate.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/models_json.h"
#include "services/gateway/openai/page/page.h"
#include "services/gateway/openai/routes.h"
#include "services/gateway/openai/start_call.h"
#include "services/gateway/openai/stream/event_stream.h"
#include "services/gateway/openai/unknown_path.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// The events of a stream are sent at the latest when they are this long.
constexpr size_t kMaxEventsBytes = 64 << 10;

// The comment of a stream whose request has no worker yet.
constexpr std::string_view kWaitingComment = ": waiting for a worker\n\n";

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The id under the name that Anthropic's clients look for.
HttpHeaders IdHeaders(const ErrorForm& form) {
  if (!form.is_anthropics) return {};
  return {{"request-id", form.request_id}};
}

// Frees the request, of which nothing is needed any more.
void DropBody(HttpConnection& connection, HttpRequest& request) {
  request = {};
  connection.OnBodyDropped();
}

// The request id of one prompt: two generations with one id at a time would be rejected.
std::string PromptId(const std::string& id, size_t prompt) {
  return prompt == 0 ? id : absl::StrCat(id, "-", prompt);
}

// Takes room for what the answer keeps. An error says that there is none.
absl::Status CheckRoom(size_t size, const HttpLimits& limits, ByteBudget::Share& room) {
  const auto num_bytes = static_cast<int64_t>(size);
  if (num_bytes > limits.max_answer_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the answer is over ", limits.max_answer_bytes,
                                                   " bytes; it can be had as a stream of "
                                                   "/v1/chat/completions"));
  }
  if (room.ResizeLeavingRoom(num_bytes)) return absl::OkStatus();
  return protocol::WithReason(
      absl::ResourceExhaustedError(
          absl::StrCat("answers in one piece have taken their ", limits.max_answers_bytes,
                       " bytes together; this one can be had with stream, or later")),
      protocol::kReasonOverloaded);
}

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
      steps_(dependencies_.steps, dependencies_.clock, dependencies_.max_step_watchers),
      start_seconds_(absl::ToUnixSeconds(dependencies_.clock->Now())) {}

Api::~Api() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* number) { return *number == 0; }, &num_queues_));
}

std::shared_ptr<GenerationQueue> Api::MakeQueue(HttpConnection& connection) {
  {
    absl::MutexLock lock(&mutex_);
    ++num_queues_;
  }
  std::shared_ptr<void> keep(this, [](void* api) {
    auto* const self = static_cast<Api*>(api);
    absl::MutexLock lock(&self->mutex_);
    --self->num_queues_;
  });
  // The connection is touched, and perhaps ends, on its own thread only.
  return std::make_shared<GenerationQueue>(
      [weak = connection.weak_from_this(), executor = connection.executor()] {
        asio::post(executor, [weak] {
          if (const auto alive = weak.lock()) alive->signal().Notify();
        });
      },
      std::move(keep));
}

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
      form.is_anthropics = !header["anthropic-version"].empty();
      break;
    default:
      break;
  }
  if (form.is_anthropics) form.request_id = dependencies_.service->MakeRequestId();
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

HttpResponse Api::ErrorOf(const ErrorForm& form, const absl::Status& status,
                          HttpHeaders headers) const {
  if (const std::optional<int> seconds = RetryAfterOf(status)) {
    headers.emplace_back("Retry-After", absl::StrCat(*seconds));
  }
  return {.status = HttpStatusOf(status),
          .headers = std::move(headers),
          .body = ErrorBody(form, status)};
}

std::optional<HttpResponse> Api::Reject(const HttpRequest& header) {
  const std::string_view path = View(header.target());
  const http::verb method = header.method();
  const std::string name(View(header.method_string()));
  if (method == http::verb::unknown || method == http::verb::connect) {
    return ErrorOf(header, 501, absl::StrCat("the method ", name, " is not served"), "",
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
  if (route->needs_key) {
    const ClientCall call = CallOf(header, dependencies_.clock->Now());
    const auto tenant = dependencies_.service->Authenticate(call);
    if (!tenant.ok()) {
      dependencies_.service->OnRejected("", call.correlation_id, tenant.status());
      const ErrorForm form = FormOf(header);
      HttpResponse response = ErrorOf(form, tenant.status(), IdHeaders(form));
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
      return Text(200, dependencies_.metrics());
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
  return ErrorOf(form, absl::NotFoundError(absl::StrCat("model \"", name, "\" is not served here")),
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
      co_await Generate(connection, route.id, std::move(request));
      co_return;
    case RouteId::kTokenize:
    case RouteId::kDetokenize:
    case RouteId::kTokenizerInfo:
    case RouteId::kCountTokens:
      co_await AnswerText(connection, route.id, std::move(request));
      co_return;
    case RouteId::kSteps:
      co_await WatchSteps(connection, std::move(request));
      co_return;
    default:
      break;
  }
  HttpResponse response = Get(route, request);
  DropBody(connection, request);
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
  } else {
    dependencies_.service->OnRejected("", correlation_id, WithoutClientsWords(answer.status));
    form.names.as_written = answer.as_written;
    response = ErrorOf(form, answer.status, IdHeaders(form));
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
    DropBody(connection, request);
    status = co_await steps_.Serve(connection, std::move(asked));
  }
  if (status.ok()) co_return;
  dependencies_.service->OnRejected("", correlation_id, status);
  HttpResponse response = ErrorOf(RouteId::kSteps, status, {});
  if (absl::IsNotFound(status)) {
    response.body = ErrorJson(404, std::string(status.message()), "worker_not_found");
  }
  co_await connection.Respond(std::move(response));
}

std::string Api::MakeId(const ErrorForm& form) const {
  return form.is_anthropics ? form.request_id : dependencies_.service->MakeRequestId();
}

void Api::Prepare(Running& call, v1::GenerateResponse* response) {
  if (!call.start.is_keyed) return;
  HttpHeaders headers = MakeRepeatable(call.start.identity.fingerprint, response);
  if (headers.empty() || std::exchange(call.told_fingerprint, true)) return;
  for (auto& header : headers) call.headers.push_back(std::move(header));
}

asio::awaitable<void> Api::Generate(HttpConnection& connection, RouteId route,
                                    HttpRequest request) {
  const absl::Time now = dependencies_.clock->Now();
  ClientCall call = CallOf(request, now);
  ErrorForm errors = FormOf(request);
  CallStart start;
  start.identity.request_id = MakeId(errors);
  absl::StatusOr<HttpCall> parsed = ReadAndStart({.service = dependencies_.service,
                                                  .secret = dependencies_.secret,
                                                  .now = now,
                                                  .event_ids = dependencies_.event_ids},
                                                 route, request, call, &start);
  // The client's own id stands for nothing here but itself: several requests may have it.
  const std::string id = start.identity.request_id;
  if (errors.is_anthropics) errors.request_id = id;
  HttpHeaders headers = IdHeaders(errors);
  if (request["x-request-id"].empty()) headers.emplace_back("x-request-id", id);
  ReplayLimiter::Place replay;
  if (parsed.ok() && start.is_resumed && !start.begin.is_last) {
    absl::StatusOr<ReplayLimiter::Place> place =
        replays_.Enter(std::string(start.signer->tenant()), connection.limits().tenant_max_replays);
    if (place.ok()) {
      replay = *std::move(place);
    } else {
      parsed = place.status();
    }
  }
  if (!parsed.ok()) {
    dependencies_.service->OnRejected("", call.correlation_id,
                                      WithoutClientsWords(parsed.status()));
    DropBody(connection, request);
    errors.names.as_written = true;
    HttpResponse response = ErrorOf(errors, parsed.status(), std::move(headers));
    co_await connection.Respond(std::move(response));
    co_return;
  }
  if (start.is_resumed && start.begin.is_last) {
    // It tells an EventSource that nothing follows.
    DropBody(connection, request);
    HttpResponse response = {.status = 204, .content_type = "", .headers = std::move(headers)};
    co_await connection.Respond(std::move(response));
    co_return;
  }
  if (!start.has_ids) start.signer.reset();
  errors.names = parsed->names;
  for (auto& header : parsed->headers) headers.push_back(std::move(header));
  if (start.is_keyed || parsed->stream) call.identity = start.identity;
  const size_t num_prompts = parsed->requests.size();
  for (size_t i = 0; i < num_prompts; ++i) {
    parsed->requests[i].set_request_id(PromptId(id, i));
    if (call.identity.has_value() && !parsed->requests[i].sampling().has_seed()) {
      parsed->requests[i].mutable_sampling()->set_seed(SeedOfPrompt(*call.identity, i));
    }
  }
  const std::string model = parsed->requests[0].model();
  const auto num_sequences =
      static_cast<int>(std::max(1u, parsed->requests[0].sampling().num_sequences()));
  const std::shared_ptr<GenerationQueue> queue = MakeQueue(connection);
  const absl::Status opened =
      queue->Open(dependencies_.service, call, std::move(parsed->requests), parsed->num_copies);
  DropBody(connection, request);
  if (!opened.ok()) {
    HttpResponse response = ErrorOf(errors, opened, std::move(headers));
    co_await connection.Respond(std::move(response));
    co_return;
  }
  connection.WatchClient();
  const absl::Time created = call.identity.has_value() ? call.identity->reference_time : now;
  const std::unique_ptr<Answer> answer =
      parsed->make_answer(id, model, absl::ToUnixSeconds(created));
  Running running = {*answer,          std::move(errors),  num_prompts,
                     call.deadline,    std::move(headers), num_sequences,
                     std::move(start), std::move(replay)};
  if (parsed->stream) {
    co_await Stream(connection, *queue, std::move(running));
  } else {
    co_await Collect(connection, *queue, std::move(running));
  }
  queue->Cancel();
}

asio::awaitable<void> Api::Collect(HttpConnection& connection, GenerationQueue& queue,
                                   Running call) {
  const HttpLimits& limits = connection.limits();
  Answer& answer = call.answer;
  ByteBudget::Share room(&connection.answers_budget());
  size_t num_prompts = call.num_prompts;
  absl::Status status, excess;  // excess: a limit of answers in one piece is exceeded
  while (num_prompts > 0 && status.ok()) {
    const absl::Duration left = call.deadline - dependencies_.clock->Now();
    if (left <= absl::ZeroDuration()) queue.Expire();
    std::vector<GenerationQueue::Item> items = queue.Take();
    if (items.empty()) {
      co_await connection.Wait(std::clamp(left, absl::Milliseconds(1), absl::Hours(1)));
      if (connection.client_gone()) co_return;
      continue;
    }
    for (GenerationQueue::Item& item : items) {
      Prepare(call, &item.response);
      answer.Add(item.prompt, item.response, nullptr);
      if (!item.end.has_value()) continue;
      --num_prompts;
      if (status.ok() && call.num_prompts > 1) call.errors.names.prompt = item.prompt;
      status.Update(*item.end);
    }
    excess = CheckRoom(answer.num_bytes(), limits, room);
    status.Update(excess);
  }
  HttpResponse response;
  if (status.ok()) {
    response.headers = std::move(call.headers);
    response.more = answer.TakeBody();
  } else {
    queue.Cancel(excess);
    answer.TakeBody();
    room.Release();
    response = ErrorOf(call.errors, status, std::move(call.headers));
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::Stream(HttpConnection& connection, GenerationQueue& queue,
                                  Running call) {
  const HttpLimits& limits = connection.limits();
  Answer& answer = call.answer;
  // Some answers keep what a stream has had, to tell it once more at the end.
  ByteBudget::Share room(&connection.answers_budget());
  const absl::Duration start = dependencies_.clock->Elapsed();
  bool begun = false;
  size_t num_prompts = call.num_prompts;
  EventStream stream(
      &answer, {.num_prompts = static_cast<int>(num_prompts), .num_sequences = call.num_sequences},
      std::move(call.start.signer), std::move(call.start.begin), call.start.is_resumed);
  absl::Duration last_sent = start;
  std::string events;
  while (num_prompts > 0) {
    const absl::Duration left = call.deadline - dependencies_.clock->Now();
    if (left <= absl::ZeroDuration()) queue.Expire();
    std::vector<GenerationQueue::Item> items = queue.Take();
    if (items.empty()) {
      // Most errors come at once. What waits longer is in a worker's queue, and the header keeps
      // proxies from giving it up; while there is no worker, an error of HTTP can still tell when
      // to try again.
      const absl::Duration silence =
          begun ? limits.keepalive_interval
                : start - dependencies_.clock->Elapsed() +
                      (queue.is_sent() ? limits.stream_header_delay : limits.keepalive_interval);
      bool woken = false;
      if (silence > absl::ZeroDuration()) {
        woken = co_await connection.Wait(std::max(std::min(left, silence), absl::Milliseconds(1)));
      }
      if (connection.client_gone()) co_return;
      if (woken || dependencies_.clock->Now() >= call.deadline) continue;
      if (!begun && silence > absl::ZeroDuration()) continue;
      if (!std::exchange(begun, true)) co_await BeginEvents(connection, call.headers);
      // Nobody but a person reads it.
      if (queue.is_sent()) {
        co_await connection.SendComment();
      } else {
        co_await connection.SendStream(kWaitingComment);
      }
      continue;
    }
    absl::Status status;
    events.clear();
    for (GenerationQueue::Item& item : items) {
      Prepare(call, &item.response);
      if (const absl::Status added = stream.Add(item.prompt, std::move(item.response), &events);
          !added.ok()) {
        queue.Cancel(added);
        status.Update(added);
        break;
      }
      if (item.end.has_value()) {
        --num_prompts;
        if (status.ok() && call.num_prompts > 1) call.errors.names.prompt = item.prompt;
        status.Update(*item.end);
      }
      if (const absl::Status excess =
              CheckRoom(answer.num_bytes() + stream.num_bytes(), limits, room);
          !excess.ok()) {
        queue.Cancel(excess);
        status.Update(excess);
        break;
      }
      if (!begun || events.size() < kMaxEventsBytes) continue;
      co_await connection.SendStream(events);
      if (connection.client_gone()) co_return;
      events.clear();
    }
    if (stream.is_replaying() && events.empty() && status.ok() && num_prompts > 0) {
      // The part that the client has had is being generated again.
      if (dependencies_.clock->Elapsed() - last_sent < limits.keepalive_interval) continue;
      last_sent = dependencies_.clock->Elapsed();
      if (!std::exchange(begun, true)) co_await BeginEvents(connection, call.headers);
      co_await connection.SendComment();
      if (connection.client_gone()) co_return;
      continue;
    }
    if (!stream.is_replaying()) call.replay.Release();
    if (num_prompts == 0 && status.ok()) status = stream.AddEnd(&events);
    if (!begun) {
      // Before the first response an error is still one of HTTP.
      if (!status.ok()) {
        HttpResponse response = ErrorOf(call.errors, status, std::move(call.headers));
        co_await connection.Respond(std::move(response));
        co_return;
      }
      begun = true;
      co_await BeginEvents(connection, call.headers);
    }
    if (!status.ok()) {
      stream.AddError(status, ErrorBody(call.errors, status), &events);
      num_prompts = 0;
    }
    co_await connection.SendStream(events);
    if (connection.client_gone()) co_return;
  }
  co_await connection.EndStream();
}

}  // namespace continuo::gateway::openai
