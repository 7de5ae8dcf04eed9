// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace continuo {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one word of state, and the same numbers on every
// machine. Not for secrets. Not thread-safe.
class SplitMix64 {
 public:
  constexpr explicit SplitMix64(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() { return Mix(state_ += kStep); }

  // Uniform in [0, 1), a multiple of 2^-53.
  constexpr double NextUniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  // The number that Next() of a generator with this seed gives after `index` others.
  static constexpr uint64_t At(uint64_t seed, uint64_t index) {
    return Mix(seed + kStep * (index + 1));
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

}  // namespace continuo
