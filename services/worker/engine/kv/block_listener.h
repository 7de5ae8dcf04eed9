// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "services/worker/engine/types/kv_events.h"

namespace continuo::engine {

// A block that AcquirePrefix can find.
struct PublishedBlock {
  BlockName name = kNoName;
  BlockName parent = kNoName;  // of the block before it; none: the block begins a prefix
  CacheSalt salt = {};
  std::span<const int32_t> tokens;
};

// Hears which blocks of a pool can be found, on the pool's thread and within the pool's own call,
// so it returns at once and does not call the pool.
class BlockListener {
 public:
  virtual ~BlockListener() = default;
  // The block can be found from now on. What it points to is valid during the call.
  virtual void OnPublished(const PublishedBlock& block) = 0;
  // A published block cannot be found any longer.
  virtual void OnForgotten(BlockName name, const CacheSalt& salt) = 0;
};

}  // namespace continuo::engine
