// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/server/lifetime/request_control.h"

namespace continuo::server {

// The calls of Generate that are open in this process: from their arrival until the transport is
// done with them, however their requests have ended. A status waits behind unread messages, so a
// reader who does not read could keep a call that was told to end open for ever: such a call is
// cut. Thread-safe; keeps no thread and reads no clock.
class OpenCalls {
 public:
  // A call that was told to end has `patience` to do so.
  explicit OpenCalls(absl::Duration patience) : patience_(patience) {}

  void Add(std::shared_ptr<RequestControl> control);
  void Remove(const RequestControl* control);
  // Cuts the calls that were told to end longer ago than the patience. Called every few tens of
  // milliseconds; `now` is of a clock that never goes back.
  void Tick(absl::Duration now);

  size_t size() const;
  std::vector<std::shared_ptr<RequestControl>> All() const;

 private:
  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<RequestControl>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
