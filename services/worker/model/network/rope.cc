// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/rope.h"

#include "kernels/exact_math.h"

namespace continuo::model {
namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

double ScaleLongWaves(const RopeConfig& rope, double frequency) {
  // The number of turns of the wave in the context that the model was first trained with.
  const double turns = static_cast<double>(rope.original_context) * frequency / kTwoPi;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double keep =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - keep) * frequency / rope.factor + keep * frequency;
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope, int rotary_dim, int64_t context) {
  const std::vector<double>& divisors =
      context > rope.original_context ? rope.long_factors : rope.short_factors;
  std::vector<float> frequencies;
  for (int i = 0; i < rotary_dim / 2; ++i) {
    double frequency = kernels::ExactPow(rope.theta, -2.0 * i / rotary_dim);
    switch (rope.type) {
      case RopeConfig::Type::kDefault:
        break;
      case RopeConfig::Type::kLinear:
        frequency /= rope.factor;
        break;
      case RopeConfig::Type::kLlama3:
        frequency = ScaleLongWaves(rope, frequency);
        break;
      case RopeConfig::Type::kLong:
        frequency /= divisors[static_cast<size_t>(i)];
        break;
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace continuo::model
