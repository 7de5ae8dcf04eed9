// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission/answer_time.h"

#include <gtest/gtest.h>

namespace continuo::gateway {
namespace {

TEST(AnswerTimeTest, NothingKnownTakesNoTime) {
  EXPECT_EQ(AnswerTime().Predict(1000), absl::ZeroDuration());
  EXPECT_EQ(AnswerTime().Predict(std::nullopt), absl::ZeroDuration());
}

TEST(AnswerTimeTest, TheFirstTokenAndEachOneAfterItTakeWhatTheyTook) {
  AnswerTime time;
  time.Record(absl::Milliseconds(100), absl::Milliseconds(2000), 101);
  const auto predict = [&](int64_t tokens) { return absl::ToDoubleSeconds(time.Predict(tokens)); };
  EXPECT_NEAR(predict(1), 0.1, 1e-9);
  EXPECT_NEAR(predict(51), 1.1, 1e-9);
  EXPECT_NEAR(predict(101), 2.1, 1e-9);
}

TEST(AnswerTimeTest, AnAnswerIsExpectedToBeAsLongAsOthersWere) {
  AnswerTime time;
  time.Record(absl::ZeroDuration(), absl::Seconds(1), 101);
  EXPECT_EQ(time.Predict(100'000), time.Predict(101));
  EXPECT_EQ(time.Predict(std::nullopt), time.Predict(101));
}

TEST(AnswerTimeTest, WhereLengthsDifferItIsExpectedToBeOneOfTheLonger) {
  AnswerTime time;
  for (int i = 0; i < 1000; ++i) {
    time.Record(absl::ZeroDuration(), absl::Seconds(i % 2 == 0 ? 50 : 150), i % 2 == 0 ? 51 : 151);
  }
  EXPECT_NEAR(absl::ToDoubleSeconds(time.Predict(std::nullopt)), 200, 4);
}

TEST(AnswerTimeTest, OneTokenTellsNothingOfThoseAfterTheFirst) {
  AnswerTime time;
  time.Record(absl::Seconds(5), absl::ZeroDuration(), 1);
  EXPECT_EQ(time.Predict(100), absl::Seconds(5));
}

TEST(AnswerTimeTest, RecentAnswersCountMore) {
  AnswerTime time;
  for (int i = 0; i < 1000; ++i) time.Record(absl::Seconds(1), absl::Seconds(10), 11);
  for (int i = 0; i < 150; ++i) time.Record(absl::Seconds(2), absl::Seconds(5), 101);
  EXPECT_NEAR(absl::ToDoubleSeconds(time.Predict(std::nullopt)), 7, 1.2);
}

}  // namespace
}  // namespace continuo::gateway
