// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
#include "services/worker/model/run/model_runner.h"

namespace continuo::model {

// InvalidArgument unless `size` is 1, 2, 4 or 8 (exactness: fixed-k-order).
absl::Status CheckTensorParallel(int size);

// Runs several ranks as one Executor, on a thread each, with the same plans. The caller's thread
// fills the masks meanwhile. A rank that fails aborts the collectives of all, so that every rank
// returns; from then on Start and Finish fail with that rank's error.
class RankGroup : public Executor {
 public:
  // runners[i] is rank i.
  explicit RankGroup(std::vector<std::unique_ptr<ModelRunner>> runners);
  ~RankGroup() override;

  absl::Status Start(const StepPlan& plan, MaskFiller fill_mask) override;
  absl::StatusOr<StepResult> Finish() override;
  bool IsAsynchronous() const override { return runners_[0]->IsAsynchronous(); }
  double TakeBusySeconds() override { return runners_[0]->TakeBusySeconds(); }
  void Recycle(StepResult result) override { runners_[0]->Recycle(std::move(result)); }

  std::span<const std::unique_ptr<ModelRunner>> runners() const { return runners_; }

 private:
  // A command that every rank runs: start a plan, or finish the one that was started first.
  struct Command {
    const StepPlan* plan = nullptr;  // null: finish
    size_t num_left = 0;             // ranks that have not run it yet
    bool mask_ready = false;
    std::vector<uint32_t> mask;  // the caller writes it before mask_ready, ranks read it after
  };

  Command& CommandOf(int64_t number) {
    return commands_[static_cast<size_t>(number) % commands_.size()];
  }
  // Posts a command, with the mutex held, and returns its number.
  int64_t Post(const StepPlan* plan);
  void RankLoop(size_t rank);
  void NoteFailure(size_t rank, const absl::Status& status);
  absl::Status RunCommand(size_t rank, Command& command);
  // The mask filler of the ranks: waits for the caller's mask and copies it.
  void CopyMask(const Command& command, std::span<uint32_t> mask);

  const std::vector<std::unique_ptr<ModelRunner>> runners_;
  // Guards the members below. It is the standard library's, since ThreadSanitizer reports the
  // memory that Abseil maps for a thread's first wait in a Mutex as a race.
  std::mutex mutex_;
  std::condition_variable changed_;  // notified after every change below
  // Indexed by number. Every rank has run the first num_done_; some ranks may have run later ones.
  std::array<Command, 4> commands_;
  int64_t num_posted_ = 0, num_done_ = 0;
  bool stopping_ = false;
  StepResult result_;
  absl::Status failure_;  // of the first rank that failed
  std::vector<std::thread> threads_;
};

}  // namespace continuo::model
