// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/collectives/nccl_group.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// A waiting rank polls this often before it pauses: the others come soon, unless one of them loads
// or allocates.
constexpr int kSpinningPolls = 2000;
constexpr absl::Duration kPollPeriod = absl::Microseconds(100);

}  // namespace

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Make(int size, NcclOptions options) {
  CONTINUO_CHECK(size == 1 || size == 2 || size == 4 || size == 8);
  CONTINUO_CHECK(options.clock != nullptr && options.on_stuck != nullptr);
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
    return absl::InternalError(absl::StrCat("ncclGetUniqueId: ", ncclGetErrorString(result), " (",
                                            ncclGetLastError(nullptr), ")"));
  }
  return std::shared_ptr<NcclGroup>(new NcclGroup(size, std::move(options), id));
}

void NcclGroup::Fail(const absl::Status& failure) {
  CONTINUO_CHECK(!failure.ok());
  {
    const std::lock_guard lock(mutex_);
    failure_.Update(failure);  // keeps the first one
    has_failed_ = true;
  }
  changed_.notify_all();
}

absl::Status NcclGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

absl::Status NcclGroup::Barrier(absl::Duration limit) {
  const int64_t all = (num_arrived_++ / size_ + 1) * size_;
  const absl::Duration start = Elapsed();
  for (int poll = 0;; ++poll) {
    const absl::Duration waited = poll < kSpinningPolls ? absl::ZeroDuration() : Elapsed() - start;
    if (num_arrived_ >= all) return absl::OkStatus();
    if (has_failed_) return failure();
    if (poll < kSpinningPolls) {
      std::this_thread::yield();
      continue;
    }
    if (waited > limit) {
      return absl::DeadlineExceededError(
          absl::StrCat("the ", size_, " ranks have not met within ", absl::FormatDuration(limit)));
    }
    Pause(kPollPeriod);
  }
}

void NcclGroup::Pause(absl::Duration period) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoMicroseconds(period));
}

}  // namespace continuo::kernels::cuda
