// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/step_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/gateway/openai/steps/steps.h"

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

class StepQueueTest : public ::testing::Test {
 protected:
  int num_notified_ = 0;
  StepQueue queue_{[this] { ++num_notified_; }, std::make_shared<const StepIds>()};
};

TEST_F(StepQueueTest, StepsComeTogetherAndOnce) {
  EXPECT_FALSE(queue_.Take().is_open);
  queue_.OnOpen();
  EXPECT_TRUE(queue_.Take().is_open);
  EXPECT_EQ(queue_.Take().steps, "");
  queue_.OnSteps(StepsOf({StepOf(1), StepOf(2)}));
  queue_.OnSteps(StepsOf({StepOf(5)}, /*num_dropped=*/2));
  EXPECT_EQ(num_notified_, 3);
  const Json event = Json::parse(queue_.Take().steps);
  EXPECT_EQ(event["dropped"], 2);
  ASSERT_EQ(event["steps"].size(), 3);
  EXPECT_EQ(event["steps"][2]["number"], 5);
  EXPECT_EQ(queue_.Take().steps, "");
  queue_.OnSteps(StepsOf({StepOf(6)}));
  EXPECT_EQ(Json::parse(queue_.Take().steps)["dropped"], 0);
}

TEST_F(StepQueueTest, WhatIsNotTakenIsBoundedAndTheNewestStays) {
  constexpr uint64_t kSteps = 10'000;
  for (uint64_t i = 1; i <= kSteps; ++i) queue_.OnSteps(StepsOf({StepOf(i, /*num_sequences=*/4)}));
  const std::string text = queue_.Take().steps;
  EXPECT_LE(text.size(), StepQueue::kMaxBytes * 5 / 4);  // with commas
  EXPECT_GE(text.size(), StepQueue::kMaxBytes / 2);
  SeenSteps seen;
  seen.Add(Json::parse(text));
  EXPECT_TRUE(seen.in_order);
  EXPECT_EQ(seen.last, kSteps);
  EXPECT_GT(seen.num_dropped, 0);
  EXPECT_EQ(seen.num_steps + seen.num_dropped, kSteps);
}

TEST_F(StepQueueTest, AStepThatIsLargerThanTheBoundIsKeptAlone) {
  queue_.OnSteps(StepsOf({StepOf(1), StepOf(2, /*num_sequences=*/16384)}));
  const Json event = Json::parse(queue_.Take().steps);
  EXPECT_EQ(event["dropped"], 1);
  ASSERT_EQ(event["steps"].size(), 1);
  EXPECT_EQ(event["steps"][0]["sequences"].size(), 16384);
}

TEST_F(StepQueueTest, TheFirstEndCountsAndNothingFollowsIt) {
  queue_.OnSteps(StepsOf({StepOf(1)}));
  queue_.OnEnd(absl::UnavailableError("first"));
  queue_.OnEnd(absl::CancelledError("second"));
  queue_.OnSteps(StepsOf({StepOf(2)}));
  const StepQueue::News news = queue_.Take();
  EXPECT_EQ(Json::parse(news.steps)["steps"].size(), 1);
  ASSERT_TRUE(news.end.has_value());
  EXPECT_EQ(news.end->message(), "first");
}

TEST_F(StepQueueTest, NobodyIsNotifiedAfterClose) {
  queue_.Close();
  queue_.OnOpen();
  queue_.OnSteps(StepsOf({StepOf(1)}));
  queue_.OnEnd(absl::OkStatus());
  EXPECT_EQ(num_notified_, 0);
}

TEST(StepQueueThreadsTest, NoStepIsLostUncountedBetweenTwoThreads) {
  constexpr uint64_t kSteps = 5'000;
  StepQueue queue([] {}, std::make_shared<const StepIds>());
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kSteps; ++i) queue.OnSteps(StepsOf({StepOf(i, 16)}));
    queue.OnEnd(absl::OkStatus());
  });
  SeenSteps seen;
  for (bool ended = false; !ended;) {
    const StepQueue::News news = queue.Take();
    ended = news.end.has_value();
    if (!news.steps.empty()) seen.Add(Json::parse(news.steps));
  }
  writer.join();
  EXPECT_TRUE(seen.in_order);
  EXPECT_EQ(seen.num_steps + seen.num_dropped, kSteps);
}

}  // namespace
}  // namespace continuo::gateway::openai
