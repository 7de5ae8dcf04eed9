// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/math/exact_math.h"

namespace continuo::model {
namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

double ScaleLongWaves(const RopeConfig& rope, double frequency) {
  // The number of turns of the wave in the context that the model was first trained with.
  const double turns = static_cast<double>(rope.original_context) * frequency / kTwoPi;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns >= rope.high_freq_factor) return frequency;
  const double keep =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - keep) * frequency / rope.factor + keep * frequency;
}

// Returns which part of each frequency stays as it is under YaRN, from 1 at short waves to 0 at
// long ones.
std::vector<double> YarnParts(const RopeConfig& rope, int rotary_dim) {
  // The index, perhaps a fraction, of the wave that turns so often in the original context.
  const auto index_of = [&](double turns) {
    const double wave = static_cast<double>(rope.original_context) / (turns * kTwoPi);
    return rotary_dim * kernels::ExactLog(wave) / (2 * kernels::ExactLog(rope.theta));
  };
  double low = index_of(rope.beta_fast), high = index_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<double> parts;
  for (int i = 0; i < rotary_dim / 2; ++i) {
    parts.push_back(1 - std::clamp((i - low) / (high - low), 0.0, 1.0));
  }
  return parts;
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope, int rotary_dim, int64_t context) {
  const std::vector<double>& divisors =
      context > rope.original_context ? rope.long_factors : rope.short_factors;
  const std::vector<double> yarn =
      rope.type == RopeConfig::Type::kYarn ? YarnParts(rope, rotary_dim) : std::vector<double>();
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
      case RopeConfig::Type::kYarn: {
        const double part = yarn[static_cast<size_t>(i)];
        frequency = frequency / rope.factor * (1 - part) + frequency * part;
        break;
      }
      case RopeConfig::Type::kProportional:
        frequency = i < static_cast<int>(rope.part * rotary_dim / 2) ? frequency / rope.factor : 0;
        break;
      case RopeConfig::Type::kNone:
        frequency = 0;
        break;
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace continuo::model
