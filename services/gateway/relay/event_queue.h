// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace continuo::gateway {

// A queue of events from any thread that are handled one at a time: the thread that adds an event
// while no thread handles becomes the handler. An event that is added by the handling of another
// one, on the same thread, is handled after it. Thread-safe.
template <typename Event>
class EventQueue {
 public:
  // Adds an event. If it returns true the caller must call Drain.
  bool Push(Event event) { return Add(std::move(event), /*opens=*/false); }
  // Does what Push does. Events that were added before are kept back until this call and handled
  // first.
  bool Open(Event event) { return Add(std::move(event), /*opens=*/true); }

  // Calls `handle` with one event after the other until there are none, without a lock.
  template <typename Function>
  void Drain(Function handle) {
    std::vector<Event> batch;
    while (Take(&batch)) {
      for (Event& event : batch) handle(event);
    }
  }

 private:
  bool Add(Event event, bool opens) {
    absl::MutexLock lock(&mutex_);
    is_open_ = is_open_ || opens;
    events_.push_back(std::move(event));
    if (!is_open_ || is_handled_) return false;
    is_handled_ = true;
    return true;
  }

  // Replaces `batch` by the events to handle next. False if there are none.
  bool Take(std::vector<Event>* batch) {
    absl::MutexLock lock(&mutex_);
    batch->clear();
    batch->swap(events_);
    is_handled_ = !batch->empty();
    return is_handled_;
  }

  absl::Mutex mutex_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_handled_ ABSL_GUARDED_BY(mutex_) = false;  // by a thread in Drain or about to call it
};

}  // namespace continuo::gateway
