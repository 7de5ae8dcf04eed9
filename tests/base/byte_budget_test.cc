// SPDX-License-Identifier: Apache-2.0
#include "services/base/byte_budget.h"

#include <gtest/gtest.h>

#include <utility>

namespace continuo {
namespace {

TEST(ByteBudgetTest, HasRoomForItsLimitAndAgainAfterAShareIsGone) {
  ByteBudget budget(100);
  const ByteBudget::Share first = budget.Take(60);
  EXPECT_TRUE(static_cast<bool>(first));
  EXPECT_FALSE(static_cast<bool>(budget.Take(41)));
  {
    const ByteBudget::Share second = budget.Take(40);
    EXPECT_TRUE(static_cast<bool>(second));
    EXPECT_FALSE(static_cast<bool>(budget.Take(1)));
  }
  EXPECT_TRUE(static_cast<bool>(budget.Take(40)));
}

TEST(ByteBudgetTest, TakesWhatIsLargerThanItWhereNothingElseIsThere) {
  ByteBudget budget(100);
  const ByteBudget::Share large = budget.Take(1000);
  EXPECT_TRUE(static_cast<bool>(large));
  EXPECT_FALSE(static_cast<bool>(budget.Take(1)));
}

TEST(ByteBudgetTest, AShareThatMovesIsGivenBackOnce) {
  ByteBudget budget(100);
  {
    ByteBudget::Share share = budget.Take(100);
    const ByteBudget::Share moved = std::move(share);
    EXPECT_TRUE(static_cast<bool>(moved));
    EXPECT_FALSE(static_cast<bool>(budget.Take(1)));
  }
  const ByteBudget::Share all = budget.Take(100);
  EXPECT_TRUE(static_cast<bool>(all));
  EXPECT_FALSE(static_cast<bool>(budget.Take(1)));
}

TEST(ByteBudgetTest, AShareGrowsUpToTheLimitOfAllAndShrinks) {
  ByteBudget budget(100);
  ByteBudget::Share first(&budget), second(&budget);
  EXPECT_TRUE(first.Resize(60));
  EXPECT_TRUE(second.Resize(40));
  EXPECT_FALSE(budget.HasRoomFor(1));
  EXPECT_FALSE(second.Resize(41));  // held all the same
  EXPECT_EQ(budget.used(), 101);
  EXPECT_TRUE(second.Resize(10));
  EXPECT_TRUE(budget.HasRoomFor(30));
  EXPECT_FALSE(budget.HasRoomFor(31));
  first.Release();
  EXPECT_EQ(budget.used(), 10);
}

TEST(ByteBudgetTest, LargeSharesLeaveRoomForSmallOnes) {
  ByteBudget budget(100);
  ByteBudget::Share large(&budget), small(&budget);
  EXPECT_TRUE(large.ResizeLeavingRoom(50));
  EXPECT_FALSE(large.ResizeLeavingRoom(51));
  EXPECT_TRUE(large.ResizeLeavingRoom(50));  // what shrinks always may
  EXPECT_TRUE(small.ResizeLeavingRoom(25));
  EXPECT_FALSE(small.ResizeLeavingRoom(26));
}

TEST(ByteBudgetTest, WithoutBytesThereIsAlwaysRoom) {
  ByteBudget budget(0);
  EXPECT_TRUE(budget.HasRoomFor(0));
  EXPECT_FALSE(budget.HasRoomFor(1));
}

}  // namespace
}  // namespace continuo
