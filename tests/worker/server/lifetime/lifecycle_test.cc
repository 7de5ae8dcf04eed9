// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/protocol/error.h"

namespace continuo::server {
namespace {

using ::testing::ElementsAre;

class LifecycleTest : public ::testing::Test {
 protected:
  LifecycleTest()
      : lifecycle_(&calls_, {.begin_drain = [this] { events_.push_back("engine drains"); },
                             .hung = [this] { return hung_; },
                             .running = [] { return 3; },
                             .set_health =
                                 [this](bool serving) {
                                   events_.push_back(serving ? "healthy" : "unhealthy");
                                 },
                             .state_changed = [this] { events_.push_back("state"); }}) {}

  // Adds `count` live requests that count their ends.
  void AddLive(int count) {
    for (int i = 0; i < count; ++i) {
      auto control = std::make_shared<RequestControl>(
          RequestControl::Hooks{.cancel =
                                    [this](absl::Status why) {
                                      EXPECT_EQ(protocol::ReasonOf(why), protocol::kReasonDraining);
                                      ++num_ended_;
                                    },
                                .cut = nullptr});
      control->Submitted();
      calls_.Add(std::move(control));
    }
  }

  const absl::Duration start_ = absl::Seconds(1000);
  OpenCalls calls_{absl::Seconds(3)};
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
  EXPECT_TRUE(lifecycle_.hung());
  lifecycle_.Tick(start_);
  hung_ = false;
  lifecycle_.Tick(start_);
  EXPECT_FALSE(lifecycle_.hung());
  EXPECT_THAT(events_, ElementsAre("unhealthy", "state", "healthy", "state"));
}

TEST_F(LifecycleTest, ADrainIsToldAtOnce) {
  lifecycle_.StartServing();
  events_.clear();
  EXPECT_EQ(lifecycle_.BeginDrain(start_, absl::Seconds(5)), 3);
  EXPECT_THAT(events_, ElementsAre("engine drains", "unhealthy", "state"));
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

TEST_F(LifecycleTest, TheEngineRefusesBeforeTheDrainIsTold) {
  // A request between the two finds a worker that serves, and the engine rejects it.
  std::vector<v1::WorkerState> told;
  Lifecycle* lifecycle = nullptr;
  Lifecycle observed(&calls_, {.begin_drain = [&] { told.push_back(lifecycle->state()); },
                               .hung = [] { return false; },
                               .running = [] { return 0; },
                               .set_health = [](bool) {},
                               .state_changed = [] {}});
  lifecycle = &observed;
  observed.StartServing();
  observed.BeginDrain(start_, absl::ZeroDuration());
  EXPECT_THAT(told, ElementsAre(v1::WORKER_STATE_SERVING));
}

TEST_F(LifecycleTest, ACallThatComesWhileTheOthersAreHandedOverIsEndedToo) {
  lifecycle_.StartServing();
  AddLive(2);
  lifecycle_.BeginDrain(start_, absl::ZeroDuration());
  lifecycle_.Tick(start_);
  AddLive(1);  // it had passed the check before the drain began
  lifecycle_.Tick(start_ + Lifecycle::kSpread);
  EXPECT_EQ(num_ended_, 3);
  AddLive(1);
  lifecycle_.Tick(start_ + 2 * Lifecycle::kSpread);
  EXPECT_EQ(num_ended_, 4);
}

TEST_F(LifecycleTest, IsDrainedOnceNoCallIsOpen) {
  lifecycle_.StartServing();
  AddLive(1);
  lifecycle_.BeginDrain(start_, absl::ZeroDuration());
  lifecycle_.Tick(start_);
  EXPECT_EQ(num_ended_, 1);
  EXPECT_FALSE(lifecycle_.drained()) << "its reader has not read the status";
  for (const auto& control : calls_.All()) calls_.Remove(control.get());
  EXPECT_TRUE(lifecycle_.drained());
}

TEST_F(LifecycleTest, ADrainWhileLoadingLetsNothingIn) {
  lifecycle_.BeginDrain(start_, absl::Seconds(1));
  lifecycle_.StartServing();
  EXPECT_TRUE(lifecycle_.draining());
  EXPECT_FALSE(lifecycle_.healthy());
}

}  // namespace
}  // namespace continuo::server
