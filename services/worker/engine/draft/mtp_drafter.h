// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/base/clock.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

// Guesses with the model's own module for multi-token prediction (StepPlan::hidden_rows), which
// reads the hidden states of the last step. Its keys and values lie in the blocks of the target
// model, in a layer of their own, so prefixes of the cache, forks and preemption need nothing more.
// After every step it runs over that step's rows, for their keys and values, and samples the first
// draft of those sequences that are asked for; further drafts take a step of the module each.
//
// Some positions lack keys and values, or have those of another next token: the last one of a
// cached prefix, and what a sequence computed in its last step, or as another's equal. Drafts
// behind them are worse, and no answer differs.
class MtpDrafter : public Drafter {
 public:
  // `executor` is that of the engine, and takes steps of the module. It and `clock` outlive the
  // drafter.
  MtpDrafter(int block_size, int vocab_size, model::Executor* executor, const Clock* clock)
      : block_size_(block_size), vocab_size_(vocab_size), executor_(*executor), clock_(*clock) {}

  bool works_in_batches() const override { return true; }
  bool reads_every_step() const override { return true; }
  void OnCommitted(std::span<const ComputedRows> rows) override;
  void Prepare(std::span<const DraftAsk> asks) override;
  // Returns the drafts of the last Prepare, at most `most` of them.
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override;
  DraftCost Cost(const Sequence& s, int num_sequences) const override;
  absl::Status status() const override { return status_; }
  void Forget(model::SequenceId id) override;

 private:
  // Rows of the last step that the module has not seen yet.
  struct Fresh {
    ComputedRows rows;
    model::SequenceId id = 0;
    uint64_t admitted_in = 0;  // the blocks are those of then
  };
  struct Work {
    const Sequence* sequence = nullptr;
    int most = 0;  // drafts
    std::vector<int32_t>* drafts = nullptr;
    int32_t row = 0;  // of the module's last step, whose hidden state the next draft is made from
  };

  // Returns whether the rows' blocks are still those of the sequence.
  static bool IsThere(const Fresh& fresh);
  bool RunStep(const StepLoad& load);
  void ReadStep(std::span<const DraftAsk> asks);
  void DraftFurther();

  const int block_size_, vocab_size_;
  model::Executor& executor_;
  const Clock& clock_;
  StepCost cost_;
  absl::Status status_;
  std::vector<Fresh> fresh_;
  absl::flat_hash_map<model::SequenceId, std::vector<int32_t>> drafts_;  // of the last Prepare
  // Reused memory.
  absl::flat_hash_map<model::SequenceId, int> most_;
  std::vector<Work> works_;
  std::vector<kernels::SeenToken> seen_;
  model::StepPlan plan_;
  model::StepResult result_;
};

}  // namespace continuo::engine
