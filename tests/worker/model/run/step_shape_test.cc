// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/step_shape.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace continuo::model {
namespace {

using ::testing::ElementsAre;

TEST(StepShapeTest, RowsAreFilledUpToFewNumbers) {
  EXPECT_THAT(AllPaddedRows(100, 1000),
              ElementsAre(1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112));
  EXPECT_THAT(AllPaddedRows(13, 13), ElementsAre(1, 2, 4, 8, 13));
  EXPECT_THAT(AllPaddedRows(13, 12), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_EQ(AllPaddedRows(100'000, 100'000).size(), 23u);
  int last = 0;
  for (int rows = 1; rows < 2000; ++rows) {
    const int padded = PaddedRows(rows);
    EXPECT_GE(padded, rows);
    EXPECT_GE(padded, last);
    EXPECT_LE(padded, rows + std::max(7, rows / 4));
    EXPECT_EQ(PaddedRows(padded), padded);
    last = padded;
  }
}

TEST(StepShapeTest, TablesHaveFewWidths) {
  EXPECT_THAT(AllPaddedBlocks(8192), ElementsAre(64, 256, 1024, 4096, 8192));
  EXPECT_THAT(AllPaddedBlocks(512), ElementsAre(64, 256, 512));
  EXPECT_THAT(AllPaddedBlocks(3), ElementsAre(3));
  EXPECT_EQ(PaddedBlocks(1, 3), 3);
  EXPECT_EQ(PaddedBlocks(65, 8192), 256);
  EXPECT_EQ(PaddedBlocks(9000, 8192), 9000);  // a plan may have columns that nobody reads
}

// A device keeps this many graphs.
TEST(StepShapeTest, ThereAreFewShapesWhateverTheContext) {
  for (int blocks = 1; blocks <= 1 << 20; blocks *= 2) {
    for (const int most : {blocks, blocks + 1, 2 * blocks - 1}) {
      const std::vector<int> widths = AllPaddedBlocks(most);
      EXPECT_LE(AllPaddedRows(512, 512).size() * widths.size(), 128u) << most;
      EXPECT_EQ(widths.back(), most);
    }
  }
}

}  // namespace
}  // namespace continuo::model
