// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace continuo::engine {

using CacheSalt = std::array<uint64_t, 2>;

// The number of one publication of a KV block: it grows with each, and none is used twice.
using BlockName = uint64_t;
inline constexpr BlockName kNoName = 0;

// Blocks of one salt that can be found from one moment on, each the continuation of the one before
// it, or that cannot be found any longer.
struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved };

  Kind kind = Kind::kStored;
  CacheSalt salt = {};
  BlockName parent = kNoName;    // kStored: of the first block
  std::vector<BlockName> names;  // never empty
  std::vector<int32_t> tokens;   // kStored: of the blocks, one after the other

  size_t bytes() const {
    return sizeof(KvEvent) + names.size() * sizeof(names[0]) + tokens.size() * sizeof(tokens[0]);
  }
};

// Events of one step, or a part of them. Batches are numbered one after the other.
struct KvEventBatch {
  uint64_t number = 0;
  absl::Time time;
  uint64_t first_event = 1;  // the number of the first event; they count on from there
  std::vector<KvEvent> events;
  size_t bytes = 0;
};

// The blocks of one salt that can be found once the batch `number` has come, in no order. A block's
// name is above its parent's.
struct KvSnapshot {
  uint64_t number = 0;
  absl::Time time;
  int block_size = 0;
  std::vector<BlockName> names, parents;
  std::vector<int32_t> tokens;  // of the blocks, in the order of `names`
};

}  // namespace continuo::engine
