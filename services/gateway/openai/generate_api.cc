// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/generate_api.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/http/event_stream.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/start_call.h"
#include "services/gateway/openai/stream/event_stream.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;

// The events of a stream are sent at the latest when they are this long.
constexpr size_t kMaxEventsBytes = 64 << 10;

// The comment of a stream whose request has no worker yet.
constexpr std::string_view kWaitingComment = ": waiting for a worker\n\n";

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

absl::Status CancelledById() {
  return protocol::WithReason(absl::CancelledError("the response was cancelled by its id"),
                              protocol::kReasonAborted);
}

}  // namespace

GenerateApi::~GenerateApi() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* number) { return *number == 0; }, &num_queues_));
}

std::shared_ptr<GenerationQueue> GenerateApi::MakeQueue(HttpConnection& connection) {
  {
    absl::MutexLock lock(&mutex_);
    ++num_queues_;
  }
  std::shared_ptr<void> keep(this, [](void* api) {
    auto* const self = static_cast<GenerateApi*>(api);
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

std::string GenerateApi::MakeId(const ErrorForm& form) const {
  return form.style == ErrorStyle::kAnthropic ? form.request_id : options_.service->MakeRequestId();
}

void GenerateApi::Prepare(Running& call, v1::GenerateResponse* response) {
  if (!call.start.key.has_value()) return;
  HttpHeaders headers = MakeRepeatable(call.start.identity.fingerprint, response);
  if (headers.empty() || std::exchange(call.told_fingerprint, true)) return;
  for (auto& header : headers) call.headers.push_back(std::move(header));
}

asio::awaitable<void> GenerateApi::Serve(HttpConnection& connection, ErrorForm errors,
                                         HttpRequest request) {
  const absl::Time now = options_.clock->Now();
  ClientCall call = CallOf(request, now);
  const RouteId route = errors.route;
  CallStart start;
  start.identity.request_id = MakeId(errors);
  absl::StatusOr<HttpCall> parsed = ReadAndStart({.service = options_.service,
                                                  .secret = options_.secret,
                                                  .now = now,
                                                  .event_ids = options_.event_ids,
                                                  .models = options_.models},
                                                 route, request, call, &start);
  // The client's own id stands for nothing here but itself: several requests may have it.
  const std::string id = start.identity.request_id;
  if (errors.style == ErrorStyle::kAnthropic) errors.request_id = id;
  HttpHeaders headers = IdHeaders(errors);
  if (request["x-request-id"].empty()) headers.emplace_back("x-request-id", id);
  TenantPlaces::Place replay;
  if (parsed.ok() && start.is_resumed && !start.begin.is_last) {
    absl::StatusOr<TenantPlaces::Place> place =
        replays_.Enter(std::string(start.signer->tenant()), connection.limits().tenant_max_replays);
    if (place.ok()) {
      replay = *std::move(place);
    } else {
      parsed = place.status();
    }
  }
  if (!parsed.ok()) {
    options_.service->OnRejected("", call.correlation_id, WithoutClientsWords(parsed.status()));
    connection.DropBody(request);
    errors.names.as_written = true;
    HttpResponse response = ErrorResponse(errors, parsed.status(), std::move(headers));
    co_await connection.Respond(std::move(response));
    co_return;
  }
  if (start.is_resumed && start.begin.is_last) {
    // It tells an EventSource that nothing follows.
    connection.DropBody(request);
    HttpResponse response = {.status = 204, .content_type = "", .headers = std::move(headers)};
    co_await connection.Respond(std::move(response));
    co_return;
  }
  if (!start.has_ids) start.signer.reset();
  errors.names = parsed->names;
  for (auto& header : parsed->headers) headers.push_back(std::move(header));
  if (start.key.has_value() || parsed->stream) call.identity = start.identity;
  const size_t num_prompts = parsed->requests.size();
  for (size_t i = 0; i < num_prompts; ++i) {
    parsed->requests[i].set_request_id(PromptId(id, i));
    if (call.identity.has_value() && !parsed->requests[i].sampling().has_seed()) {
      parsed->requests[i].mutable_sampling()->set_seed(SeedOfPrompt(*call.identity, i));
    }
  }
  const std::string model = parsed->requests[0].model();
  // What the request says of its caller is dropped with it.
  const std::string tenant =
      route == RouteId::kResponses ? options_.service->Authenticate(call).value_or("") : "";
  const auto num_sequences =
      static_cast<int>(std::max(1u, parsed->requests[0].sampling().num_sequences()));
  const std::shared_ptr<GenerationQueue> queue = MakeQueue(connection);
  std::vector<int64_t> tokens_had;
  if (start.is_resumed) {
    tokens_had = TokensHad(start.begin, num_prompts, static_cast<size_t>(num_sequences));
  }
  const absl::Status opened = queue->Open(options_.service, call, std::move(parsed->requests),
                                          parsed->num_copies, tokens_had);
  connection.DropBody(request);
  if (!opened.ok()) {
    HttpResponse response = ErrorResponse(errors, opened, std::move(headers));
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
  List(connection, tenant, id, &running);
  if (parsed->stream) {
    co_await Stream(connection, *queue, std::move(running));
  } else {
    co_await Collect(connection, *queue, std::move(running));
  }
  queue->Cancel();
}

asio::awaitable<void> GenerateApi::Collect(HttpConnection& connection, GenerationQueue& queue,
                                           Running call) {
  const HttpLimits& limits = connection.limits();
  Answer& answer = call.answer;
  ByteBudget::Share room(&connection.answers_budget());
  size_t num_prompts = call.num_prompts;
  absl::Status status, excess;  // excess: a limit of answers in one piece is exceeded
  while (num_prompts > 0 && status.ok()) {
    const absl::Duration left = call.deadline - options_.clock->Now();
    if (left <= absl::ZeroDuration()) queue.Expire();
    std::vector<GenerationQueue::Item> items = queue.Take();
    if (*call.is_cancelled) {
      excess = CancelledById();
      status.Update(excess);
      break;
    }
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
    if (call.live != nullptr) (*call.live)->OnProgress();
  }
  if (call.live != nullptr)
    call.live->End(status, status.ok() ? "" : ErrorBody(call.errors, status));
  HttpResponse response;
  if (status.ok()) {
    response.headers = std::move(call.headers);
    response.more = answer.TakeBody();
    BodyForm form = answer.body_form();
    response.content_type = std::move(form.content_type);
    for (auto& header : form.headers) response.headers.push_back(std::move(header));
  } else {
    queue.Cancel(excess);
    answer.TakeBody();
    room.Release();
    response = ErrorResponse(call.errors, status, std::move(call.headers));
  }
  co_await connection.Respond(std::move(response));
}

asio::awaitable<void> GenerateApi::Stream(HttpConnection& connection, GenerationQueue& queue,
                                          Running call) {
  const HttpLimits& limits = connection.limits();
  Answer& answer = call.answer;
  // Some answers keep what a stream has had, to tell it once more at the end.
  ByteBudget::Share room(&connection.answers_budget());
  const absl::Duration start = options_.clock->Elapsed();
  bool begun = false;
  size_t num_prompts = call.num_prompts;
  EventStream stream(
      &answer, {.num_prompts = static_cast<int>(num_prompts), .num_sequences = call.num_sequences},
      std::move(call.start.signer), std::move(call.start.begin), call.start.is_resumed);
  stream.TellRetry();
  absl::Duration last_sent = start;
  Chunk events;
  while (num_prompts > 0) {
    const absl::Duration left = call.deadline - options_.clock->Now();
    if (left <= absl::ZeroDuration()) queue.Expire();
    std::vector<GenerationQueue::Item> items = queue.Take();
    if (items.empty() && !*call.is_cancelled) {
      // Most errors come at once. What waits longer is in a worker's queue, and the header keeps
      // proxies from giving it up; while there is no worker, an error of HTTP can still tell when
      // to try again.
      const absl::Duration silence =
          begun ? limits.keepalive_interval
                : start - options_.clock->Elapsed() +
                      (queue.is_sent() ? limits.stream_header_delay : limits.keepalive_interval);
      bool woken = false;
      if (silence > absl::ZeroDuration()) {
        woken = co_await connection.Wait(std::max(std::min(left, silence), absl::Milliseconds(1)));
      }
      if (connection.client_gone()) co_return;
      if (woken || options_.clock->Now() >= call.deadline) continue;
      if (!begun && silence > absl::ZeroDuration()) continue;
      if (!std::exchange(begun, true))
        co_await BeginEvents(connection, call.headers, call.start.has_ids);
      // It keeps the connection open, and tells a person who looks; clients skip it.
      if (queue.is_sent()) {
        co_await connection.SendComment();
      } else {
        co_await connection.SendStream(kWaitingComment);
      }
      continue;
    }
    absl::Status status;
    events.clear();
    if (*call.is_cancelled) {
      status = CancelledById();
      queue.Cancel(status);
      items.clear();
    }
    for (GenerationQueue::Item& item : items) {
      Prepare(call, &item.response);
      if (const absl::Status added =
              stream.Add(item.prompt, std::move(item.response), events.out());
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
    }
    if (stream.is_replaying() && events.empty() && status.ok() && num_prompts > 0) {
      // The part that the client has had is being generated again.
      if (options_.clock->Elapsed() - last_sent < limits.keepalive_interval) continue;
      last_sent = options_.clock->Elapsed();
      if (!std::exchange(begun, true))
        co_await BeginEvents(connection, call.headers, call.start.has_ids);
      co_await connection.SendComment();
      if (connection.client_gone()) co_return;
      continue;
    }
    if (!stream.is_replaying()) {
      call.replay.Release();
      if (call.live != nullptr) (*call.live)->Open();
    }
    if (num_prompts == 0 && status.ok()) status = stream.AddEnd(events.out());
    if (call.live != nullptr) {
      if (status.ok() && num_prompts > 0) {
        (*call.live)->OnProgress();
      } else {
        call.live->End(status, status.ok() ? "" : ErrorBody(call.errors, status));
      }
    }
    if (!begun) {
      // Before the first response an error is still one of HTTP.
      if (!status.ok()) {
        HttpResponse response = ErrorResponse(call.errors, status, std::move(call.headers));
        co_await connection.Respond(std::move(response));
        co_return;
      }
      begun = true;
      co_await BeginEvents(connection, call.headers, call.start.has_ids);
    }
    if (!status.ok()) {
      stream.AddError(status, ErrorBody(call.errors, status), events.out());
      num_prompts = 0;
    }
    co_await connection.SendStream(events);
    if (connection.client_gone()) co_return;
  }
  co_await connection.EndStream();
}

void GenerateApi::List(HttpConnection& connection, const std::string& tenant, const std::string& id,
                       Running* call) {
  const Retrievable* const answer = call->answer.retrievable();
  if (answer == nullptr) return;
  // The connection lives as long as the call, and the call's end forgets the function.
  auto cancel = [&connection, is_cancelled = call->is_cancelled] {
    *is_cancelled = true;
    connection.signal().Notify();
  };
  call->live = std::make_unique<LiveResponses::Entry>(
      &live_, tenant, id,
      std::make_shared<LiveResponse>(connection.executor(), answer, std::move(cancel),
                                     &connection.answers_budget()));
  // A stream that goes on has no numbers before its replay is over.
  if (!call->start.is_resumed) (*call->live)->Open();
}

}  // namespace continuo::gateway::openai
