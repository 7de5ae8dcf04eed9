// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/prefix_hash.h"

#include <algorithm>

#include "services/base/check.h"

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace continuo::engine {
namespace {

// Returns a word with the lowest `bits` set, all of them from 64 on.
uint64_t LowBits(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

}  // namespace

PrefixHash::PrefixHash(const std::array<uint64_t, 2>& key, int digest_bits)
    : mask_{.low = LowBits(digest_bits), .high = LowBits(std::max(digest_bits - 64, 0))} {
  CONTINUO_CHECK(digest_bits >= 0 && digest_bits <= 128);
  CONTINUO_CHECK(XXH3_generateSecret(secret_.data(), secret_.size(), key.data(), sizeof(key)) ==
                 XXH_OK);
}

PrefixDigest PrefixHash::Root(const std::array<uint64_t, 2>& salt) const {
  const XXH128_hash_t h =
      XXH3_128bits_withSecret(salt.data(), sizeof(salt), secret_.data(), secret_.size());
  return {h.low64 & mask_.low, h.high64 & mask_.high};
}

PrefixDigest PrefixHash::Extend(const PrefixDigest& parent, std::span<const int32_t> tokens) const {
  // The digest of the tokens is mixed with that of the parent, which needs no joined buffer.
  const XXH128_hash_t h =
      XXH3_128bits_withSecret(tokens.data(), tokens.size_bytes(), secret_.data(), secret_.size());
  const std::array<uint64_t, 4> link = {parent.low, parent.high, h.low64, h.high64};
  const XXH128_hash_t chained =
      XXH3_128bits_withSecret(link.data(), sizeof(link), secret_.data(), secret_.size());
  return {chained.low64 & mask_.low, chained.high64 & mask_.high};
}

}  // namespace continuo::engine
