// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/chunk.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace continuo::gateway::openai {
namespace {

TEST(ChunkTest, TheSizeInHexadecimalComesBeforeTheText) {
  for (const auto& [size, line] :
       {std::pair(1, "1"), {9, "9"}, {10, "a"}, {255, "ff"}, {256, "100"}, {1 << 20, "100000"}}) {
    const std::string text(static_cast<size_t>(size), 'x');
    Chunk chunk;
    chunk.out()->append(text);
    EXPECT_EQ(chunk.size(), text.size());
    EXPECT_EQ(chunk.text(), text);
    EXPECT_EQ(chunk.Close(), line + ("\r\n" + text) + "\r\n");
  }
}

TEST(ChunkTest, IsUsedAgainOnceItIsCleared) {
  Chunk chunk("a long text, so that it is not short");
  EXPECT_FALSE(chunk.empty());
  chunk.Close();
  chunk.clear();
  EXPECT_TRUE(chunk.empty());
  EXPECT_EQ(chunk.text(), "");
  chunk.out()->append("b\r\n");
  EXPECT_EQ(chunk.Close(), "3\r\nb\r\n\r\n");
}

}  // namespace
}  // namespace continuo::gateway::openai
