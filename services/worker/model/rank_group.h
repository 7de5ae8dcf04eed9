// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  bool WorksApart() const override { return runners_[0]->WorksApart(); }
  void Recycle(StepResult result) override { runners_[0]->Recycle(std::move(result)); }

  std::span<const std::unique_ptr<ModelRunner>> runners() const { return runners_; }

 private:
  void RankLoop(size_t rank);
  // What rank 0 is given as its mask filler: waits for the caller's.
  void CopyMask(std::span<uint32_t> mask);

  const std::vector<std::unique_ptr<ModelRunner>> runners_;
  // Guards what follows up to mask_. The standard library's, since ThreadSanitizer takes the memory
  // that Abseil maps for a thread that first waits in a Mutex for a race.
  std::mutex mutex_;
  std::condition_variable changed_;  // notified after every change below
  const StepPlan* plan_ = nullptr;
  int64_t step_ = 0;  // counts plans; a change starts the ranks
  size_t num_running_ = 0;
  bool mask_ready_ = false;
  bool stopping_ = false;
  StepResult result_;
  absl::Status failure_;  // of the first rank that failed
  // Written by the caller before mask_ready_, read by rank 0 after.
  std::vector<uint32_t> mask_;
  std::vector<std::thread> threads_;
};

}  // namespace continuo
