// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "services/worker/engine/types/kv_events.h"

namespace continuo::engine {

// Those who read the events, and nothing else of the pool, know what prompts find.
class KvEventReader {
 public:
  using Tokens = std::vector<int32_t>;
  struct Block {
    BlockName parent = kNoName;
    CacheSalt salt = {};
    Tokens tokens;
  };

  explicit KvEventReader(int block_size) : block_size_(static_cast<size_t>(block_size)) {}

  void Begin(const KvSnapshot& snapshot, const CacheSalt& salt) {
    for (size_t i = 0; i < snapshot.names.size(); ++i) {
      blocks_[snapshot.names[i]] = {snapshot.parents[i], salt, TokensAt(snapshot.tokens, i)};
    }
  }
  void Read(const std::vector<KvEvent>& events) {
    for (const KvEvent& event : events) {
      BlockName parent = event.parent;
      for (size_t i = 0; i < event.names.size(); ++i) {
        const BlockName name = event.names[i];
        if (event.kind == KvEvent::Kind::kRemoved) {
          EXPECT_EQ(blocks_.erase(name), 1u) << "what is removed was there";
          continue;
        }
        EXPECT_TRUE(parent == kNoName || blocks_.contains(parent));
        const Block block = {parent, event.salt, TokensAt(event.tokens, i)};
        EXPECT_TRUE(blocks_.try_emplace(name, block).second) << "no name comes twice";
        parent = name;
      }
    }
  }
  // The number of blocks with which the tokens begin.
  int Find(const Tokens& tokens, const CacheSalt& salt) const {
    int found = 0;
    BlockName parent = kNoName;
    for (size_t at = 0; at + block_size_ <= tokens.size(); at += block_size_, ++found) {
      const auto next = std::ranges::find_if(blocks_, [&](const auto& entry) {
        return entry.second.parent == parent && entry.second.salt == salt &&
               std::equal(entry.second.tokens.begin(), entry.second.tokens.end(),
                          tokens.begin() + static_cast<ptrdiff_t>(at));
      });
      if (next == blocks_.end()) break;
      parent = next->first;
    }
    return found;
  }
  size_t size() const { return blocks_.size(); }

 private:
  Tokens TokensAt(const Tokens& tokens, size_t block) const {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(block * block_size_);
    return {begin, begin + static_cast<ptrdiff_t>(block_size_)};
  }

  const size_t block_size_;
  std::map<BlockName, Block> blocks_;
};

}  // namespace continuo::engine
