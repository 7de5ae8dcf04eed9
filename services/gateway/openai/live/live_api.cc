// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/live/live_api.h"

#include <boost/asio/post.hpp>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/openai/http/event_stream.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kPrefix = "resp_";

// One reply on its way from the thread of the response to that of the reader.
template <typename T>
class Reply {
 public:
  explicit Reply(HttpConnection& connection)
      : weak_(connection.weak_from_this()), executor_(connection.executor()) {}

  void Set(T value) {
    {
      absl::MutexLock lock(&mutex_);
      value_ = std::move(value);
    }
    // The connection is touched, and perhaps ends, on its own thread only.
    boost::asio::post(executor_, [weak = weak_] {
      if (const auto alive = weak.lock()) alive->signal().Notify();
    });
  }
  std::optional<T> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(value_, std::nullopt);
  }

 private:
  const std::weak_ptr<HttpConnection> weak_;
  const boost::asio::any_io_executor executor_;
  absl::Mutex mutex_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

absl::Status NotLive(std::string_view response) {
  constexpr size_t kMaxIdBytes = 100;
  constexpr char kAgain[] =
      " is not generated at this gateway now, and nothing is stored. The gateway that got the "
      "request has it until its end. The same request with its Idempotency-Key gives the same "
      "answer again, and with the id of the last event as Last-Event-ID the rest of its stream, at "
      "any gateway";
  const std::string id(response.substr(0, kMaxIdBytes));
  return WithClientsWord(absl::NotFoundError(absl::StrCat("response \"", id, "\"", kAgain)),
                         absl::StrCat("the response", kAgain));
}

// Waits for a reply while the client is there.
template <typename T>
boost::asio::awaitable<std::optional<T>> WaitFor(HttpConnection& connection, Reply<T>& reply) {
  for (;;) {
    std::optional<T> value = reply.Take();
    if (value.has_value()) co_return value;
    co_await connection.Wait(connection.limits().keepalive_interval);
    if (connection.client_gone()) co_return std::nullopt;
  }
}

boost::asio::awaitable<absl::Status> SendBody(HttpConnection& connection,
                                              const LiveApi::Asked& asked, LiveResponse& response) {
  using Body = absl::StatusOr<LiveResponse::Body>;
  const auto reply = std::make_shared<Reply<Body>>(connection);
  const auto set = [reply](Body body) { reply->Set(std::move(body)); };
  if (asked.action == LiveApi::Action::kGet) {
    response.AskSnapshot(set);
  } else {
    response.Cancel(set);
  }
  std::optional<Body> body = co_await WaitFor(connection, *reply);
  if (!body.has_value()) co_return absl::OkStatus();
  if (absl::IsNotFound(body->status())) co_return NotLive(asked.response);
  HttpResponse answer;
  if (asked.action == LiveApi::Action::kDelete) {
    answer.body =
        absl::StrCat(R"({"id":")", asked.response, R"(","object":"response","deleted":true})");
  } else if (!body->ok()) {
    co_return body->status();
  } else {
    answer.body = std::move((*body)->text);
  }
  co_await connection.Respond(std::move(answer));
  co_return absl::OkStatus();
}

// An error behind the header is an event.
std::string ErrorEvent(const absl::Status& status) {
  ParamNames names;
  names.as_written = true;
  return absl::StrCat("event: error\ndata: ", ErrorJson(names, status), "\n\n");
}

boost::asio::awaitable<absl::Status> SendEvents(HttpConnection& connection, int64_t first,
                                                LiveResponse& response) {
  using Events = absl::StatusOr<LiveResponse::Events>;
  const auto alive = std::make_shared<const bool>(true);
  bool begun = false;
  while (!connection.client_gone()) {
    const auto reply = std::make_shared<Reply<Events>>(connection);
    response.AskEvents(first, alive, [reply](Events events) { reply->Set(std::move(events)); });
    std::optional<Events> events = reply->Take();
    for (; !events.has_value(); events = reply->Take()) {
      const HttpLimits& limits = connection.limits();
      const bool woken =
          co_await connection.Wait(begun ? limits.keepalive_interval : limits.stream_header_delay);
      if (connection.client_gone()) co_return absl::OkStatus();
      if (woken) continue;
      if (!std::exchange(begun, true)) co_await BeginEvents(connection, {}, /*has_ids=*/false);
      co_await connection.SendComment();
    }
    if (!begun && !events->ok()) co_return events->status();
    if (!std::exchange(begun, true)) co_await BeginEvents(connection, {}, /*has_ids=*/false);
    const bool is_last = !events->ok() || (*events)->is_last;
    const std::string text =
        events->ok() ? std::move((*events)->text) : ErrorEvent(events->status());
    if (!text.empty()) co_await connection.SendStream(text);
    if (is_last) break;
    first = (*events)->next;
  }
  if (!connection.client_gone()) co_await connection.EndStream();
  co_return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> LiveApi::FirstEventOf(std::string_view query) {
  const std::string stream = QueryValue(query, "stream").value_or("false");
  if (stream != "true" && stream != "false") {
    return protocol::FieldError("stream", "must be true or false");
  }
  const std::optional<std::string> after = QueryValue(query, "starting_after");
  int64_t number = -1;
  if (after.has_value() && (!absl::SimpleAtoi(*after, &number) || number < 0 ||
                            number == std::numeric_limits<int64_t>::max())) {
    return protocol::FieldError("starting_after", "must be the sequence_number of an event");
  }
  if (stream == "true") return number + 1;
  if (!after.has_value()) return std::nullopt;
  return protocol::FieldError("starting_after", "needs stream=true");
}

boost::asio::awaitable<absl::Status> LiveApi::Serve(HttpConnection& connection,
                                                    const Asked& asked) {
  std::string_view id = asked.response;
  std::unique_ptr<LiveResponse::Reader> reader;
  if (id.starts_with(kPrefix)) {
    id.remove_prefix(kPrefix.size());
    reader = responses_->Find(asked.tenant, std::string(id));
  }
  if (reader == nullptr) co_return NotLive(asked.response);
  const absl::StatusOr<TenantPlaces::Place> place = readers_.Enter(asked.tenant, kMaxReaders);
  if (!place.ok()) co_return place.status();
  connection.WatchClient();
  if (asked.first_event.has_value()) {
    co_return co_await SendEvents(connection, *asked.first_event, **reader);
  }
  co_return co_await SendBody(connection, asked, **reader);
}

}  // namespace continuo::gateway::openai
