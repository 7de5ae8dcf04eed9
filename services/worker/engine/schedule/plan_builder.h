// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/engine/requests/sequence.h"
#include "services/worker/model/step_plan.h"

namespace continuo::engine {

// Facts about one sample that the plan does not have.
struct PlannedSample {
  Sequence* sequence = nullptr;
  bool scores_prompt = false;   // a prompt log-probability of its request
  bool reads_state = false;     // a state of the prompt of its request
  bool bars_stops = false;      // stop ids must not be sampled yet
  bool is_constrained = false;  // a constraint restricts it; after drafts, it may
  // If the token that is sampled from is a draft: that token and its position. Otherwise -1.
  int32_t draft = -1;
  int position = -1;
  uint32_t epoch = 0;  // of the sequence when this was planned
  // Tells why the constraint leaves no token here, if so; whatever is sampled does not count then.
  absl::Status failure;
};

// Writes a StepPlan, sequence by sequence, into arrays that keep their memory from step to step.
// Does not change sequences, except that it builds their `seen`; FillMask leaves constraints as
// they were. Not thread-safe.
class PlanBuilder {
 public:
  // Reserves memory for `max_tokens` tokens with one sample each. Arrays that need more grow, and
  // keep that memory; but biases and seen tokens, of which one step may have very many, give it
  // back if later steps need few.
  PlanBuilder(int block_size, int max_tokens);

  void Clear();
  void Copy(BlockId from, BlockId to) { plan_.block_copies.push_back({from, to}); }
  // Sets the length of the longest block table of the step; comes before the first Add.
  void SetMaxBlocks(int max_blocks) { plan_.max_blocks = max_blocks; }
  // Adds the next `num_tokens` tokens of `s`, whose blocks have room for them. With `drafts`, these
  // are its last token and then the drafts, with a sample after each.
  void Add(Sequence& s, int num_tokens, std::span<const int32_t> drafts = {});

  const model::StepPlan& plan() const { return plan_; }
  std::span<const PlannedSample> samples() const { return samples_; }

  // A MaskFiller. Stop ids must not be sampled before min_tokens, nor ids that the request bars or
  // does not allow. Where that leaves nothing, ids that it bars may be. A constraint restricts
  // further; where it and the rest leave nothing together, it alone counts.
  void FillMask(std::span<uint32_t> mask, int vocab_size);

 private:
  // Adds the slots of states for the rows of the tokens [begin, end) of `s`.
  void AddStates(const Sequence& s, int begin, int end);
  void AddScored(Sequence& s, int32_t row, int position);
  void AddStateRead(Sequence& s, int32_t row);
  // Adds what a result needs beside its row and target, where no token is sampled.
  void AddUnsampled(PlannedSample sample, const model::SamplingParams& sampling);
  // Adds a sample after the tokens of `s` and `drafts`.
  void AddSample(Sequence& s, int32_t row, std::span<const int32_t> drafts = {});
  // Leaves in `mask` the ids that sample `k` may take but for its constraint.
  void FillUnconstrained(size_t k, int vocab_size, std::span<uint32_t> mask) const;
  // Does the same with the constraint, whose state is that before the sample.
  void FillConstrained(size_t k, int vocab_size, std::span<uint32_t> mask);

  const int block_size_;
  model::StepPlan plan_;
  std::vector<PlannedSample> samples_;
  std::vector<kernels::SeenToken> seen_;  // reused memory
  std::vector<uint32_t> rest_;            // reused memory: a mask
};

// Returns the number of samples that the tokens [begin, begin + num_tokens) of `s` ask for.
int NumSamples(const Sequence& s, int begin, int num_tokens);

}  // namespace continuo::engine
