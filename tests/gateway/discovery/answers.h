// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "services/gateway/discovery/resolver.h"

namespace continuo::gateway {

// Queries often, so that tests are quick.
inline constexpr ResolverOptions kQuick = {.min_interval = absl::Milliseconds(5),
                                           .max_interval = absl::Milliseconds(20),
                                           .refresh_interval = absl::Milliseconds(1),
                                           .query_timeout = absl::Milliseconds(100)};

// Queues the answers of a resolver.
class Answers {
 public:
  explicit Answers(const std::string& target, const ResolverOptions& options = kQuick)
      : resolver_(*MakeResolver(target, options)) {
    resolver_->Start([this](std::vector<std::string> addresses) {
      absl::MutexLock lock(&mutex_);
      answers_.push_back(std::move(addresses));
    });
  }
  ~Answers() { resolver_->Stop(); }
  // Returns the next answer; fails the test after a minute.
  std::vector<std::string> Next() {
    absl::MutexLock lock(&mutex_);
    const auto any = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !answers_.empty(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&any), absl::Minutes(1))) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    std::vector<std::string> next = std::move(answers_.front());
    answers_.pop_front();
    return next;
  }
  bool empty() const {
    absl::MutexLock lock(&mutex_);
    return answers_.empty();
  }
  Resolver& resolver() { return *resolver_; }

 private:
  mutable absl::Mutex mutex_;
  std::deque<std::vector<std::string>> answers_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<Resolver> resolver_;
};

}  // namespace continuo::gateway
