// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/math/exact_math.h"
#include "services/worker/model/step_plan.h"

namespace continuo::model {

// A row of logits and everything else that its token depends on. The spans are views.
struct SampleInput {
  std::span<const float> logits;  // [vocab], at least one
  SamplingParams params;
  int32_t position = 0;                        // of the sampled token: its row's + 1
  int32_t target = -1;                         // not -1: this token is scored, none is sampled
  std::span<const kernels::LogitBias> biases;  // ids in the vocabulary, ascending and distinct
  std::span<const kernels::SeenToken> seen;    // likewise
  int32_t answered = -1;                       // not -1: occurs once more than `seen` counts
  std::span<const uint32_t> mask;              // if params.masked: bit id % 32 of word id / 32
};

struct SampleOutput {
  int32_t token_id = 0;
  TokenScore score;  // default where params.num_logprobs is -1
};

// Computes natural logarithms of probabilities from the largest logit and the sum of
// e^(logit - max_logit) over the vocabulary.
class LogprobOf {
 public:
  LogprobOf(float max_logit, double sum)
      : max_logit_(static_cast<double>(max_logit)), log_sum_(kernels::ExactLog(sum)) {}
  float operator()(float logit) const {
    if (logit == -std::numeric_limits<float>::infinity()) return logit;
    return static_cast<float>((static_cast<double>(logit) - max_logit_) - log_sum_);
  }

 private:
  double max_logit_, log_sum_;
};

// Working memory of SampleToken, one per thread, so that a steady step allocates nothing.
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

// Samples or scores one token, as kernels/sampling.h defines it. A pure function of `input`, with
// the same bits in every build and on every device.
SampleOutput SampleToken(const SampleInput& input, SamplerScratch& scratch);

}  // namespace continuo::model
