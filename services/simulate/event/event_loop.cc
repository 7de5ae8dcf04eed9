// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/event/event_loop.h"

#include <algorithm>
#include <utility>

namespace continuo::simulate {

void EventLoop::After(absl::Duration delay, std::function<void()> callback) {
  // Rounded up: who waits for a time must not be woken before it.
  const int64_t wait =
      std::max<int64_t>(0, absl::ToInt64Nanoseconds(absl::Ceil(delay, absl::Nanoseconds(1))));
  events_.push_back({now_ + wait, next_number_++, std::move(callback)});
  std::ranges::push_heap(events_, IsLater);
}

bool EventLoop::RunNext() {
  if (events_.empty()) return false;
  std::ranges::pop_heap(events_, IsLater);
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.time;
  ++num_run_;
  event.callback();
  return true;
}

void EventLoop::RunUntil(absl::Duration time) {
  const int64_t end = absl::ToInt64Nanoseconds(time);
  while (!events_.empty() && events_.front().time <= end) RunNext();
  now_ = std::max(now_, end);
}

void EventLoop::Clear() {
  // A callback may own what adds or drops events when it is destroyed.
  while (!events_.empty()) const std::vector<Event> dropped = std::exchange(events_, {});
}

}  // namespace continuo::simulate
