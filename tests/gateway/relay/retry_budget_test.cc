// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/retry_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

namespace continuo::gateway {
namespace {

constexpr absl::Duration kNow = absl::Seconds(100), kFar = absl::Hours(1);

using Streams = std::vector<std::unique_ptr<RetryBudget::Stream>>;

Streams Open(RetryBudget& budget, int count, absl::Duration now = kNow) {
  Streams streams;
  for (int i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<RetryBudget::Stream>(&budget, now));
  }
  return streams;
}

// How many migrations there are at once.
int Drain(RetryBudget::Stream& stream, absl::Duration now) {
  int taken = 0;
  while (stream.TakeMigration(now, absl::ZeroDuration()).has_value()) ++taken;
  return taken;
}

TEST(RetryBudgetTest, OpenStreamsEarnMigrationsAndSaveUpOneEach) {
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 10});
  const Streams streams = Open(budget, 50);
  EXPECT_EQ(Drain(*streams[0], kNow), 10);
  EXPECT_EQ(Drain(*streams[0], kNow + absl::Seconds(4)), 20);
  EXPECT_EQ(Drain(*streams[0], kNow + kFar), 60);
}

TEST(RetryBudgetTest, StreamsThatFindNoneLeftGetTheNextOnesInTheirOrder) {
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 0});
  const Streams streams = Open(budget, 10);  // one a second
  EXPECT_EQ(streams[0]->TakeMigration(kNow, kFar), absl::Seconds(1));
  EXPECT_EQ(streams[1]->TakeMigration(kNow, kFar), absl::Seconds(2));
  // Who cannot wait that long takes none.
  EXPECT_EQ(streams[2]->TakeMigration(kNow, absl::Seconds(2)), std::nullopt);
  EXPECT_EQ(streams[3]->TakeMigration(kNow + absl::Seconds(1), absl::Seconds(2)), absl::Seconds(2));
}

TEST(RetryBudgetTest, StreamsThatEndLeaveNoDebtToThoseThatStay) {
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 0});
  Streams streams = Open(budget, 1000);
  for (const auto& stream : streams) stream->TakeMigration(kNow, kFar);
  streams.resize(10);
  // Each of the ten may still wait for one.
  EXPECT_EQ(streams[0]->TakeMigration(kNow, kFar), absl::Seconds(11));
}

TEST(RetryBudgetTest, AMigrationThatIsNotMadeIsGivenBack) {
  RetryBudget budget({.per_request = 0, .per_second = 1, .max = 0, .per_stream_second = 0});
  for (int i = 0; i < 100; ++i) {
    // As a client that gives up and comes again.
    RetryBudget::Stream stream(&budget, kNow);
    EXPECT_EQ(stream.TakeMigration(kNow, kFar), absl::Seconds(1));
  }
  {
    RetryBudget::Stream stream(&budget, kNow);
    EXPECT_EQ(stream.TakeMigration(kNow, kFar), absl::Seconds(1));
    stream.UseMigration();
  }
  RetryBudget::Stream stream(&budget, kNow);
  EXPECT_EQ(stream.TakeMigration(kNow, kFar), absl::Seconds(2));
}

TEST(RetryBudgetTest, SecondTriesEarnByRequestsAndByTimeAlone) {
  RetryBudget budget({.per_request = 0.5, .per_second = 1, .max = 3});
  const Streams streams = Open(budget, 100);
  const auto drain = [&](absl::Duration now) {
    int taken = 0;
    while (streams[0]->TakeSecondTry(now)) ++taken;
    return taken;
  };
  EXPECT_EQ(drain(kNow), 3);
  EXPECT_EQ(drain(kNow + absl::Seconds(2)), 2);
  const Streams more = Open(budget, 4, kNow + absl::Seconds(2));
  EXPECT_EQ(drain(kNow + absl::Seconds(2)), 2);
  EXPECT_EQ(drain(kNow + kFar), 3);
}

TEST(RetryBudgetTest, WithoutABudgetThereIsNoBound) {
  RetryBudget::Stream stream(nullptr, kNow);
  EXPECT_TRUE(stream.TakeSecondTry(kNow));
  EXPECT_EQ(stream.TakeMigration(kNow, absl::ZeroDuration()), absl::ZeroDuration());
}

}  // namespace
}  // namespace continuo::gateway
