// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/worker/engine/kv/block_listener.h"
#include "services/worker/engine/kv/prefix_hash.h"

namespace continuo::engine {

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;

// Returns the number of blocks that hold `tokens` tokens.
inline int BlocksFor(int64_t tokens, int block_size) {
  return static_cast<int>((tokens + block_size - 1) / block_size);
}

// Views a prompt and the answer after it as one list of tokens.
struct TokenRange {
  std::span<const int32_t> head, tail;

  int size() const { return static_cast<int>(head.size() + tail.size()); }
  int32_t operator[](int i) const {
    const int n = static_cast<int>(head.size());
    return i < n ? head[i] : tail[i - n];
  }
};

// Hands out KV-cache blocks by reference count and remembers which ones hold a known prefix.
// Deals in ids; the bytes belong to the KV cache. Not thread-safe.
//
// A block is used (referenced), cached (free but published, so that its prefix can find it) or
// empty. Allocate takes empty blocks first, then cached ones, least recently released first. Users
// release the last block of a prefix first, so the parent of a published block is always published
// too, and outlives it.
class BlockPool {
 public:
  // num_blocks ≥ 1, block_size ≥ 1.
  BlockPool(int num_blocks, int block_size, const PrefixHash& hash);

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int block_size() const { return block_size_; }
  int num_empty() const { return num_empty_; }  // for tests
  int num_cached() const { return num_free_ - num_empty_; }
  int num_used() const { return num_blocks() - num_free_; }
  // Returns how many blocks Allocate can still hand out: empty and cached ones.
  int num_free() const { return num_free_; }
  // Returns the number of references to all blocks; a user has one for each block in its table.
  int64_t num_references() const { return num_references_; }

  // Appends to `found` the longest run of published blocks with which `tokens` begins, at most
  // `max_blocks`, each with a new reference. A hit agrees in digest, tokens, parent and salt.
  void AcquirePrefix(const TokenRange& tokens, const CacheSalt& salt, int max_blocks,
                     std::vector<BlockId>& found);

  // Returns an unpublished block with one reference. Requires num_free() > 0.
  BlockId Allocate();
  void AddReference(BlockId block);
  void Release(BlockId block);

  // Offers `block`, which holds exactly `tokens` after the published `parent` (kNoBlock: at the
  // start), to later AcquirePrefix calls. If an equal block is already published, the caller's
  // reference moves to that one. Returns the block that the caller now holds; it is unpublished
  // only if another prefix has the same digest.
  BlockId Publish(BlockId block, BlockId parent, std::span<const int32_t> tokens,
                  const CacheSalt& salt);
  bool IsPublished(BlockId block) const { return blocks_[block].published; }
  int references(BlockId block) const { return blocks_[block].references; }

  // Sets who hears of blocks that are published and forgotten from now on; null: nobody. The
  // listener outlives the pool, or is taken away before.
  void SetListener(BlockListener* listener) { listener_ = listener; }
  // Calls `visit` with every published block, in no order. A block's name is above its parent's.
  void VisitPublished(absl::FunctionRef<void(const PublishedBlock&)> visit) const;

  // Walks the whole state. Returns Internal with the first broken invariant. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Block {
    int32_t references = 0;
    bool published = false;
    BlockId parent = kNoBlock;
    BlockName name = kNoName;                    // while it is published
    BlockId older = kNoBlock, newer = kNoBlock;  // neighbours in the free list
    PrefixDigest digest;
    CacheSalt salt = {};
  };

  std::span<int32_t> TokensOf(BlockId block);
  std::span<const int32_t> TokensOf(BlockId block) const;
  bool Matches(BlockId block, BlockId parent, std::span<const int32_t> tokens,
               const CacheSalt& salt) const;
  PublishedBlock Describe(BlockId block) const;
  void PushFree(BlockId block);
  void RemoveFree(BlockId block);

  const int block_size_;
  const PrefixHash hash_;
  std::vector<Block> blocks_;
  std::vector<int32_t> tokens_;  // [num_blocks, block_size]; valid for published blocks
  absl::flat_hash_map<PrefixDigest, BlockId> published_;
  std::vector<int32_t> scratch_;                   // [block_size]
  BlockId oldest_ = kNoBlock, newest_ = kNoBlock;  // free list: empty blocks, then cached ones
  int num_free_ = 0, num_empty_ = 0;
  int64_t num_references_ = 0;
  BlockName last_name_ = kNoName;
  BlockListener* listener_ = nullptr;
};

}  // namespace continuo::engine
