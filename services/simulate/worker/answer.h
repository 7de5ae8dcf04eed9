// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simulated model: each token of an answer is a hash of the request's seed and of its place, so
// that a token which is lost, doubled or out of place shows at once. All functions are thread-safe.

#include <cstdint>

#include "services/base/random.h"

namespace continuo::simulate {

// Its name, and its fingerprint.
inline constexpr char kModelName[] = "simulated";
inline constexpr int kVocabularySize = 32768;
// Ends an answer; no other place has it.
inline constexpr int32_t kEndToken = 0;
inline constexpr int kMaxAnswerTokens = (1 << 24) - 1;

// Returns a seed of answers that are `length` tokens long, at most kMaxAnswerTokens.
inline uint64_t SeedOf(uint64_t random, int length) {
  return random << 24 | static_cast<uint64_t>(length);
}
inline int LengthOf(uint64_t seed) { return static_cast<int>(seed & kMaxAnswerTokens); }

// Returns token `place` of an answer, counted from 0.
inline int32_t AnswerToken(uint64_t seed, int sequence, int place) {
  if (place + 1 >= LengthOf(seed)) return kEndToken;
  const uint64_t key = SplitMix64::At(seed, static_cast<uint64_t>(sequence));
  return 1 + static_cast<int32_t>(SplitMix64::At(key, static_cast<uint64_t>(place)) %
                                  (kVocabularySize - 1));
}

}  // namespace continuo::simulate
