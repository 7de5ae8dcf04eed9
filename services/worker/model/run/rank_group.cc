// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/rank_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/math/arithmetic.h"
#include "services/base/check.h"

namespace continuo::model {

absl::Status CheckTensorParallel(int size) {
  if (size >= 1 && size <= kernels::kNumSplits && kernels::kNumSplits % size == 0)
    return absl::OkStatus();
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
  // The graphs of all ranks, before the first ends: a graph of one keeps all collectives alive.
  for (const auto& runner : runners_) (void)runner->DropGraphs();
}

int64_t RankGroup::Post(const StepPlan* plan) {
  CONTINUO_CHECK(num_posted_ - num_done_ < static_cast<int64_t>(commands_.size()));
  Command& command = CommandOf(num_posted_);
  command.plan = plan;
  command.num_left = runners_.size();
  command.mask_ready = false;
  return num_posted_++;
}

absl::Status RankGroup::Start(const StepPlan& plan, MaskFiller fill_mask) {
  const auto num_masked = static_cast<size_t>(
      std::count_if(plan.sampling.begin(), plan.sampling.end(),
                    [](const SamplingParams& params) { return params.masked; }));
  Command* command = nullptr;
  {
    std::unique_lock lock(mutex_);
    if (!failure_.ok()) {
      changed_.wait(lock, [this] { return num_done_ == num_posted_; });  // nobody reads a plan now
      return failure_;
    }
    command = &CommandOf(Post(&plan));
  }
  changed_.notify_all();
  if (num_masked == 0) return absl::OkStatus();
  // The caller posts the commands, so no other one takes its place meanwhile.
  const auto words = static_cast<size_t>(MaskWords(runners_[0]->vocab_size()));
  command->mask.assign(num_masked * words, ~uint32_t{0});
  fill_mask(std::span<uint32_t>(command->mask));
  const std::lock_guard lock(mutex_);
  command->mask_ready = true;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<StepResult> RankGroup::Finish() {
  std::unique_lock lock(mutex_);
  // This waits after a failure, too: then no rank reads a plan any more.
  const int64_t number = Post(nullptr);
  changed_.notify_all();
  changed_.wait(lock, [&] { return num_done_ > number; });
  if (!failure_.ok()) return failure_;
  return std::move(result_);
}

void RankGroup::CopyMask(const Command& command, std::span<uint32_t> mask) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return command.mask_ready; });
  CONTINUO_CHECK(mask.size() == command.mask.size());
  std::copy(command.mask.begin(), command.mask.end(), mask.begin());
}

absl::Status RankGroup::RunCommand(size_t rank, Command& command) {
  ModelRunner& runner = *runners_[rank];
  if (command.plan != nullptr) {
    return runner.Start(*command.plan, [&](std::span<uint32_t> mask) { CopyMask(command, mask); });
  }
  absl::StatusOr<StepResult> result = runner.Finish();
  if (!result.ok()) return result.status();
  if (rank == 0) {
    const std::lock_guard lock(mutex_);
    result_ = *std::move(result);
  }
  return absl::OkStatus();
}

void RankGroup::NoteFailure(size_t rank, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
}

void RankGroup::RankLoop(size_t rank) {
  runners_[rank]->BindThread();
  bool has_failed = false;
  for (int64_t next = 0;; ++next) {
    Command* command = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return next < num_posted_ || stopping_; });
      if (next == num_posted_) return;  // stopping
      command = &CommandOf(next);
    }
    const absl::Status status = has_failed ? absl::OkStatus() : RunCommand(rank, *command);
    if (!status.ok()) {
      has_failed = true;
      NoteFailure(rank, status);
      // The others may wait for this rank in a collective, so it aborts before it counts as done;
      // and after its failure is noted, since theirs will be consequences.
      runners_[rank]->communicator().Abort();
    }
    const std::lock_guard lock(mutex_);
    --command->num_left;
    while (num_done_ < num_posted_ && CommandOf(num_done_).num_left == 0) ++num_done_;
    changed_.notify_all();
  }
}

}  // namespace continuo::model
