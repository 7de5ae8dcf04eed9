// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/api.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/fleet_json.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/page.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::string_view kModelsPath = "/v1/models";
// The events of a stream are sent at the latest when they are this long.
constexpr size_t kMaxEventsBytes = 64 << 10;

std::string_view PathOf(const HttpRequest& request) {
  const std::string_view target(request.target().data(), request.target().size());
  return target.substr(0, target.find('?'));
}

std::optional<Endpoint> EndpointOf(std::string_view path) {
  if (path == "/v1/chat/completions") return Endpoint::kChat;
  if (path == "/v1/completions") return Endpoint::kCompletions;
  return std::nullopt;
}

bool IsGetPath(std::string_view path) {
  return path == "/" || path == "/fleet" || path == kModelsPath || path == "/healthz" ||
         path == "/readyz" || path == "/metrics" ||
         (path.starts_with(kModelsPath) && path.size() > kModelsPath.size() + 1 &&
          path[kModelsPath.size()] == '/');
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

HttpResponse Text(int status, std::string body) {
  return {.status = status,
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = std::move(body)};
}

}  // namespace

Api::Api(ApiDependencies dependencies)
    : dependencies_(std::move(dependencies)),
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

HttpResponse Api::Error(int status, std::string_view message) {
  dependencies_.service->OnRejected("", StatusOf(status, message));
  return {.status = status, .body = ErrorJson(status, message, "")};
}

HttpResponse Api::ErrorOf(const ParamNames& names, const absl::Status& status,
                          HttpHeaders headers) const {
  if (const std::optional<int> seconds = RetryAfterOf(status)) {
    headers.emplace_back("Retry-After", absl::StrCat(*seconds));
  }
  return {.status = HttpStatusOf(status),
          .headers = std::move(headers),
          .body = ErrorJson(names, status)};
}

std::optional<HttpResponse> Api::Reject(const HttpRequest& header) {
  const std::string_view path = PathOf(header);
  const bool posts = EndpointOf(path).has_value();
  if (!posts && !IsGetPath(path)) return Error(404, "there is nothing at this path");
  const http::verb method = header.method();
  if (posts ? method != http::verb::post
            : method != http::verb::get && method != http::verb::head) {
    HttpResponse response = Error(405, posts ? "this path takes POST" : "this path takes GET");
    response.headers.emplace_back("Allow", posts ? "POST" : "GET, HEAD");
    return response;
  }
  if (const auto encoding = header[http::field::content_encoding];
      !encoding.empty() && encoding != "identity") {
    return Error(415, "a body is taken without Content-Encoding only");
  }
  if (path.starts_with("/v1/") || path == "/fleet" || path == "/metrics") {
    const auto tenant =
        dependencies_.service->Authenticate(CallOf(header, dependencies_.clock->Now()));
    if (!tenant.ok()) {
      dependencies_.service->OnRejected("", tenant.status());
      return ErrorOf(EndpointOf(path).value_or(Endpoint::kChat), tenant.status(), {});
    }
  }
  return std::nullopt;
}

HttpResponse Api::Get(std::string_view path) {
  if (path == "/healthz") return Text(200, "ok\n");
  if (path == "/readyz") {
    return dependencies_.ready() ? Text(200, "ready\n") : Text(503, "no worker takes requests\n");
  }
  if (path == "/") return PageResponse();
  if (path == "/fleet") return {.body = FleetJson(*dependencies_.fleet())};
  if (path == "/metrics") return Text(200, dependencies_.metrics());
  const std::vector<v1::Model> models = dependencies_.models();
  if (path == kModelsPath) return {.body = ModelsJson(models, start_seconds_)};
  const std::string name = DecodePath(path.substr(kModelsPath.size() + 1));
  const auto model = std::ranges::find(models, name, &v1::Model::name);
  if (model != models.end()) return {.body = ModelJson(*model, start_seconds_)};
  return ErrorOf(Endpoint::kChat,
                 absl::NotFoundError(absl::StrCat("model \"", name, "\" is not served here")), {});
}

asio::awaitable<void> Api::Handle(HttpConnection& connection, HttpRequest request) {
  const std::string_view path = PathOf(request);
  const std::optional<Endpoint> endpoint = EndpointOf(path);
  if (endpoint.has_value()) {
    co_await Generate(connection, *endpoint, std::move(request));
    co_return;
  }
  HttpResponse response = Get(path);
  DropBody(connection, request);
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::Generate(HttpConnection& connection, Endpoint endpoint,
                                    HttpRequest request) {
  ClientCall call = CallOf(request, dependencies_.clock->Now());
  HttpHeaders headers;
  const absl::StatusOr<std::string> id = RequestIdOf(request, *dependencies_.service);
  if (id.ok()) headers.emplace_back("x-request-id", *id);
  absl::StatusOr<ParsedCall> parsed =
      id.ok() ? ParseCall(endpoint, request.body()) : absl::StatusOr<ParsedCall>(id.status());
  if (parsed.ok() && parsed->requests.size() > 1) {
    const absl::Status last =
        protocol::ValidateId("x-request-id", PromptId(*id, parsed->requests.size() - 1));
    if (!last.ok()) parsed = last;
  }
  if (!parsed.ok()) {
    dependencies_.service->OnRejected("", WithoutClientsWords(parsed.status()));
    DropBody(connection, request);
    ParamNames names(endpoint);
    names.as_written = true;
    HttpResponse response = ErrorOf(names, parsed.status(), std::move(headers));
    co_await connection.Respond(std::move(response));
    co_return;
  }
  const size_t num_prompts = parsed->requests.size();
  for (size_t i = 0; i < num_prompts; ++i) {
    parsed->requests[i].set_request_id(PromptId(*id, i));
  }
  const std::string model = parsed->requests[0].model();
  const std::shared_ptr<GenerationQueue> queue = MakeQueue(connection);
  // The echo is kept beside the prompt.
  const int num_copies = parsed->form.echo ? 2 : 1;
  const absl::Status opened =
      queue->Open(dependencies_.service, call, std::move(parsed->requests), num_copies);
  DropBody(connection, request);
  if (!opened.ok()) {
    HttpResponse response = ErrorOf(parsed->form.names, opened, std::move(headers));
    co_await connection.Respond(std::move(response));
    co_return;
  }
  connection.WatchClient();
  Answer answer(std::move(parsed->form), *id, model,
                absl::ToUnixSeconds(dependencies_.clock->Now()));
  if (answer.form().stream) {
    co_await Stream(connection, *queue, answer, num_prompts, call.deadline, std::move(headers));
  } else {
    co_await Collect(connection, *queue, answer, num_prompts, call.deadline, std::move(headers));
  }
  queue->Cancel();
}

asio::awaitable<void> Api::Collect(HttpConnection& connection, GenerationQueue& queue,
                                   Answer& answer, size_t num_prompts, absl::Time deadline,
                                   HttpHeaders headers) {
  const HttpLimits& limits = connection.limits();
  ByteBudget::Share room(&connection.answers_budget());
  absl::Status status, excess;  // excess: a limit of answers in one piece is exceeded
  while (num_prompts > 0 && status.ok()) {
    const absl::Duration left = deadline - dependencies_.clock->Now();
    if (left <= absl::ZeroDuration()) queue.Expire();
    std::vector<GenerationQueue::Item> items = queue.Take();
    if (items.empty()) {
      co_await connection.signal().Wait(
          absl::ToChronoNanoseconds(std::clamp(left, absl::Milliseconds(1), absl::Hours(1))));
      if (connection.client_gone()) co_return;
      continue;
    }
    for (GenerationQueue::Item& item : items) {
      answer.Add(item.prompt, item.response, nullptr);
      if (!item.end.has_value()) continue;
      --num_prompts;
      status.Update(*item.end);
    }
    const auto num_bytes = static_cast<int64_t>(answer.num_bytes());
    if (num_bytes > limits.max_answer_bytes) {
      excess =
          absl::InvalidArgumentError(absl::StrCat("the answer is over ", limits.max_answer_bytes,
                                                  " bytes; it can be had with stream only"));
    } else if (!room.ResizeLeavingRoom(num_bytes)) {
      excess = protocol::WithReason(
          absl::ResourceExhaustedError(
              absl::StrCat("answers in one piece have taken their ", limits.max_answers_bytes,
                           " bytes together; this one can be had with stream, or later")),
          protocol::kReasonOverloaded);
    }
    status.Update(excess);
  }
  HttpResponse response;
  if (status.ok()) {
    response.headers = std::move(headers);
    response.more = answer.TakeBody();
  } else {
    queue.Cancel(excess);
    answer.TakeBody();
    room.Release();
    response = ErrorOf(answer.form().names, status, std::move(headers));
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> Api::Stream(HttpConnection& connection, GenerationQueue& queue,
                                  Answer& answer, size_t num_prompts, absl::Time deadline,
                                  HttpHeaders headers) {
  bool begun = false;
  std::string events;
  while (num_prompts > 0) {
    const absl::Duration left = deadline - dependencies_.clock->Now();
    if (left <= absl::ZeroDuration()) queue.Expire();
    std::vector<GenerationQueue::Item> items = queue.Take();
    if (items.empty()) {
      const absl::Duration wait = std::min(left, connection.limits().keepalive_interval);
      const bool woken = co_await connection.signal().Wait(
          absl::ToChronoNanoseconds(std::max(wait, absl::Milliseconds(1))));
      if (connection.client_gone()) co_return;
      if (!woken && begun) co_await connection.SendStream(":\n\n");
      continue;
    }
    absl::Status status;
    events.clear();
    for (GenerationQueue::Item& item : items) {
      answer.Add(item.prompt, item.response, &events);
      item.response.Clear();
      if (item.end.has_value()) {
        --num_prompts;
        status.Update(*item.end);
      }
      if (!begun || events.size() < kMaxEventsBytes) continue;
      co_await connection.SendStream(events);
      if (connection.client_gone()) co_return;
      events.clear();
    }
    if (!begun) {
      // Before the first response an error is still one of HTTP.
      if (!status.ok()) {
        HttpResponse response = ErrorOf(answer.form().names, status, std::move(headers));
        co_await connection.Respond(std::move(response));
        co_return;
      }
      begun = true;
      headers.emplace_back("Cache-Control", "no-cache");
      // Without it nginx would keep events back.
      headers.emplace_back("X-Accel-Buffering", "no");
      co_await connection.BeginStream("text/event-stream; charset=utf-8", std::move(headers));
    }
    if (!status.ok()) {
      events.append(ErrorEvent(ErrorJson(answer.form().names, status)));
      num_prompts = 0;
    } else if (num_prompts == 0) {
      answer.AddEnd(&events);
    }
    co_await connection.SendStream(events);
    if (connection.client_gone()) co_return;
  }
  co_await connection.EndStream();
}

}  // namespace continuo::gateway::openai
