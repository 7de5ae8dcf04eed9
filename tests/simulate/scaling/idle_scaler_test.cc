// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/idle_scaler.h"

#include <gtest/gtest.h>

namespace continuo::simulate {
namespace {

TEST(IdleScalerTest, TheFirstRequestStartsOneReplica) {
  IdleScaler scaler(absl::Minutes(5), absl::ZeroDuration());
  EXPECT_EQ(scaler.Next(false, 0, absl::Hours(1)), 0);
  EXPECT_EQ(scaler.Next(true, 0, absl::Hours(1)), 1);
  // More are the other scaler's affair.
  EXPECT_EQ(scaler.Next(true, 7, absl::Hours(1)), 7);
}

TEST(IdleScalerTest, AllReplicasGoOnceTheCooldownIsOver) {
  IdleScaler scaler(absl::Minutes(5), absl::ZeroDuration());
  EXPECT_EQ(scaler.Next(true, 3, absl::Minutes(10)), 3);
  EXPECT_EQ(scaler.Next(false, 3, absl::Minutes(15)), 3);
  EXPECT_EQ(scaler.Next(false, 3, absl::Minutes(15) + absl::Seconds(1)), 0);
}

}  // namespace
}  // namespace continuo::simulate
