// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/base/clock.h"
#include "services/worker/engine/block_pool.h"
#include "services/worker/engine/drafter.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/step_cost.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

struct ModelDrafterOptions {
  int num_blocks = 0;  // of the draft model's own KV cache
  int block_size = 16;
  int vocab_size = 0;         // of the draft model
  int target_vocab_size = 0;  // drafts are within it
  int context_length = 0;     // of the draft model
  int max_rows = 0;           // of one step of it
  // What sequences lack in its cache is read in pieces that are predicted to take this long.
  absl::Duration longest_step = absl::Milliseconds(50);
  // Called once, where the executor fails; there are no more drafts then. May be null.
  std::function<void(const absl::Status&)> on_lost;
};

// A smaller model of the same vocabulary guesses: all sequences of a step together, a token of each
// in every step of the draft model. It draws with the sequence's own seed, position, temperature,
// penalties and biases, so that where both models think alike they pick the same token.
//
// It has a KV cache of its own, in which a sequence gets a place when it is first asked for; the
// one longest out makes room for others. What is read there of a sequence stays as it grows; it
// costs nothing while no drafts are asked for.
class ModelDrafter : public Drafter {
 public:
  // `clock` outlives the drafter.
  ModelDrafter(const ModelDrafterOptions& options, std::unique_ptr<model::Executor> executor,
               const Clock* clock);
  ~ModelDrafter() override;

  // Measures a few small steps, before the first sequence. The error is the executor's.
  absl::Status Calibrate();

  bool works_in_batches() const override { return true; }
  void Prepare(std::span<const DraftAsk> asks) override;
  // What Prepare found, or its first `most`.
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override;
  DraftCost Cost(const Sequence& s, int num_sequences) const override;
  void Forget(model::SequenceId id) override;

  int num_free_blocks() const { return static_cast<int>(free_.size()); }

 private:
  // Of one sequence.
  struct Place {
    std::vector<BlockId> blocks;
    std::vector<int32_t> tokens;  // whose keys and values are in `blocks`, drafts among them
    int num_settled = 0;          // leading tokens known to be the sequence's
    bool readable = true;         // all of these are in the draft model's vocabulary
    std::vector<int32_t> drafts;
    uint64_t turn = 0;  // when it was last asked for
  };
  // What one sequence does in this Prepare.
  struct Work {
    const Sequence* sequence;
    Place* place;
    int most, rows;  // rows: of its tokens, in the first step
    bool drafts;     // the last of them draws
  };

  void Settle(const Sequence& s, Place& place) const;
  bool TakeBlocks(Place& place, int tokens);
  int RowsFor(const Sequence& s, const Place& place) const;
  void AddRows(const Work& work, std::span<const int32_t> tokens, bool draws);
  bool RunStep(const StepLoad& load);

  const ModelDrafterOptions options_;
  const std::unique_ptr<model::Executor> executor_;
  const Clock& clock_;
  StepCost cost_;
  bool lost_ = false;  // the executor has failed; there are no more drafts
  std::vector<BlockId> free_;
  absl::flat_hash_map<model::SequenceId, Place> places_;
  uint64_t turn_ = 0;
  // Reused memory.
  std::vector<Work> works_;
  std::vector<int32_t> tokens_;
  std::vector<kernels::SeenToken> seen_;
  model::StepPlan plan_;
  model::StepResult result_;
};

}  // namespace continuo::engine
