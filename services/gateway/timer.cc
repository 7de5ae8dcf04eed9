// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/timer.h"

#include "absl/time/clock.h"

namespace continuo::gateway {

TimerThread::TimerThread() : thread_([this] { Run(); }) {}

TimerThread::~TimerThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void TimerThread::After(absl::Duration delay, std::function<void()> callback) {
  const absl::Time time = absl::Now() + std::max(delay, absl::ZeroDuration());
  absl::MutexLock lock(&mutex_);
  const auto at = due_.emplace(std::pair(time, next_id_++), std::move(callback)).first;
  if (at == due_.begin()) changed_.Signal();
}

void TimerThread::Run() {
  std::function<void()> callback;
  absl::MutexLock lock(&mutex_);
  while (!stopped_) {
    if (due_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const auto first = due_.begin();
    if (first->first.first > absl::Now()) {
      changed_.WaitWithDeadline(&mutex_, first->first.first);
      continue;
    }
    callback = std::move(first->second);
    due_.erase(first);
    mutex_.Unlock();
    callback();
    callback = nullptr;  // what it holds may take the lock, or call After, when it goes
    mutex_.Lock();
  }
}

}  // namespace continuo::gateway
