// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/model/executor.h"
#include "services/worker/model/model_runner.h"

namespace continuo {

// InvalidArgument unless `size` is 1, 2, 4 or 8 (exactness rule 1).
absl::Status CheckTensorParallel(int size);

// Several ranks as one Executor: a thread each, all given the same plan. The caller's thread fills
// the masks meanwhile. A rank that fails aborts the collectives of all, so that every rank
// returns; from then on Run fails with that rank's error.
class RankGroup : public Executor {
 public:
  // runners[i] is rank i.
  explicit RankGroup(std::vector<std::unique_ptr<ModelRunner>> runners);
  ~RankGroup() override;

  absl::StatusOr<StepResult> Run(const StepPlan& plan, MaskFiller fill_mask) override;

  std::span<const std::unique_ptr<ModelRunner>> runners() const { return runners_; }

 private:
  void RankLoop(size_t rank);
  // What rank 0 is given as its mask filler: waits for the caller's.
  void CopyMask(std::span<uint32_t> mask);

  const std::vector<std::unique_ptr<ModelRunner>> runners_;
  absl::Mutex mutex_;
  const StepPlan* plan_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // counts plans; a change starts the ranks
  size_t num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool mask_ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  StepResult result_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of the first rank that failed
  // Written by the caller before mask_ready_, read by rank 0 after.
  std::vector<uint32_t> mask_;
  std::vector<std::thread> threads_;
};

}  // namespace continuo
