// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/byte_budget.h"

#include <gtest/gtest.h>

#include <utility>

namespace continuo::server {
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

}  // namespace
}  // namespace continuo::server
