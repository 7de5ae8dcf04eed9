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
  // For the ranks to join, then to come to the first collective, and for a stream to stand still
  // behind collectives. First ones load code; steps that serve are watched more closely elsewhere.
  absl::Duration hang_limit = absl::Seconds(60);
  // From a failure until every rank's stream and communicator are at rest; `on_stuck` after it.
  absl::Duration end_limit = absl::Seconds(10);
  // AllReduceSum adds in the order of Communicator's contract (a gather and a kernel, more bytes)
  // and not in NCCL's, which depends on sizes and topology.
  bool tree_order = false;
  size_t scratch_bytes = size_t{32} << 20;  // of each rank; larger collectives take several turns
  // Called by a thread of the rank where a failure cannot be ended: the device or NCCL itself
  // hangs, and so do threads that wait for them. It ends the process; where it returns, they are
  // left.
  std::function<void(const absl::Status&)> on_stuck;
  const Clock* clock = nullptr;  // outlives the communicators
};

// What the ranks of one replica share: NCCL's id, and the first failure, which is everybody's.
// Thread-safe.
class NcclGroup {
 public:
  static absl::StatusOr<std::shared_ptr<NcclGroup>> Make(int size, NcclOptions options);

  int size() const { return size_; }
  const NcclOptions& options() const { return options_; }
  const ncclUniqueId& id() const { return id_; }
  absl::Duration Elapsed() const { return options_.clock->Elapsed(); }

  // The first failure stays, later ones are its consequences.
  void Fail(const absl::Status& failure);
  absl::Status failure() const;
  // Returns when every rank's thread has called it as often as this one, with the group's failure,
  // or DeadlineExceeded after `limit`. Without one: a rank that does not come has failed, or its
  // step hangs, which others watch.
  absl::Status Meet(absl::Duration limit = absl::InfiniteDuration());
  // Returns after `period`, or when the group fails or Wake is called meanwhile.
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
  std::atomic<int64_t> num_met_{0};  // calls of Meet, of all ranks together
};

}  // namespace continuo::kernels::cuda
