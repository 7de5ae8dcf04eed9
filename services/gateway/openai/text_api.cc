// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/text_api.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/calls.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/json/text_json.h"
#include "services/gateway/openai/messages/messages_request.h"

namespace continuo::gateway::openai {
namespace {

// The answer to one call on its way to its connection. Thread-safe.
template <typename Response>
class Reply {
 public:
  explicit Reply(std::function<void()> notify) : notify_(std::move(notify)) {}

  void Set(absl::StatusOr<Response> value) {
    {
      absl::MutexLock lock(&mutex_);
      value_ = std::move(value);
    }
    notify_();
  }
  std::optional<absl::StatusOr<Response>> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(value_, std::nullopt);
  }

 private:
  const std::function<void()> notify_;
  absl::Mutex mutex_;
  std::optional<absl::StatusOr<Response>> value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

TextApi::~TextApi() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* number) { return *number == 0; }, &num_calls_));
}

template <typename Response, typename Ask>
boost::asio::awaitable<absl::StatusOr<Response>> TextApi::Wait(HttpConnection& connection,
                                                               HttpRequest& request, Ask ask) {
  const ClientCall call = CallOf(request, clock_->Now());
  // The connection is touched, and perhaps ends, on its own thread only.
  const auto reply = std::make_shared<Reply<Response>>(
      [weak = connection.weak_from_this(), executor = connection.executor()] {
        boost::asio::post(executor, [weak] {
          if (const auto alive = weak.lock()) alive->signal().Notify();
        });
      });
  {
    absl::MutexLock lock(&mutex_);
    ++num_calls_;
  }
  const std::shared_ptr<void> keep(this, [](void* api) {
    auto* const self = static_cast<TextApi*>(api);
    absl::MutexLock lock(&self->mutex_);
    --self->num_calls_;
  });
  connection.WatchClient();
  // Also where the server ends while this waits.
  const absl::Cleanup cancel =
      ask(call, [reply, keep](absl::StatusOr<Response> value) { reply->Set(std::move(value)); });
  request = {};
  connection.OnBodyDropped();
  while (true) {
    if (std::optional<absl::StatusOr<Response>> value = reply->Take()) co_return *std::move(value);
    const absl::Duration left = call.deadline - clock_->Now();
    if (connection.client_gone()) co_return absl::CancelledError("the client has left");
    if (left <= absl::ZeroDuration()) co_return absl::DeadlineExceededError("the deadline passed");
    co_await connection.Wait(std::clamp(left, absl::Milliseconds(1), absl::Hours(1)));
  }
}

boost::asio::awaitable<TextApi::Answer> TextApi::Serve(HttpConnection& connection, RouteId route,
                                                       HttpRequest request) {
  if (route == RouteId::kTokenize) {
    absl::StatusOr<v1::TokenizeRequest> asked = ParseTokenize(request.body());
    if (!asked.ok()) co_return Answer{.status = asked.status(), .as_written = true};
    const bool has_token_strs = asked->return_tokens();
    const auto answer = co_await Wait<v1::TokenizeResponse>(
        connection, request, [&](const ClientCall& call, auto done) {
          return service_->AskTokenize(call, *std::move(asked), std::move(done));
        });
    if (!answer.ok()) co_return Answer{.status = answer.status()};
    co_return Answer{.body = TokenizeJson(*answer, has_token_strs)};
  }
  if (route == RouteId::kCountTokens) {
    absl::StatusOr<CountTokensCall> asked = ParseCountTokens(request.body());
    if (!asked.ok()) co_return Answer{.status = asked.status(), .as_written = true};
    const MessagesTools tools = std::move(asked->tools);
    const auto answer = co_await Wait<v1::TokenizeResponse>(
        connection, request, [&](const ClientCall& call, auto done) {
          return service_->AskTokenize(call, std::move(asked->request), std::move(done));
        });
    if (!answer.ok()) co_return Answer{.status = answer.status(), .tool_places = tools.places};
    co_return Answer{.body = absl::StrCat("{\"input_tokens\":", answer->token_ids_size(), "}"),
                     .headers = SkippedToolsHeaders(tools.skipped)};
  }
  if (route == RouteId::kDetokenize) {
    absl::StatusOr<v1::DetokenizeRequest> asked = ParseDetokenize(request.body());
    if (!asked.ok()) co_return Answer{.status = asked.status(), .as_written = true};
    const auto answer = co_await Wait<v1::DetokenizeResponse>(
        connection, request, [&](const ClientCall& call, auto done) {
          return service_->AskDetokenize(call, *std::move(asked), std::move(done));
        });
    if (!answer.ok()) co_return Answer{.status = answer.status()};
    co_return Answer{.body = DetokenizeJson(*answer)};
  }
  v1::GetTokenizerRequest asked;
  asked.set_model(QueryValue(connection.query(), "model").value_or(""));
  auto answer = co_await Wait<v1::GetTokenizerResponse>(
      connection, request, [&](const ClientCall& call, auto done) {
        return service_->AskGetTokenizer(call, std::move(asked), std::move(done));
      });
  if (!answer.ok()) co_return Answer{.status = answer.status()};
  co_return Answer{.body = std::move(*answer->mutable_config())};
}

}  // namespace continuo::gateway::openai
