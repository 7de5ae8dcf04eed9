// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/openai/http/http_connection.h"

namespace continuo::gateway::openai {

// Calls of TextService that coroutines of connections wait for. Thread-safe.
class AskedCalls {
 public:
  // The clock outlives this.
  explicit AskedCalls(const Clock* clock) : clock_(clock) {}
  // Waits until every call has ended.
  ~AskedCalls() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* number) { return *number == 0; }, &num_calls_));
  }
  AskedCalls(const AskedCalls&) = delete;
  AskedCalls& operator=(const AskedCalls&) = delete;

  // Makes a call by ask(done), which returns how it is cancelled, calls sent(), and waits for the
  // answer while the client is there and the deadline has not passed.
  template <typename Response, typename Ask, typename Sent>
  boost::asio::awaitable<absl::StatusOr<Response>> Wait(HttpConnection& connection,
                                                        absl::Time deadline, Ask ask, Sent sent) {
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
    const std::shared_ptr<void> keep(this, [](void* calls) {
      auto* const self = static_cast<AskedCalls*>(calls);
      absl::MutexLock lock(&self->mutex_);
      --self->num_calls_;
    });
    connection.WatchClient();
    // Also where the server ends while this waits.
    const absl::Cleanup cancel =
        ask([reply, keep](absl::StatusOr<Response> value) { reply->Set(std::move(value)); });
    sent();
    while (true) {
      if (std::optional<absl::StatusOr<Response>> value = reply->Take()) {
        co_return *std::move(value);
      }
      const absl::Duration left = deadline - clock_->Now();
      if (connection.client_gone()) co_return absl::CancelledError("the client has left");
      if (left <= absl::ZeroDuration()) {
        co_return absl::DeadlineExceededError("the deadline passed");
      }
      co_await connection.Wait(std::clamp(left, absl::Milliseconds(1), absl::Hours(1)));
    }
  }

 private:
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

  const Clock* const clock_;
  absl::Mutex mutex_;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway::openai
