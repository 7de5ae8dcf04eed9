// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "services/worker/embedding/sentence_modules.h"

namespace continuo::embedding {

// activation(W x + b), of one vector on the host. Sums are of doubles in one order
// (exactness: no-borrowed-bits).
struct DenseLayer {
  int in = 0, out = 0;
  Activation activation = Activation::kIdentity;
  std::vector<float> weight;  // [out, in]
  std::vector<float> bias;    // [out]

  // x has `in` values, the result `out`.
  std::vector<float> Apply(std::span<const float> x) const;
  // Sizes, activation and the digests of the weights, for a fingerprint.
  std::string Summary() const;
};

// The digest of values, as hexadecimal digits.
std::string DigestOfValues(std::span<const float> values);

}  // namespace continuo::embedding
