// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/relay_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;

WorkerLoad Worker(int pool, const std::string& fingerprint) {
  return {.address = "a:1", .worker = "w", .model = "m", .fingerprint = fingerprint, .pool = pool};
}

v1::GenerateResponse Token(v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse response;
  v1::Delta& delta = *response.add_deltas();
  delta.add_token_ids(1);
  delta.set_finish_reason(finish);
  return response;
}

TEST(RelayStatsTest, EachEventHasThePoolOfItsWorker) {
  CountingObserver observer;
  const protocol::ReceivedResponses received;
  RelayStats stats("m", received, &observer, absl::Seconds(10));
  stats.OnCallStarted(Worker(2, "F"), /*is_migration=*/false, absl::Seconds(11));
  stats.OnAccepted(absl::Seconds(12));
  stats.OnResponse(Token(), absl::Seconds(13));
  stats.OnCallEnded("lost", /*migrates=*/true, absl::Seconds(14));
  stats.OnCallStarted(Worker(5, "G"), /*is_migration=*/true, absl::Seconds(15));
  stats.OnResponse(Token(v1::FINISH_REASON_LENGTH), absl::Seconds(16));
  EXPECT_THAT(observer.begun_pools, ElementsAre(2));
  EXPECT_THAT(observer.first_token_pools, ElementsAre(2));
  EXPECT_THAT(observer.left_pools, ElementsAre(2));
  EXPECT_THAT(observer.stalled_pools, ElementsAre(5));
  const RelayReport& report = stats.Complete({}, 0, received, absl::Seconds(17));
  EXPECT_EQ(report.pool, 5);
  EXPECT_EQ(report.fingerprint, "G");
  EXPECT_THAT(report.finish_reasons, ElementsAre("length"));
}

TEST(RelayStatsTest, TokensThatTheClientHasHadAreToldApart) {
  for (const int64_t had : {0, 1, 2, 9}) {
    CountingObserver observer;
    protocol::ReceivedResponses received;
    RelayStats stats("m", received, &observer, absl::ZeroDuration());
    stats.OnCallStarted(Worker(0, "F"), /*is_migration=*/false, absl::Seconds(1));
    for (int i = 0; i < 2; ++i) {
      received.Merge(Token());
      stats.OnResponse(Token(), absl::Seconds(2));
    }
    const RelayReport& report = stats.Complete({.tokens_had = had}, 0, received, absl::Seconds(17));
    EXPECT_EQ(report.completion_tokens, 2);
    EXPECT_EQ(report.replayed_tokens, std::min<int64_t>(had, 2));
    EXPECT_FALSE(report.usage.has_value());
  }
}

TEST(RelayStatsTest, TheSummarysUsageIsTheReports) {
  CountingObserver observer;
  const protocol::ReceivedResponses received;
  RelayStats stats("m", received, &observer, absl::ZeroDuration());
  v1::GenerateResponse last;
  v1::Usage& usage = *last.mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(9);
  usage.set_reasoning_tokens(3);
  stats.OnResponse(last, absl::Seconds(1));
  const RelayReport& report = stats.Complete({}, 7, received, absl::Seconds(2));
  ASSERT_TRUE(report.usage.has_value());
  EXPECT_EQ(report.usage->reasoning_tokens(), 3u);
  EXPECT_EQ(report.prompt_tokens, 9);
}

TEST(RelayStatsTest, WithoutAWorkerThereIsNoPool) {
  CountingObserver observer;
  const protocol::ReceivedResponses received;
  RelayStats stats("m", received, &observer, absl::ZeroDuration());
  stats.OnConcluded(absl::Seconds(1));
  EXPECT_EQ(stats.Complete({}, 0, received, absl::Seconds(1)).pool, -1);
}

}  // namespace
}  // namespace continuo::gateway
