// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission/admission.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "services/protocol/error.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

constexpr AdmissionLimits kLimits = {
    .max_open_requests = 3, .max_open_bytes = 1000, .max_queued_tokens = 100};

TEST(AdmissionTest, TheRequestBeyondTheLimitIsRejectedWithReasonAndHint) {
  Admission admission(kLimits);
  const auto a = admission.Admit({.bytes = 1, .tokens = 1}),
             b = admission.Admit({.bytes = 1, .tokens = 1}),
             c = admission.Admit({.bytes = 1, .tokens = 1});
  const absl::Status rejected = admission.Admit({.bytes = 1, .tokens = 1}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(rejected));
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(rejected).has_value());
  EXPECT_NE(rejected.message().find("3 open requests"), std::string::npos) << rejected;
}

TEST(AdmissionTest, ATicketGivesEverythingBack) {
  Admission admission(kLimits);
  {
    auto ticket = *admission.Admit({.bytes = 900, .tokens = 90});
    EXPECT_FALSE(admission.Admit({.bytes = 200, .tokens = 1}).ok());
    EXPECT_FALSE(admission.Admit({.bytes = 1, .tokens = 20}).ok());
    const Admission::Ticket moved = std::move(ticket);
    EXPECT_EQ(admission.counts().open_requests, 1);
  }
  const Admission::Counts counts = admission.counts();
  EXPECT_EQ(counts.open_requests, 0);
  EXPECT_EQ(counts.open_bytes, 0);
  EXPECT_EQ(counts.queued_requests, 0);
  EXPECT_EQ(counts.queued_tokens, 0);
}

TEST(AdmissionTest, APromptIsQueuedUntilItsAnswerBegins) {
  Admission admission(kLimits);
  auto ticket = *admission.Admit({.bytes = 1, .tokens = 90});
  EXPECT_FALSE(admission.Admit({.bytes = 1, .tokens = 20}).ok());
  ticket.MarkStarted();
  ticket.MarkStarted();
  EXPECT_EQ(admission.counts().queued_tokens, 0);
  EXPECT_EQ(admission.counts().open_requests, 1);
  EXPECT_TRUE(admission.Admit({.bytes = 1, .tokens = 20}).ok());
}

TEST(AdmissionTest, APromptLargerThanTheQueueIsTakenAlone) {
  Admission admission(kLimits);
  EXPECT_TRUE(admission.Admit({.bytes = 1, .tokens = 500}).ok());
  const auto small = *admission.Admit({.bytes = 1, .tokens = 1});
  EXPECT_FALSE(admission.Admit({.bytes = 1, .tokens = 500}).ok());
}

AdmissionRequest Of(const std::string& tenant, int64_t tokens = 1) {
  return {.bytes = 1, .tokens = tokens, .tenant = tenant};
}

absl::Duration RetryOf(const absl::Status& status) {
  return protocol::RetryDelayOf(status).value_or(absl::ZeroDuration());
}

TEST(AdmissionTest, ATenantHasSoManyRequestsOpenAndOthersAreNotAsked) {
  Admission admission({.tenant = {.max_open_requests = 2}});
  auto a = *admission.Admit(Of("a"));
  const auto b = *admission.Admit(Of("a"));
  const absl::Status rejected = admission.Admit(Of("a")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(rejected));
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonRateLimited);
  EXPECT_TRUE(protocol::RetryDelayOf(rejected).has_value());
  EXPECT_TRUE(admission.Admit(Of("b")).ok());
  a = Admission::Ticket();
  EXPECT_TRUE(admission.Admit(Of("a")).ok());
}

TEST(AdmissionTest, ARateIsKeptAndTheHintIsWhenThereIsRoom) {
  ManualClock clock;
  Admission admission({.tenant = {.requests_per_second = 2, .burst_seconds = 2}}, &clock);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(admission.Admit(Of("a")).ok()) << i;
  const absl::Status rejected = admission.Admit(Of("a")).status();
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonRateLimited);
  EXPECT_EQ(RetryOf(rejected), absl::Milliseconds(500));
  EXPECT_TRUE(admission.Admit(Of("b")).ok());
  clock.Advance(absl::Milliseconds(499));
  EXPECT_FALSE(admission.Admit(Of("a")).ok());
  clock.Advance(absl::Milliseconds(2));
  EXPECT_TRUE(admission.Admit(Of("a")).ok());
  EXPECT_FALSE(admission.Admit(Of("a")).ok());
  clock.Advance(absl::Hours(1));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(admission.Admit(Of("a")).ok()) << i;
  EXPECT_FALSE(admission.Admit(Of("a")).ok());
}

TEST(AdmissionTest, ALongPromptIsTakenOnceAndPaidOffAfterwards) {
  ManualClock clock;
  Admission admission({.tenant = {.prompt_tokens_per_second = 100, .burst_seconds = 1}}, &clock);
  EXPECT_TRUE(admission.Admit(Of("a", 1100)).ok());
  EXPECT_GT(RetryOf(admission.Admit(Of("a", 1)).status()), absl::Seconds(9.9));
  clock.Advance(absl::Seconds(9.9));
  EXPECT_FALSE(admission.Admit(Of("a", 1)).ok());
  clock.Advance(absl::Seconds(0.2));
  EXPECT_TRUE(admission.Admit(Of("a", 1)).ok());
}

TEST(AdmissionTest, TenantsThatAreGoneAreForgotten) {
  ManualClock clock;
  Admission admission({.tenant = {.requests_per_second = 1, .burst_seconds = 1}}, &clock);
  const auto open = *admission.Admit(Of("stays"));
  for (int i = 0; i < 10000; ++i) {
    EXPECT_TRUE(admission.Admit(Of("t" + std::to_string(i))).ok());
    clock.Advance(absl::Milliseconds(100));
  }
  EXPECT_LT(admission.num_tenants(), 200);
}

TEST(AdmissionTest, WhoFloodsLeavesRoomForWhoComesBesideIt) {
  Admission admission({.max_queued_tokens = 1000});
  std::vector<Admission::Ticket> tickets;
  while (true) {
    auto ticket = admission.Admit(Of("flood", 10));
    if (!ticket.ok()) break;
    tickets.push_back(*std::move(ticket));
  }
  EXPECT_EQ(admission.counts().queued_tokens, 800);
  // A light tenant gets in, and a second flood up to four fifths of what is free.
  for (int i = 0; i < 5; ++i) {
    auto light = admission.Admit(Of("light", 10));
    ASSERT_TRUE(light.ok()) << light.status();
    tickets.push_back(*std::move(light));
  }
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Of("flood", 10)).status()),
            protocol::kReasonOverloaded);
}

AdmissionRequest Continuation(const std::string& tenant, int64_t tokens = 1) {
  AdmissionRequest request = Of(tenant, tokens);
  request.is_continuation = true;
  return request;
}

TEST(AdmissionTest, WhatGoesOnIsTakenBeyondTheRatesAndPaidOffBeforeAnythingNew) {
  ManualClock clock;
  Admission admission({.tenant = {.requests_per_second = 10, .prompt_tokens_per_second = 100}},
                      &clock);
  // Another gateway has died with a thousand streams.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(admission.Admit(Continuation("a", 10)).status(), absl::OkStatus()) << i;
  }
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Of("a")).status()), protocol::kReasonRateLimited);
  clock.Advance(absl::Seconds(89));
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Of("a")).status()), protocol::kReasonRateLimited);
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(admission.Admit(Of("a")).status(), absl::OkStatus());
}

TEST(AdmissionTest, DebtHasABoundSoThatNobodyCallsEverythingAContinuation) {
  ManualClock clock;
  Admission admission({.tenant = {.requests_per_second = 1, .burst_seconds = 1, .debt_seconds = 5}},
                      &clock);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(admission.Admit(Continuation("a")).ok()) << i;
  const absl::Status rejected = admission.Admit(Continuation("a")).status();
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonRateLimited);
  EXPECT_EQ(RetryOf(rejected), absl::Seconds(1));
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE(admission.Admit(Continuation("a")).ok());
  EXPECT_FALSE(admission.Admit(Continuation("a")).ok());
}

TEST(AdmissionTest, WhatGoesOnMayBeOpenTwiceAsOften) {
  Admission admission({.tenant = {.max_open_requests = 2}});
  std::vector<Admission::Ticket> tickets;
  tickets.push_back(*admission.Admit(Of("a")));
  tickets.push_back(*admission.Admit(Of("a")));
  EXPECT_FALSE(admission.Admit(Of("a")).ok());
  tickets.push_back(*admission.Admit(Continuation("a")));
  tickets.push_back(*admission.Admit(Continuation("a")));
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Continuation("a")).status()),
            protocol::kReasonRateLimited);
}

TEST(AdmissionTest, WhatGoesOnIsTakenBeyondShareAndPriorityAndLeavesATenthOfTheQueue) {
  Admission admission({.max_open_bytes = 100, .max_queued_tokens = 1000});
  const auto a = *admission.Admit(Of("a", 800));
  EXPECT_FALSE(admission.Admit(Of("a", 1)).ok());
  AdmissionRequest request = Continuation("a", 100);
  request.priority = -1;
  const auto b = *admission.Admit(request);
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(request).status()), protocol::kReasonOverloaded);
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Continuation("a")).status()),
            protocol::kReasonOverloaded);
  EXPECT_TRUE(admission.Admit(Of("light", 100)).ok());
  EXPECT_TRUE(admission.Admit(Continuation("light", 100)).ok());
  request.tokens = 0;
  request.bytes = 99;
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(request).status()), protocol::kReasonOverloaded);
}

TEST(AdmissionTest, WhoCallsEverythingAContinuationLocksNobodyOut) {
  for (const int64_t tokens : {16, 1000, 100'000}) {
    Admission admission({});
    std::vector<Admission::Ticket> tickets;
    while (true) {
      auto ticket = admission.Admit(Continuation("flood", tokens));
      if (!ticket.ok()) break;
      tickets.push_back(*std::move(ticket));
    }
    std::vector<Admission::Ticket> light;
    for (int i = 0; i < 3; ++i) {
      auto ticket = admission.Admit(Of("light", tokens));
      ASSERT_EQ(ticket.status(), absl::OkStatus()) << tokens;
      light.push_back(*std::move(ticket));
    }
    EXPECT_EQ(protocol::ReasonOf(admission.Admit(Continuation("flood", tokens)).status()),
              protocol::kReasonOverloaded);
  }
}

TEST(AdmissionTest, NoLimitIsTooLargeToCompareWith) {
  for (const int64_t limit :
       {int64_t{1} << 61, int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    Admission admission({.max_queued_tokens = limit});
    const auto a = *admission.Admit(Of("a", 10));
    EXPECT_EQ(admission.Admit(Of("a", 10)).status(), absl::OkStatus()) << limit;
  }
}

TEST(AdmissionTest, OpenRequestsOfOneTenantLeaveAFifthToOthersHoweverShortTheirPromptsAre) {
  Admission admission({});
  std::vector<Admission::Ticket> tickets;
  absl::Status rejected;
  while (rejected.ok()) {
    auto ticket = admission.Admit(Of("flood", 16));
    rejected = ticket.status();
    if (!ticket.ok()) break;
    // They are open, but no longer queued.
    if (tickets.size() % 2 == 0) ticket->MarkStarted();
    tickets.push_back(*std::move(ticket));
  }
  EXPECT_EQ(tickets.size(), 16000);
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(rejected).has_value());
  std::vector<Admission::Ticket> light;
  for (int i = 0; i < 3200; ++i) {
    auto ticket = admission.Admit(Of("light", 16));
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    light.push_back(*std::move(ticket));
  }
  EXPECT_TRUE(admission.Admit(Of("third", 16)).ok());
  // The flood may not use what another tenant has.
  tickets.resize(tickets.size() - 1000);
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Of("flood", 16)).status()),
            protocol::kReasonOverloaded);
  light.clear();
  EXPECT_TRUE(admission.Admit(Of("flood", 16)).ok());
}

TEST(AdmissionTest, BytesOfOneTenantLeaveAFifthToOthersHoweverLargeItsLastRequestIs) {
  Admission admission({.max_open_bytes = 1000});
  AdmissionRequest request = Of("flood");
  request.bytes = 700;
  const auto a = *admission.Admit(request);
  request.bytes = 300;
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(request).status()), protocol::kReasonOverloaded);
  request.bytes = 101;
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(request).status()), protocol::kReasonOverloaded);
  request.bytes = 100;
  const auto b = *admission.Admit(request);
  request.tenant = "light";
  EXPECT_TRUE(admission.Admit(request).ok());
}

TEST(AdmissionTest, WhatGoesOnIsTakenBeyondTheTenantsOpenRequestsAndLeavesATenth) {
  Admission admission({.max_open_requests = 100, .max_open_bytes = 1000});
  std::vector<Admission::Ticket> tickets;
  for (int i = 0; i < 80; ++i) tickets.push_back(*admission.Admit(Of("a")));
  EXPECT_FALSE(admission.Admit(Of("a")).ok());
  for (int i = 0; i < 10; ++i) tickets.push_back(*admission.Admit(Continuation("a")));
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(Continuation("a")).status()),
            protocol::kReasonOverloaded);
  EXPECT_TRUE(admission.Admit(Of("light")).ok());
  tickets.clear();

  AdmissionRequest request = Of("a");
  request.bytes = 800;
  tickets.push_back(*admission.Admit(request));
  request.bytes = 100;
  EXPECT_FALSE(admission.Admit(request).ok());
  request.is_continuation = true;
  tickets.push_back(*admission.Admit(request));
  request.bytes = 1;
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(request).status()), protocol::kReasonOverloaded);
  EXPECT_TRUE(admission.Admit(Of("light")).ok());
}

TEST(AdmissionTest, AFewOpenRequestsAreNotShared) {
  Admission admission({.max_open_requests = 2});
  const auto a = *admission.Admit(Of("a"));
  EXPECT_TRUE(admission.Admit(Of("a")).ok());
}

TEST(AdmissionTest, NegativePriorityStopsAtHalfTheQueue) {
  Admission admission({.max_queued_tokens = 1000});
  const auto a = *admission.Admit(Of("a", 400));
  AdmissionRequest batch = Of("b", 200);
  batch.priority = -1;
  EXPECT_EQ(protocol::ReasonOf(admission.Admit(batch).status()), protocol::kReasonOverloaded);
  EXPECT_TRUE(admission.Admit(Of("b", 200)).ok());
  batch.tokens = 50;
  EXPECT_TRUE(admission.Admit(batch).ok());
}

class AdmissionDeadlineTest : public ::testing::Test {
 protected:
  // Ten requests of 100 tokens, one begun each second, and each followed by another.
  void SetUp() override {
    for (int i = 0; i < 10; ++i) Send();
    for (int i = 0; i < 30; ++i) {
      clock_.Advance(absl::Seconds(1));
      tickets_.front().MarkStarted();
      tickets_.erase(tickets_.begin());
      Send();
    }
  }
  void Send() {
    tickets_.push_back(*admission_.Admit(Of("a", 100)));
    tickets_.back().SetSent(true);
  }
  AdmissionRequest WithTime(absl::Duration left) {
    AdmissionRequest request = Of("a", 100);
    request.time_left = left;
    return request;
  }

  ManualClock clock_;
  Admission admission_{AdmissionLimits{}, &clock_};
  std::vector<Admission::Ticket> tickets_;
};

TEST_F(AdmissionDeadlineTest, ADeadlineThatWouldPassInTheQueueIsRejectedAtOnce) {
  // Requests wait 10 s now, and slightly longer waits are allowed.
  const absl::Status rejected = admission_.Admit(WithTime(absl::Seconds(4))).status();
  EXPECT_TRUE(absl::IsResourceExhausted(rejected)) << rejected;
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonOverloaded);
  EXPECT_GT(RetryOf(rejected), absl::Seconds(6));
  EXPECT_LT(RetryOf(rejected), absl::Seconds(9));
  EXPECT_TRUE(admission_.Admit(WithTime(absl::Seconds(13))).ok());
  EXPECT_TRUE(admission_.Admit(WithTime(absl::InfiniteDuration())).ok());
}

TEST_F(AdmissionDeadlineTest, ADeadlineThatHasPassedIsNoOverload) {
  const Admission::Counts before = admission_.counts();
  for (const absl::Duration left : {absl::ZeroDuration(), -absl::Seconds(3)}) {
    const absl::Status rejected = admission_.Admit(WithTime(left)).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(rejected)) << rejected;
  }
  EXPECT_EQ(admission_.counts().open_requests, before.open_requests);
}

TEST_F(AdmissionDeadlineTest, AShorterQueueMeansAShorterWaitAndALongerOneALonger) {
  for (int i = 0; i < 90; ++i) Send();
  EXPECT_FALSE(admission_.Admit(WithTime(absl::Seconds(90))).ok());
  EXPECT_TRUE(admission_.Admit(WithTime(absl::Seconds(130))).ok());
  tickets_.resize(3);
  EXPECT_TRUE(admission_.Admit(WithTime(absl::Seconds(4))).ok());
  EXPECT_FALSE(admission_.Admit(WithTime(absl::Seconds(1))).ok());
  tickets_.clear();
  EXPECT_TRUE(admission_.Admit(WithTime(absl::Milliseconds(1))).ok());
}

TEST_F(AdmissionDeadlineTest, OfOtherModelsAndPrioritiesItTellsNothing) {
  AdmissionRequest other = WithTime(absl::Seconds(4));
  other.model = "other";
  EXPECT_TRUE(admission_.Admit(other).ok());
  other.model.clear();
  other.priority = 1;
  EXPECT_TRUE(admission_.Admit(other).ok());
}

TEST_F(AdmissionDeadlineTest, WhatGoesOnIsNotRejectedByIt) {
  AdmissionRequest request = WithTime(absl::Seconds(4));
  request.is_continuation = true;
  EXPECT_TRUE(admission_.Admit(request).ok());
}

TEST_F(AdmissionDeadlineTest, WhereAWorkerIsFreeTheQueueOfOthersTurnsNobodyAway) {
  AdmissionRequest request = WithTime(absl::Seconds(4));
  EXPECT_FALSE(admission_.Admit(request).ok());
  request.has_free_worker = true;
  EXPECT_TRUE(admission_.Admit(request).ok());
}

TEST_F(AdmissionDeadlineTest, WhatWasLongAgoTellsNothing) {
  tickets_.clear();
  clock_.Advance(absl::Seconds(11));
  Send();
  EXPECT_TRUE(admission_.Admit(WithTime(absl::Milliseconds(1))).ok());
}

}  // namespace
}  // namespace continuo::gateway
