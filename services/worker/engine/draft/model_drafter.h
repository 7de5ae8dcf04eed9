// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/base/clock.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

// Sizes and limits of the draft model, unless they name the target model.
struct ModelDrafterOptions {
  int num_blocks = 0;  // in the KV cache of the draft model
  int block_size = 16;
  int vocab_size = 0;
  int target_vocab_size = 0;  // drafts are ids of the target model
  int context_length = 0;
  int max_batch_tokens = 0;  // tokens of one step of the draft model
  // Prompts are prefilled in steps that are predicted to take at most this long.
  absl::Duration longest_step = absl::Milliseconds(50);
  // Called once, when the executor fails; there are no more drafts then. May be null.
  std::function<void(const absl::Status&)> on_lost;
};

// Lets a smaller model with the same vocabulary guess, for all sequences of a step together: one
// token of each in every step of the draft model. It samples with the seed, position, temperature,
// penalties and biases of the sequence, so that both models pick the same token if their logits
// agree.
//
// The draft model has its own KV cache, in which a sequence gets a place when it is first asked
// for. The sequence that was not asked for longest makes room for others. The cache of a sequence
// stays valid while the sequence grows; it costs nothing as long as no drafts are asked for.
class ModelDrafter : public Drafter {
 public:
  // `clock` outlives the drafter.
  ModelDrafter(const ModelDrafterOptions& options, std::unique_ptr<model::Executor> executor,
               const Clock* clock);
  ~ModelDrafter() override;

  // Measures a few small steps; comes before the first sequence. Returns the executor's error.
  absl::Status Calibrate();

  bool works_in_batches() const override { return true; }
  void Prepare(std::span<const DraftAsk> asks) override;
  // Returns the drafts of the last Prepare, at most `most` of them.
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override;
  DraftCost Cost(const Sequence& s, int num_sequences) const override;
  void Forget(model::SequenceId id) override;

  // Returns the number of blocks that no sequence holds. For tests.
  int num_free_blocks() const { return static_cast<int>(free_.size()); }

 private:
  // The part of the cache that belongs to one sequence.
  struct Place {
    std::vector<BlockId> blocks;
    std::vector<int32_t> tokens;  // their keys and values are in `blocks`; drafts among them
    int num_confirmed = 0;        // leading tokens that are known to be those of the sequence
    bool readable = true;         // these tokens are all in the vocabulary of the draft model
    std::vector<int32_t> drafts;
    uint64_t turn = 0;  // number of the Prepare that asked for it last
  };
  // The work for one sequence in this Prepare.
  struct Work {
    const Sequence* sequence;
    Place* place;
    int most;        // drafts
    int num_tokens;  // of the sequence, in the first step
    bool drafts;     // the last of these tokens is followed by a sample
  };

  void Confirm(const Sequence& s, Place& place) const;
  bool TakeBlocks(Place& place, int num_tokens);
  int NumMissing(const Sequence& s, const Place& place) const;
  void AddTokens(const Work& work, std::span<const int32_t> tokens, bool samples);
  bool RunStep(const StepLoad& load);
  void Prefill(std::span<const DraftAsk> asks);
  void Decode();

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
