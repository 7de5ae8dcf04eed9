// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/engine/types/step_record.h"

namespace continuo::engine {

// Keeps the records of the last steps for those who watch. It never holds up the engine thread for
// longer than it takes to copy pointers; records that a slow reader misses are counted. Nothing is
// recorded while nobody watches. Thread-safe.
class StepLog {
 public:
  // The log keeps at most this many steps and sequences, but always the last step.
  static constexpr size_t kMaxSteps = 1024, kMaxSequences = 65536;

  // The log is written as long as a watch lives. The log must outlive the watch.
  class Watch {
   public:
    explicit Watch(StepLog* log);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    struct Steps {
      std::vector<std::shared_ptr<const StepRecord>> records;  // in the order of the steps
      uint64_t num_dropped = 0;                                // before the first of them
    };
    // Returns the records added since this watch began, without those already taken.
    Steps Read() const;
    // Removes the first `num_records` of what Read() returned, and the ones dropped before them.
    void Take(const Steps& steps, size_t num_records);

   private:
    StepLog* const log_;
    uint64_t position_ = 0;  // number of records added before the next one to read
  };

  // Returns whether anybody watches.
  bool watched() const { return num_watches_.load(std::memory_order_relaxed) > 0; }
  void Add(StepRecord record);

 private:
  std::atomic<int> num_watches_ = 0;
  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<const StepRecord>> records_ ABSL_GUARDED_BY(mutex_);
  size_t num_sequences_ ABSL_GUARDED_BY(mutex_) = 0;  // in records_
  uint64_t num_added_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::engine
