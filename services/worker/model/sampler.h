// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/model/step_plan.h"

namespace continuo {

// One row of logits and everything else that its token depends on. Views.
struct SampleInput {
  std::span<const float> logits;  // [vocab], at least one
  SamplingParams params;
  int32_t position = 0;               // of the token that is drawn: its row's + 1
  int32_t target = -1;                // not -1: this token is scored, nothing is drawn
  std::span<const LogitBias> biases;  // ids in the vocabulary, ascending and distinct
  std::span<const SeenToken> seen;    // likewise
  std::span<const uint32_t> mask;     // of params.masked: bit id % 32 of word id / 32
};

struct SampleOutput {
  int32_t token_id = 0;
  TokenScore score;  // default where params.num_logprobs is -1
};

// Working memory of SampleToken, so that a steady step allocates nothing. One per thread.
struct SamplerScratch {
  struct Candidate {
    float value;  // a logit or a weight
    int32_t token_id;
  };
  std::vector<float> raw;       // logits without NaN and +infinity
  std::vector<float> adjusted;  // logits after mask, bias and penalties
  std::vector<float> weights;   // e^((logit - max) / temperature)
  std::vector<Candidate> candidates;
};

// Draws or scores one token. A pure function of `input`, with the same bits in every build: own
// exponentials, sums in double in a written order, ties to the lowest id everywhere.
//
//   mask, bias, penalties (repetition, presence, frequency), then with temperature 0 the largest
//   logit, else weights e^((logit - max) / temperature), of which min_p, top_k and top_p each keep
//   the heaviest; drawn is the first kept id, ascending, at which the running sum of weights
//   exceeds UniformDraw() times their total.
//
// A NaN among the logits counts as -infinity, +infinity as the largest finite number. Where
// everything is -infinity the lowest id that the mask allows is drawn, 0 if it allows none, and
// logprobs are -infinity.
SampleOutput SampleToken(const SampleInput& input, SamplerScratch& scratch);

}  // namespace continuo
