// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/block_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::engine {

BlockPool::BlockPool(int num_blocks, int block_size, const PrefixHash& hash)
    : block_size_(block_size), hash_(hash) {
  CONTINUO_CHECK(num_blocks >= 1 && block_size >= 1);
  blocks_.resize(num_blocks);
  tokens_.resize(static_cast<size_t>(num_blocks) * block_size);
  published_.reserve(num_blocks);
  scratch_.resize(block_size);
  for (BlockId b = num_blocks - 1; b >= 0; --b) PushFree(b);  // block 0 is handed out first
}

void BlockPool::AcquirePrefix(const TokenRange& tokens, const CacheSalt& salt, int max_blocks,
                              std::vector<BlockId>& found) {
  PrefixDigest digest = hash_.Root(salt);
  BlockId parent = kNoBlock;
  for (int n = 0, at = 0; n < max_blocks && at + block_size_ <= tokens.size();
       ++n, at += block_size_) {
    std::span<const int32_t> chunk = scratch_;
    const int head = static_cast<int>(tokens.head.size());
    if (at + block_size_ <= head) {
      chunk = tokens.head.subspan(at, block_size_);
    } else {
      for (int i = 0; i < block_size_; ++i) scratch_[i] = tokens[at + i];
    }
    digest = hash_.Extend(digest, chunk);
    const auto it = published_.find(digest);
    if (it == published_.end() || !Matches(it->second, parent, chunk, salt)) return;
    AddReference(it->second);
    found.push_back(it->second);
    parent = it->second;
  }
}

BlockId BlockPool::Allocate() {
  CONTINUO_CHECK(num_free_ > 0);
  const BlockId b = oldest_;
  RemoveFree(b);
  Block& block = blocks_[b];
  if (block.published) {
    published_.erase(block.digest);
    block.published = false;
    block.parent = kNoBlock;
    if (listener_ != nullptr) listener_->OnForgotten(block.name, block.salt);
  }
  block.references = 1;
  ++num_references_;
  return b;
}

void BlockPool::AddReference(BlockId block) {
  if (blocks_[block].references == 0) RemoveFree(block);
  ++blocks_[block].references;
  ++num_references_;
}

void BlockPool::Release(BlockId block) {
  CONTINUO_CHECK(blocks_[block].references > 0);
  --num_references_;
  if (--blocks_[block].references == 0) PushFree(block);
}

BlockId BlockPool::Publish(BlockId block, BlockId parent, std::span<const int32_t> tokens,
                           const CacheSalt& salt) {
  CONTINUO_CHECK(static_cast<int>(tokens.size()) == block_size_);
  CONTINUO_CHECK(blocks_[block].references > 0);
  CONTINUO_CHECK(parent == kNoBlock || blocks_[parent].published);
  Block& entry = blocks_[block];
  if (entry.published) return block;
  const PrefixDigest digest =
      hash_.Extend(parent == kNoBlock ? hash_.Root(salt) : blocks_[parent].digest, tokens);
  const auto [it, inserted] = published_.try_emplace(digest, block);
  if (!inserted) {
    const BlockId known = it->second;
    if (!Matches(known, parent, tokens, salt)) return block;
    AddReference(known);
    Release(block);
    return known;
  }
  entry.published = true;
  entry.digest = digest;
  entry.parent = parent;
  entry.salt = salt;
  entry.name = ++last_name_;
  std::ranges::copy(tokens, TokensOf(block).begin());
  if (listener_ != nullptr) listener_->OnPublished(Describe(block));
  return block;
}

void BlockPool::VisitPublished(absl::FunctionRef<void(const PublishedBlock&)> visit) const {
  for (BlockId b = 0; b < num_blocks(); ++b) {
    if (blocks_[b].published) visit(Describe(b));
  }
}

PublishedBlock BlockPool::Describe(BlockId block) const {
  const Block& entry = blocks_[block];
  return {.name = entry.name,
          .parent = entry.parent == kNoBlock ? kNoName : blocks_[entry.parent].name,
          .salt = entry.salt,
          .tokens = TokensOf(block)};
}

std::span<int32_t> BlockPool::TokensOf(BlockId block) {
  return std::span(tokens_).subspan(static_cast<size_t>(block) * block_size_, block_size_);
}

std::span<const int32_t> BlockPool::TokensOf(BlockId block) const {
  return std::span(tokens_).subspan(static_cast<size_t>(block) * block_size_, block_size_);
}

bool BlockPool::Matches(BlockId block, BlockId parent, std::span<const int32_t> tokens,
                        const CacheSalt& salt) const {
  const Block& entry = blocks_[block];
  return entry.parent == parent && entry.salt == salt &&
         std::ranges::equal(TokensOf(block), tokens);
}

// A published block becomes the newest; a block that cannot be found is handed out next.
void BlockPool::PushFree(BlockId b) {
  Block& block = blocks_[b];
  if (block.published) {
    block.older = newest_;
    block.newer = kNoBlock;
    (newest_ == kNoBlock ? oldest_ : blocks_[newest_].newer) = b;
    newest_ = b;
  } else {
    block.newer = oldest_;
    block.older = kNoBlock;
    (oldest_ == kNoBlock ? newest_ : blocks_[oldest_].older) = b;
    oldest_ = b;
    ++num_empty_;
  }
  ++num_free_;
}

void BlockPool::RemoveFree(BlockId b) {
  Block& block = blocks_[b];
  (block.older == kNoBlock ? oldest_ : blocks_[block.older].newer) = block.newer;
  (block.newer == kNoBlock ? newest_ : blocks_[block.newer].older) = block.older;
  block.older = block.newer = kNoBlock;
  --num_free_;
  if (!block.published) --num_empty_;
}

absl::Status BlockPool::CheckInvariants() const {
  int num_free = 0, num_empty = 0;
  bool cached_seen = false;
  std::vector<int> age(blocks_.size(), -1);  // position in the free list
  for (BlockId b = oldest_, before = kNoBlock; b != kNoBlock; before = b, b = blocks_[b].newer) {
    const Block& block = blocks_[b];
    if (++num_free > num_blocks()) return absl::InternalError("the free list has a cycle");
    if (block.older != before || (block.newer == kNoBlock && newest_ != b)) {
      return absl::InternalError(absl::StrCat("block ", b, " is badly linked"));
    }
    if (block.references != 0) {
      return absl::InternalError(absl::StrCat("block ", b, " is free and in use"));
    }
    cached_seen |= block.published;
    if (!block.published && cached_seen) {
      return absl::InternalError(absl::StrCat("empty block ", b, " is behind a cached one"));
    }
    num_empty += !block.published;
    age[b] = num_free;
  }
  if (num_free != num_free_ || num_empty != num_empty_) {
    return absl::InternalError(absl::StrCat("the free list has ", num_free, " blocks, ", num_empty,
                                            " empty; counted ", num_free_, ", ", num_empty_));
  }
  int64_t num_references = 0;
  size_t num_published = 0;
  for (BlockId b = 0; b < num_blocks(); ++b) {
    const Block& block = blocks_[b];
    num_references += block.references;
    if (block.references == 0 && age[b] < 0) {
      return absl::InternalError(absl::StrCat("block ", b, " is neither free nor in use"));
    }
    if (!block.published) continue;
    ++num_published;
    const auto it = published_.find(block.digest);
    if (it == published_.end() || it->second != b) {
      return absl::InternalError(absl::StrCat("published block ", b, " cannot be found"));
    }
    if (block.parent == kNoBlock) continue;
    const Block& parent = blocks_[block.parent];
    if (!parent.published) {
      return absl::InternalError(absl::StrCat("block ", b, " has outlived its parent"));
    }
    if (parent.name >= block.name) {
      return absl::InternalError(absl::StrCat("block ", b, " is older than its parent"));
    }
    if (parent.references == 0 && (block.references != 0 || age[b] > age[block.parent])) {
      return absl::InternalError(absl::StrCat("block ", b, " will outlive its parent"));
    }
  }
  if (num_published != published_.size()) {
    return absl::InternalError("an unpublished block can be found");
  }
  if (num_references != num_references_) {
    return absl::InternalError(
        absl::StrCat("blocks have ", num_references, " references, counted ", num_references_));
  }
  return absl::OkStatus();
}

}  // namespace continuo::engine
