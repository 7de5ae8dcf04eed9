// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/engine/request.h"

namespace continuo::engine {

// What a step ran, without any token: WatchSteps is made from it.
struct StepRecord {
  struct SequenceRow {
    std::string label;  // the client's request_id
    int index = 0;
    int prompt_tokens = 0, cached_tokens = 0, new_tokens = 0, generated_tokens = 0;
    bool preempted = false;
    FinishReason finish = FinishReason::kNone;
  };
  uint64_t number = 0;
  absl::Time start;
  absl::Duration duration;
  std::vector<SequenceRow> sequences;
  int waiting = 0, used_blocks = 0;
};

// The last steps, for those who watch. Never holds up the engine thread for longer than it takes
// to copy pointers; what a slow reader misses is counted. Records nothing while nobody watches.
// Thread-safe.
class StepLog {
 public:
  static constexpr size_t kMaxSteps = 1024, kMaxSequences = 65536;  // kept, the last step always

  // Keeps the log being written while it lives. Outlived by the log.
  class Watch {
   public:
    explicit Watch(StepLog* log);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    struct Steps {
      std::vector<std::shared_ptr<const StepRecord>> records;  // as they came
      uint64_t num_dropped = 0;                                // before the first of them
    };
    // What has come since this watch began, but for what was taken.
    Steps Read() const;
    // The first `num_records` of what Read() gave, and those dropped before, are done with.
    void Take(const Steps& steps, size_t num_records);

   private:
    StepLog* const log_;
    uint64_t position_ = 0;  // how many had been added before the next one to read
  };

  // Whether records are wanted.
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
