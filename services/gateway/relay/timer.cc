// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/timer.h"

#include <algorithm>

namespace continuo::gateway {
namespace {

// A longer delay would not fit into a time_point, and is as good as never.
constexpr absl::Duration kMaxDelay = absl::Hours(24 * 365);

}  // namespace

TimerThread::TimerThread() : thread_([this] { Run(); }) {}

TimerThread::~TimerThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TimerThread::After(absl::Duration delay, std::function<void()> callback) {
  const Clock::time_point time =
      Clock::now() + absl::ToChronoNanoseconds(std::clamp(delay, absl::ZeroDuration(), kMaxDelay));
  const std::lock_guard lock(mutex_);
  const auto at = due_.emplace(std::pair(time, next_id_++), std::move(callback)).first;
  if (at == due_.begin()) changed_.notify_one();
}

void TimerThread::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = due_.begin();
    if (const Clock::time_point time = first->first.first; time > Clock::now()) {
      changed_.wait_until(lock, time);
      continue;
    }
    std::function<void()> callback = std::move(first->second);
    due_.erase(first);
    lock.unlock();
    callback();
    callback = nullptr;  // its captures may take the lock or call After when they are destroyed
    lock.lock();
  }
}

}  // namespace continuo::gateway
