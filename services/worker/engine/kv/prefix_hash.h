// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace continuo::engine {

// Identifies a prefix: the tokens of a block and everything before them, within one salt.
struct PrefixDigest {
  uint64_t low = 0, high = 0;

  friend bool operator==(const PrefixDigest&, const PrefixDigest&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PrefixDigest& digest) {
    return H::combine(std::move(h), digest.low, digest.high);
  }
};

// Chained, keyed 128-bit hash (XXH3 with a secret derived from the key). Without the key nobody can
// prepare prompts whose digests collide. Immutable, so thread-safe.
class PrefixHash {
 public:
  // Tests may use fewer than 128 `digest_bits` to make digests collide; 0 makes all of them equal.
  explicit PrefixHash(const std::array<uint64_t, 2>& key, int digest_bits = 128);

  // Returns the digest with which the chains of one salt begin.
  PrefixDigest Root(const std::array<uint64_t, 2>& salt) const;
  // Returns the digest of `tokens` after the prefix `parent`.
  PrefixDigest Extend(const PrefixDigest& parent, std::span<const int32_t> tokens) const;

 private:
  std::array<unsigned char, 192> secret_;
  PrefixDigest mask_;
};

}  // namespace continuo::engine
