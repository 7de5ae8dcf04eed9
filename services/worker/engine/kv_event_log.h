// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/engine/types/kv_events.h"

namespace continuo::engine {

// Keeps the last events of the prefix cache for those who watch it, and hands them snapshots. It
// never holds up the engine thread for longer than it takes to copy pointers: a watch that falls
// behind what is kept has to begin anew. Thread-safe.
//
// The log is written from the first snapshot on. When nobody watches any longer it is still written
// until it is full, so that a watch that was cut can go on, and then stops.
class KvEventLog {
 public:
  // So much is kept, but always the last batch.
  static constexpr size_t kMaxBytes = 16 << 20;
  // A larger step has several batches.
  static constexpr size_t kMaxBatchBytes = 256 << 10;
  static constexpr int kMaxWatches = 64;
  // Numbers begin above this one, so that the parts of a snapshot have numbers, too.
  static constexpr uint64_t kMinNumber = 1 << 20;

  // Where a snapshot is put for one watch. Thread-safe.
  class SnapshotBox {
   public:
    void Put(KvSnapshot snapshot);
    // Returns the snapshot once it is there.
    std::optional<KvSnapshot> Take();

   private:
    absl::Mutex mutex_;
    std::optional<KvSnapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
  };

  // One who watches. Used by one thread at a time; the log outlives it.
  class Watch {
   public:
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Returns the snapshot that the watch begins with, once, when it is there. A watch that goes on
    // from a number has none.
    std::optional<KvSnapshot> TakeSnapshot();
    // Returns the next batches, at least one and at most about `max_bytes` of them, or none: there
    // is no other yet, or the snapshot was not taken. Each is returned once. DataLoss: batches that
    // this watch has not had are no longer kept.
    absl::StatusOr<std::vector<std::shared_ptr<const KvEventBatch>>> Read(size_t max_bytes);
    // The snapshot is told in parts with the numbers of the batches before its own: from now on
    // nobody goes on from a number before that of the snapshot, as it may be a part's.
    void TellInParts();

   private:
    friend class KvEventLog;
    Watch(KvEventLog* log, std::shared_ptr<SnapshotBox> box, uint64_t position)
        : log_(log), box_(std::move(box)), position_(position) {}

    KvEventLog* const log_;
    std::shared_ptr<SnapshotBox> box_;  // until the snapshot was taken
    uint64_t position_;                 // the number of the next batch to read
  };

  // Numbers begin at microseconds of `start`, the time of the worker's start, so that one of an
  // earlier process is never taken for one of this.
  explicit KvEventLog(absl::Time start);

  // Begins a watch with a snapshot, which TakeSnapshot of the recorder's thread puts into `box`.
  // ResourceExhausted where there are kMaxWatches.
  absl::StatusOr<std::unique_ptr<Watch>> Begin(std::shared_ptr<SnapshotBox> box);
  // Begins a watch that has had the batches before `number`. OutOfRange where one from there on is
  // no longer kept, or `number` may be that of a snapshot's part, or none that this process has
  // told. Else as Begin.
  absl::StatusOr<std::unique_ptr<Watch>> Resume(uint64_t number);

  // The functions below are for the thread that records.

  bool recording() const;
  // From now on, events are added. Every number so far has come to its end.
  void StartRecording();
  // Adds the events of a step. Returns false where nobody needs more: recording has ended.
  bool Add(std::vector<KvEvent> events, absl::Time now);
  // The number of the last batch, or the one behind which the first will come.
  uint64_t last_number() const;

 private:
  absl::StatusOr<std::unique_ptr<Watch>> AddWatch(std::shared_ptr<SnapshotBox> box,
                                                  uint64_t position)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t first() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return next_ - batches_.size(); }

  mutable absl::Mutex mutex_;
  bool recording_ ABSL_GUARDED_BY(mutex_) = false;
  int num_watches_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<const KvEventBatch>> batches_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;            // of batches_
  bool has_dropped_ ABSL_GUARDED_BY(mutex_) = false;    // a batch, since recording began
  uint64_t next_ ABSL_GUARDED_BY(mutex_);               // number of the next batch
  uint64_t last_in_parts_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last snapshot in parts
  uint64_t next_event_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace continuo::engine
