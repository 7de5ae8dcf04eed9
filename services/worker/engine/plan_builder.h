// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/engine/sequence.h"
#include "services/worker/model/step_plan.h"

namespace continuo {

// Whose a sample of the plan is.
struct PlannedSample {
  Sequence* sequence = nullptr;
  bool scores_prompt = false;  // a prompt log-probability of its request
};

// Writes a StepPlan, sequence by sequence, into arrays that keep their memory from step to step.
// Reads sequences, changes nothing of them but builds their `seen`. Not thread-safe.
class PlanBuilder {
 public:
  explicit PlanBuilder(int block_size) : block_size_(block_size) {}

  void Clear();
  void Copy(BlockId from, BlockId to) { plan_.block_copies.push_back({from, to}); }
  // Before the first Add: the longest block table of the step.
  void SetMaxBlocks(int max_blocks) { plan_.max_blocks = max_blocks; }
  // The next `rows` tokens of `s`, whose blocks have room for them.
  void Add(Sequence& s, int rows);

  const StepPlan& plan() const { return plan_; }
  std::span<const PlannedSample> samples() const { return samples_; }

  // As MaskFiller: stop ids may not be picked before min_tokens.
  void FillMask(std::span<uint32_t> mask, int vocab_size) const;

 private:
  void AddScored(Sequence& s, int32_t row, int position);
  void AddDraw(Sequence& s, int32_t row);

  const int block_size_;
  StepPlan plan_;
  std::vector<PlannedSample> samples_;
};

// How many samples the rows [begin, begin + rows) of `s` ask for.
int NumSamples(const Sequence& s, int begin, int rows);

}  // namespace continuo
