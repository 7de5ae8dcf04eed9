// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/nccl_group.h"

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::cuda {

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
    failure_.Update(failure);  // only where it is OK
  }
  changed_.notify_all();
}

absl::Status NcclGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclGroup::Pause(absl::Duration period) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoMicroseconds(period));
}

}  // namespace continuo::cuda
