// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/slow_workers.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace continuo::gateway {
namespace {

// Fake workers that report twice a second; each makes steps of its own duration.
class SlowWorkersTest : public ::testing::Test {
 protected:
  struct Fake {
    absl::Duration step = absl::Milliseconds(50);
    int64_t running = 4;
    double steps = 0;
    bool slow = false;
  };
  void Pass(absl::Duration time) {
    for (const absl::Duration end = now_ + time; now_ < end;) {
      now_ += absl::Milliseconds(500);
      for (auto& [name, fake] : fakes_) {
        if (fake.running > 0) fake.steps += absl::FDivDuration(absl::Milliseconds(500), fake.step);
        fake.slow = slow_.Report(name, "m", static_cast<uint64_t>(fake.steps), fake.running, now_);
      }
    }
  }

  SlowWorkers slow_;
  absl::Duration now_;
  std::map<std::string, Fake> fakes_ = {{"a", {}}, {"b", {}}, {"c", {}}};
};

TEST_F(SlowWorkersTest, EqualWorkersAreNotSlowHoweverLongTheirStepsAre) {
  Pass(absl::Seconds(30));
  for (auto& [name, fake] : fakes_) fake.step = absl::Seconds(2);
  Pass(absl::Seconds(30));
  for (const auto& [name, fake] : fakes_) EXPECT_FALSE(fake.slow) << name;
}

TEST_F(SlowWorkersTest, LongStepsAreNotSlowWhileTheyAreWithinTheirCut) {
  fakes_["b"].step = absl::Milliseconds(250);  // prefill beside decoding peers
  Pass(absl::Seconds(30));
  EXPECT_FALSE(fakes_["b"].slow);
}

TEST_F(SlowWorkersTest, OneThatIsFarSlowerThanItsPeersIsSlowAfterAWhileAndWellAfterAWhile) {
  Pass(absl::Seconds(10));
  fakes_["b"].step = absl::Seconds(1);
  Pass(absl::Seconds(2));
  EXPECT_FALSE(fakes_["b"].slow);
  Pass(absl::Seconds(8));
  EXPECT_TRUE(fakes_["b"].slow);
  EXPECT_FALSE(fakes_["a"].slow);
  // It is better and not yet well, so it keeps its verdict.
  fakes_["b"].step = absl::Milliseconds(400);
  Pass(absl::Seconds(20));
  EXPECT_TRUE(fakes_["b"].slow);
  fakes_["b"].step = absl::Milliseconds(60);
  Pass(absl::Seconds(10));
  EXPECT_FALSE(fakes_["b"].slow);
  fakes_["b"].step = absl::Milliseconds(400);
  Pass(absl::Seconds(20));
  EXPECT_FALSE(fakes_["b"].slow);
}

TEST_F(SlowWorkersTest, OneWhoseStepDoesNotEndIsSlow) {
  Pass(absl::Seconds(10));
  fakes_["c"].step = absl::Hours(1);
  Pass(absl::Seconds(6));
  EXPECT_TRUE(fakes_["c"].slow);
}

TEST_F(SlowWorkersTest, OneThatHasNothingToDoIsTriedAgain) {
  fakes_["b"].step = absl::Seconds(1);
  Pass(absl::Seconds(10));
  ASSERT_TRUE(fakes_["b"].slow);
  fakes_["b"].running = 0;
  Pass(absl::Seconds(12));
  EXPECT_FALSE(fakes_["b"].slow);
  // The time without work counts as no step.
  fakes_["b"] = {.steps = fakes_["b"].steps};
  Pass(absl::Seconds(20));
  EXPECT_FALSE(fakes_["b"].slow);
}

TEST_F(SlowWorkersTest, OneWithoutPeersIsNeverSlow) {
  fakes_ = {{"a", {.step = absl::Seconds(5)}}};
  Pass(absl::Seconds(60));
  EXPECT_FALSE(fakes_["a"].slow);
}

TEST_F(SlowWorkersTest, AnotherProcessBeginsAnew) {
  fakes_["b"].step = absl::Seconds(1);
  Pass(absl::Seconds(10));
  ASSERT_TRUE(fakes_["b"].slow);
  slow_.Forget("b");
  fakes_["b"] = {};
  Pass(absl::Milliseconds(500));
  EXPECT_FALSE(fakes_["b"].slow);
}

}  // namespace
}  // namespace continuo::gateway
