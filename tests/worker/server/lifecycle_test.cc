// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "services/common/error.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;

class LifecycleTest : public ::testing::Test {
 protected:
  LifecycleTest()
      : lifecycle_(&registry_, {.begin_drain = [this] { events_.push_back("engine drains"); },
                                .hung = [this] { return hung_; },
                                .running = [] { return 3; },
                                .set_health =
                                    [this](bool serving) {
                                      events_.push_back(serving ? "healthy" : "unhealthy");
                                    },
                                .state_changed = [this] { events_.push_back("state"); }}) {}

  // `count` live requests that count when they are ended.
  void AddLive(int count) {
    for (int i = 0; i < count; ++i) {
      auto control = std::make_shared<RequestControl>([this](absl::Status why) {
        EXPECT_EQ(ReasonOf(why), kReasonDraining);
        ++num_ended_;
      });
      control->Submitted();
      ASSERT_TRUE(registry_.Add("t", absl::StrCat(i), ArrivalKind::kNew, control).ok());
    }
  }

  const absl::Time start_ = absl::FromUnixSeconds(1000);
  RequestRegistry registry_;
  bool hung_ = false;
  int num_ended_ = 0;
  std::vector<std::string> events_;
  Lifecycle lifecycle_;
};

TEST_F(LifecycleTest, IsNotHealthyWhileItLoads) {
  EXPECT_EQ(lifecycle_.state(), v1::WORKER_STATE_LOADING);
  lifecycle_.Tick(start_);
  EXPECT_FALSE(lifecycle_.healthy());
  lifecycle_.StartServing();
  EXPECT_TRUE(lifecycle_.healthy());
  EXPECT_THAT(events_, ElementsAre("healthy", "state"));
}

TEST_F(LifecycleTest, AHungEngineIsUnhealthyUntilItGoesOn) {
  lifecycle_.StartServing();
  events_.clear();
  hung_ = true;
  lifecycle_.Tick(start_);
  lifecycle_.Tick(start_);
  hung_ = false;
  lifecycle_.Tick(start_);
  EXPECT_THAT(events_, ElementsAre("unhealthy", "healthy"));
}

TEST_F(LifecycleTest, ADrainIsToldAtOnce) {
  lifecycle_.StartServing();
  events_.clear();
  EXPECT_EQ(lifecycle_.BeginDrain(start_, absl::Seconds(5)), 3);
  EXPECT_THAT(events_, ElementsAre("unhealthy", "engine drains", "state"));
  lifecycle_.Tick(start_);
  EXPECT_FALSE(lifecycle_.healthy());
  EXPECT_TRUE(lifecycle_.drained()) << "nothing is live";
}

TEST_F(LifecycleTest, WhatRunsAtTheEndOfTheGraceIsHandedOverWithinASecond) {
  lifecycle_.StartServing();
  AddLive(10);
  lifecycle_.BeginDrain(start_, absl::Seconds(5));
  lifecycle_.Tick(start_ + absl::Seconds(4.9));
  EXPECT_EQ(num_ended_, 0);
  lifecycle_.Tick(start_ + absl::Seconds(5));
  EXPECT_EQ(num_ended_, 1);
  lifecycle_.Tick(start_ + absl::Seconds(5.5));
  EXPECT_EQ(num_ended_, 6);
  lifecycle_.Tick(start_ + absl::Seconds(6));
  EXPECT_EQ(num_ended_, 10);
  EXPECT_FALSE(lifecycle_.drained()) << "they have not ended yet";
}

TEST_F(LifecycleTest, DrainingAgainChangesOnlyTheGrace) {
  lifecycle_.StartServing();
  AddLive(1);
  lifecycle_.BeginDrain(start_, absl::Seconds(30));
  events_.clear();
  lifecycle_.BeginDrain(start_ + absl::Seconds(1), absl::ZeroDuration());
  EXPECT_TRUE(events_.empty());
  lifecycle_.Tick(start_ + absl::Seconds(1));
  EXPECT_EQ(num_ended_, 1);
}

TEST_F(LifecycleTest, ADrainWhileLoadingLetsNothingIn) {
  lifecycle_.BeginDrain(start_, absl::Seconds(1));
  lifecycle_.StartServing();
  EXPECT_TRUE(lifecycle_.draining());
  EXPECT_FALSE(lifecycle_.healthy());
}

}  // namespace
}  // namespace continuo
