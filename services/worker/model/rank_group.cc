// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/rank_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "services/base/check.h"

namespace continuo {

absl::Status CheckTensorParallel(int size) {
  if (size >= 1 && size <= kNumPieces && kNumPieces % size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor_parallel is ", size, "; it must be 1, 2, 4 or 8"));
}

RankGroup::RankGroup(std::vector<std::unique_ptr<ModelRunner>> runners)
    : runners_(std::move(runners)) {
  for (size_t rank = 0; rank < runners_.size(); ++rank) {
    CONTINUO_CHECK(runners_[rank]->communicator().rank() == static_cast<int>(rank));
    threads_.emplace_back([this, rank] { RankLoop(rank); });
  }
}

RankGroup::~RankGroup() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<StepResult> RankGroup::Run(const StepPlan& plan, MaskFiller fill_mask) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    plan_ = &plan;
    mask_ready_ = false;
    num_running_ = runners_.size();
    ++step_;
  }
  changed_.notify_all();
  const int64_t num_masked =
      std::count_if(plan.sampling.begin(), plan.sampling.end(),
                    [](const SamplingParams& params) { return params.masked; });
  if (num_masked > 0) {
    mask_.assign(
        static_cast<size_t>(num_masked) * static_cast<size_t>(MaskWords(runners_[0]->vocab_size())),
        ~uint32_t{0});
    fill_mask(std::span<uint32_t>(mask_));
  }

  std::unique_lock lock(mutex_);
  mask_ready_ = true;
  changed_.notify_all();
  if (WorksApart()) {
    lock.unlock();
    fill_mask({});
    lock.lock();
  }
  changed_.wait(lock, [this] { return num_running_ == 0; });
  if (!failure_.ok()) return failure_;
  return std::move(result_);
}

void RankGroup::CopyMask(std::span<uint32_t> mask) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return mask_ready_; });
  CONTINUO_CHECK(mask.size() == mask_.size());
  std::copy(mask_.begin(), mask_.end(), mask.begin());
}

void RankGroup::RankLoop(size_t rank) {
  runners_[rank]->BindThread();
  int64_t done = 0;
  while (true) {
    const StepPlan* plan = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this, done] { return stopping_ || step_ != done; });
      if (step_ == done) return;  // stopping
      done = step_;
      plan = plan_;
    }
    absl::StatusOr<StepResult> result =
        runners_[rank]->Run(*plan, [this](std::span<uint32_t> mask) {
          if (!mask.empty()) CopyMask(mask);
        });
    // Before this rank counts as finished: the others may wait for it in a collective.
    if (!result.ok()) runners_[rank]->communicator().Abort();
    const std::lock_guard lock(mutex_);
    if (result.ok()) {
      if (rank == 0) result_ = *std::move(result);
    } else if (failure_.ok()) {
      failure_ = absl::Status(result.status().code(),
                              absl::StrCat("rank ", rank, ": ", result.status().message()));
    }
    if (--num_running_ == 0) changed_.notify_all();
  }
}

}  // namespace continuo
