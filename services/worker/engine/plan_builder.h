// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/engine/sequence.h"
#include "services/worker/model/step_plan.h"

namespace continuo::engine {

// Whose a sample of the plan is.
struct PlannedSample {
  Sequence* sequence = nullptr;
  bool scores_prompt = false;  // a prompt log-probability of its request
  // The row's token where that is a draft, and its position; else -1.
  int32_t draft = -1;
  int position = -1;
  uint32_t generation = 0;  // of the sequence when this was planned
};

// Writes a StepPlan, sequence by sequence, into arrays that keep their memory from step to step.
// Reads sequences, changes nothing of them but builds their `seen`. Not thread-safe.
class PlanBuilder {
 public:
  // With room for `max_rows` rows, a sample on each. What is beyond grows, and stays; but biases
  // and seen tokens, which one step may have many of, are given back where the steps after it need
  // few.
  PlanBuilder(int block_size, int max_rows);

  void Clear();
  void Copy(BlockId from, BlockId to) { plan_.block_copies.push_back({from, to}); }
  // Before the first Add: the longest block table of the step.
  void SetMaxBlocks(int max_blocks) { plan_.max_blocks = max_blocks; }
  // The next `rows` tokens of `s`, whose blocks have room for them. With `drafts` those are its
  // last token, what may follow it, and a draw after each.
  void Add(Sequence& s, int rows, std::span<const int32_t> drafts = {});

  const model::StepPlan& plan() const { return plan_; }
  std::span<const PlannedSample> samples() const { return samples_; }

  // As MaskFiller: stop ids may not be picked before min_tokens.
  void FillMask(std::span<uint32_t> mask, int vocab_size) const;

 private:
  void AddScored(Sequence& s, int32_t row, int position);
  // After the tokens of `s` and `drafts`.
  void AddDraw(Sequence& s, int32_t row, std::span<const int32_t> drafts = {});

  const int block_size_;
  model::StepPlan plan_;
  std::vector<PlannedSample> samples_;
  std::vector<kernels::SeenToken> seen_;  // reused memory
};

// How many samples the rows [begin, begin + rows) of `s` ask for.
int NumSamples(const Sequence& s, int begin, int rows);

}  // namespace continuo::engine
