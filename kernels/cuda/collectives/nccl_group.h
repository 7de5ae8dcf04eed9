// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nccl.h"
#include "services/base/clock.h"

namespace continuo::kernels::cuda {

struct NcclOptions {
  // Time limit for the ranks to join, then to come to the first collective, and for a stream to
  // stand still behind collectives. First collectives load code. Steps in service are watched more
  // closely elsewhere.
  absl::Duration hang_limit = absl::Seconds(60);
  // Time limit from a failure until every rank's stream and communicator are at rest; then on_stuck
  // is called.
  absl::Duration end_limit = absl::Seconds(10);
  // AllReduceSum adds in the order of Communicator's contract, by a gather and a kernel, which
  // takes more bytes. NCCL's own order depends on sizes and topology.
  bool tree_order = false;
  size_t scratch_bytes = size_t{32} << 20;  // for each rank; larger collectives take several rounds
  // A thread of the rank calls it where a failure cannot be ended, because the device or NCCL
  // itself hangs, and with it threads that wait for them. It ends the process. If it returns, these
  // threads are left.
  std::function<void(const absl::Status&)> on_stuck;
  const Clock* clock = nullptr;  // outlives the communicators
};

// The state that the ranks of one replica share: NCCL's id and the first failure, which is every
// rank's. Thread-safe.
class NcclGroup {
 public:
  static absl::StatusOr<std::shared_ptr<NcclGroup>> Make(int size, NcclOptions options);

  int size() const { return size_; }
  const NcclOptions& options() const { return options_; }
  const ncclUniqueId& id() const { return id_; }
  absl::Duration Elapsed() const { return options_.clock->Elapsed(); }

  // Keeps the first failure; later ones are its consequences.
  void Fail(const absl::Status& failure);
  absl::Status failure() const;
  // Returns when every rank's thread has called it as often as this one, with the group's failure,
  // or with DeadlineExceeded after `limit`. No limit is needed in service: a rank that does not
  // come has failed, or its step hangs, which the worker watches.
  absl::Status Barrier(absl::Duration limit = absl::InfiniteDuration());
  // Returns after `period`, or earlier when the group fails or Wake is called.
  void Pause(absl::Duration period);
  void Wake() { changed_.notify_all(); }

 private:
  NcclGroup(int size, NcclOptions options, const ncclUniqueId& id)
      : size_(size), options_(std::move(options)), id_(id) {}

  const int size_;
  const NcclOptions options_;
  const ncclUniqueId id_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;  // guarded by mutex_
  std::atomic<bool> has_failed_{false};
  std::atomic<int64_t> num_arrived_{0};  // calls of Barrier by all ranks
};

}  // namespace continuo::kernels::cuda
