// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/model/run/sampler.h"

namespace continuo::testing {

// The sampling pipeline as the comments of the Sampling message state it, in float64 with the C
// library's functions, sorting everything: slow and obviously right. Knows nothing of NaN.
struct ReferenceDraw {
  int32_t token_id = 0;
  // The distance of the nearest decision (an order of two logits, a filter's edge, the sample) from
  // the opposite one, relative to the compared values. Equal logits are no decision: the lowest id
  // wins in any arithmetic. Where the margin is above the rounding of float32, a correct sampler
  // must sample the same token.
  double margin = 1;
  int num_kept = 0;  // tokens that the filters left
};

ReferenceDraw ReferenceSample(const model::SampleInput& input);

// Natural logarithms of the raw probabilities; [vocab].
std::vector<double> ReferenceLogprobs(std::span<const float> logits);

// The generator, written independently from the paper.
double ReferenceUniform(uint64_t seed, int32_t sequence_index, int32_t position);

}  // namespace continuo::testing
