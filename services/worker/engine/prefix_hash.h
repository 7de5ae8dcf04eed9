// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace continuo::engine {

// Names a prefix: a block's tokens and everything before them, within one salt.
struct PrefixDigest {
  uint64_t low = 0, high = 0;

  friend bool operator==(const PrefixDigest&, const PrefixDigest&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PrefixDigest& digest) {
    return H::combine(std::move(h), digest.low, digest.high);
  }
};

// Chained, keyed 128-bit hash (XXH3 with a secret made from the key): without the key nobody can
// prepare prompts whose digests collide. Immutable.
class PrefixHash {
 public:
  // With fewer than 128 `digest_bits` digests collide; 0 makes all of them equal. For tests.
  explicit PrefixHash(const std::array<uint64_t, 2>& key, int digest_bits = 128);

  // Where the chains of one salt begin.
  PrefixDigest Root(const std::array<uint64_t, 2>& salt) const;
  // Of `tokens` after what `parent` names.
  PrefixDigest Extend(const PrefixDigest& parent, std::span<const int32_t> tokens) const;

 private:
  std::array<unsigned char, 192> secret_;
  PrefixDigest mask_;
};

}  // namespace continuo::engine
