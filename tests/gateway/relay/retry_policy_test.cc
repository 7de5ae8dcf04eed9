// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/retry_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using Action = RetryDecision::Action;

constexpr absl::Duration kNow = absl::Seconds(100);

absl::Status Draining() {
  return protocol::WithReason(absl::UnavailableError("draining"), protocol::kReasonDraining);
}

CallFailure Failure(WorkerEnd end, absl::Status status = absl::UnavailableError("reset")) {
  return {.end = end, .status = std::move(status), .address = "a:1", .incarnation = "a-1"};
}
CallFailure Crash(const std::string& address) {
  return {.end = WorkerEnd::kLost,
          .status = absl::UnavailableError("reset"),
          .address = address,
          .incarnation = address + "-1",
          .was_accepted = true};
}

// A policy with the times of a test.
struct PolicyTest : testing::Test {
  explicit PolicyTest(const RetryOptions& o = {}) : options(o) {}

  RetryPolicy Policy(RetryBudget* budget = nullptr) { return {options, budget, /*seed=*/1, kNow}; }
  // A new call that fails at once.
  RetryDecision Fail(RetryPolicy& policy, const CallFailure& failure, absl::Duration now = kNow) {
    policy.OnCallStarted(now);
    return policy.OnFailure(failure, now);
  }
  RetryDecision BeforeCall(RetryPolicy& policy, ProcessState state, absl::Duration now = kNow,
                           absl::Duration time_left = absl::InfiniteDuration()) {
    return policy.BeforeCall(now, time_left, [&](const SuspectedCrash&) { return state; });
  }

  RetryOptions options;
};
using RetryPolicyTest = PolicyTest;

TEST_F(RetryPolicyTest, TheFirstEndOfACallDecidesAsTheTableSays) {
  struct Row {
    WorkerEnd end;
    absl::Status status;
    bool accepted;
    Action action;
    std::string reason;
    bool migrates;
  };
  const absl::Status full = absl::ResourceExhaustedError("full");
  const Row rows[] = {
      {WorkerEnd::kComplete, absl::UnavailableError("late"), true, Action::kConclude, "", false},
      {WorkerEnd::kDrained, Draining(), false, Action::kWait, "drained", true},
      {WorkerEnd::kDrained, Draining(), true, Action::kWait, "drained", true},
      {WorkerEnd::kLost, absl::UnavailableError("reset"), false, Action::kWait, "lost", true},
      {WorkerEnd::kLost, absl::OkStatus(), true, Action::kWait, "lost", true},
      {WorkerEnd::kSilent, absl::UnavailableError("silent"), true, Action::kWait, "silent", true},
      {WorkerEnd::kFault, absl::InternalError("gap"), true, Action::kWait, "fault", true},
      {WorkerEnd::kOverloaded, full, false, Action::kRetry, "rejected", false},
      {WorkerEnd::kOverloaded, full, true, Action::kWait, "overloaded", true},
      {WorkerEnd::kFinal, absl::InvalidArgumentError("no"), false, Action::kConclude, "", false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(row.end) << " " << row.accepted);
    RetryPolicy policy = Policy();
    CallFailure failure = Failure(row.end, row.status);
    failure.was_accepted = row.accepted;
    const RetryDecision decision = Fail(policy, failure);
    EXPECT_EQ(decision.action, row.action);
    EXPECT_EQ(decision.reason, row.reason);
    EXPECT_EQ(decision.is_migration, row.migrates);
    EXPECT_EQ(policy.next_is_migration(), row.action != Action::kRetry);
    if (row.action == Action::kConclude) {
      EXPECT_EQ(decision.status, row.end == WorkerEnd::kComplete ? absl::OkStatus() : row.status);
    }
  }
}

TEST_F(RetryPolicyTest, TheBackOffDoublesWithEachMigrationWithoutProgress) {
  RetryPolicy policy = Policy();
  absl::Duration limit = options.backoff_base;
  for (int i = 0; i < 10; ++i) {
    const RetryDecision decision = Fail(policy, Failure(WorkerEnd::kDrained, Draining()));
    EXPECT_THAT(decision.delay, AllOf(Ge(limit / 2), Le(limit))) << i;
    limit = std::min(2 * limit, options.backoff_max);
  }
  policy.OnProgress();
  EXPECT_LE(Fail(policy, Failure(WorkerEnd::kDrained, Draining())).delay, options.backoff_base);
}

TEST_F(RetryPolicyTest, FailuresAreCountedByWorkerUntilProgress) {
  RetryPolicy policy = Policy();
  for (const char* address : {"a:1", "b:1", "a:1"}) {
    CallFailure failure = Failure(WorkerEnd::kLost);
    failure.address = address;
    Fail(policy, failure);
  }
  ASSERT_EQ(policy.failures().size(), 2);
  EXPECT_EQ(policy.failures()[0].address, "a:1");
  EXPECT_EQ(policy.failures()[0].count, 2);
  EXPECT_EQ(policy.failures()[1].count, 1);
  policy.OnProgress();
  EXPECT_THAT(policy.failures(), IsEmpty());
}

TEST_F(RetryPolicyTest, TheThirdFaultWithoutProgressIsPassedOn) {
  const CallFailure fault = Failure(WorkerEnd::kFault, absl::InternalError("gap"));
  RetryPolicy policy = Policy();
  EXPECT_EQ(Fail(policy, fault).action, Action::kWait);
  EXPECT_EQ(Fail(policy, fault).action, Action::kWait);
  policy.OnProgress();
  EXPECT_EQ(Fail(policy, fault).action, Action::kWait);
  EXPECT_EQ(Fail(policy, fault).action, Action::kWait);
  const RetryDecision third = Fail(policy, fault);
  EXPECT_EQ(third.action, Action::kConclude);
  EXPECT_EQ(third.status, fault.status);
  EXPECT_FALSE(third.is_migration);
}

TEST_F(RetryPolicyTest, ThreeWorkersMayRejectANewRequest) {
  RetryPolicy policy = Policy();
  CallFailure full = Failure(WorkerEnd::kOverloaded, absl::ResourceExhaustedError("full"));
  for (const char* address : {"a:1", "b:1"}) {
    full.address = address;
    EXPECT_EQ(Fail(policy, full).action, Action::kRetry);
    EXPECT_FALSE(policy.next_is_migration());
  }
  EXPECT_THAT(policy.rejected_by(), ElementsAre("a:1", "b:1"));
  const RetryDecision third = Fail(policy, full);
  EXPECT_EQ(third.action, Action::kConclude);
  EXPECT_TRUE(absl::IsResourceExhausted(third.status));
  EXPECT_EQ(protocol::RetryDelayOf(third.status), absl::Seconds(1));
}

TEST_F(RetryPolicyTest, WhereNoOtherWorkerIsLeftTheRejectionIsPassedOn) {
  RetryPolicy policy = Policy();
  const absl::Status full =
      protocol::WithRetryInfo(absl::ResourceExhaustedError("full"), absl::Seconds(7));
  Fail(policy, Failure(WorkerEnd::kOverloaded, full));
  const RetryDecision decision =
      policy.OnNoWorker(absl::UnavailableError("no other"), /*is_cold=*/false, kNow);
  EXPECT_EQ(decision.action, Action::kConclude);
  EXPECT_EQ(decision.status, full);
}

TEST_F(RetryPolicyTest, AMigrationIsNeverTakenForANewRequest) {
  RetryPolicy policy = Policy();
  const CallFailure full = Failure(WorkerEnd::kOverloaded, absl::ResourceExhaustedError("full"));
  Fail(policy, full);  // rejected as new
  Fail(policy, Failure(WorkerEnd::kLost));
  EXPECT_TRUE(policy.next_is_migration());
  EXPECT_THAT(policy.rejected_by(), IsEmpty());
  const RetryDecision decision = Fail(policy, full);
  EXPECT_EQ(decision.reason, "overloaded");
  EXPECT_TRUE(decision.is_migration);
}

TEST_F(RetryPolicyTest, ThreeCrashesAreJudgedByWhatBecameOfTheProcesses) {
  struct Row {
    ProcessState state;
    absl::Duration later;
    Action action;
    std::string_view reason;  // of the status
  };
  const absl::Duration confirm = options.crash_confirm_timeout;
  const absl::Duration wait = options.no_worker_wait;
  const Row rows[] = {
      {ProcessState::kExited, absl::ZeroDuration(), Action::kConclude, protocol::kReasonPoison},
      {ProcessState::kAlive, absl::ZeroDuration(), Action::kRetry, ""},
      {ProcessState::kUnknown, absl::ZeroDuration(), Action::kWait, ""},
      {ProcessState::kUnknown, confirm - absl::Milliseconds(1), Action::kWait, ""},
      {ProcessState::kUnknown, confirm, Action::kRetry, ""},
      {ProcessState::kHung, confirm, Action::kWait, ""},
      {ProcessState::kHung, wait - absl::Milliseconds(1), Action::kWait, ""},
      {ProcessState::kHung, wait, Action::kConclude, protocol::kReasonWorkerLost},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(row.state) << " " << row.later);
    RetryPolicy policy = Policy();
    for (const char* address : {"a:1", "b:1", "c:1"}) Fail(policy, Crash(address));
    const RetryDecision decision = BeforeCall(policy, row.state, kNow + row.later);
    EXPECT_EQ(decision.action, row.action);
    EXPECT_EQ(protocol::ReasonOf(decision.status), row.reason);
  }
}

TEST_F(RetryPolicyTest, OnlyLossesAfterAcceptedAndWithoutProgressAreSuspectedCrashes) {
  struct Row {
    WorkerEnd end;
    absl::Status status;
    bool accepted, progress;
    bool is_suspected;
  };
  const absl::Status reset = absl::UnavailableError("reset");
  const Row rows[] = {
      {WorkerEnd::kLost, reset, true, false, true},
      {WorkerEnd::kSilent, reset, true, false, true},
      {WorkerEnd::kLost, reset, false, false, false},
      {WorkerEnd::kLost, reset, true, true, false},
      {WorkerEnd::kLost, absl::CancelledError("reset"), true, false, false},
      {WorkerEnd::kLost, absl::OkStatus(), true, false, false},
      {WorkerEnd::kDrained, Draining(), true, false, false},
  };
  options.max_crashes = 1;
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(row.end) << " " << row.status << " "
                                    << row.accepted << row.progress);
    RetryPolicy policy = Policy();
    CallFailure failure = Failure(row.end, row.status);
    failure.was_accepted = row.accepted;
    failure.made_progress = row.progress;
    Fail(policy, failure);
    EXPECT_EQ(BeforeCall(policy, ProcessState::kExited).action,
              row.is_suspected ? Action::kConclude : Action::kRetry);
  }
}

TEST_F(RetryPolicyTest, TheFirstMigrationIsFreeAndFurtherOnesTakeFromTheBudget) {
  RetryBudget budget({.per_request = 0, .per_second = 0.1, .max = 1, .per_stream_second = 0});
  RetryPolicy policy = Policy(&budget);
  EXPECT_EQ(BeforeCall(policy, ProcessState::kAlive).action, Action::kRetry);
  Fail(policy, Failure(WorkerEnd::kLost));
  EXPECT_EQ(BeforeCall(policy, ProcessState::kAlive).action, Action::kRetry);
  Fail(policy, Failure(WorkerEnd::kLost));
  // The one token; asking again for the same call takes no other.
  EXPECT_EQ(BeforeCall(policy, ProcessState::kAlive).action, Action::kRetry);
  EXPECT_EQ(BeforeCall(policy, ProcessState::kAlive).action, Action::kRetry);
  Fail(policy, Failure(WorkerEnd::kLost));
  const RetryDecision next = BeforeCall(policy, ProcessState::kAlive);
  EXPECT_EQ(next.action, Action::kWait);
  EXPECT_EQ(next.delay, absl::Seconds(10));
  // The next token is this stream's: asking takes no other, and another stream gets a later one.
  const RetryDecision again = BeforeCall(policy, ProcessState::kAlive, kNow + absl::Seconds(4));
  EXPECT_EQ(again.action, Action::kWait);
  EXPECT_EQ(again.delay, absl::Seconds(6));
  const auto lost_twice = [&] {
    auto other = std::make_unique<RetryPolicy>(options, &budget, /*seed=*/1, kNow);
    for (int i = 0; i < 2; ++i) Fail(*other, Failure(WorkerEnd::kLost));
    return other;
  };
  const auto second = lost_twice(), third = lost_twice(), fourth = lost_twice();
  EXPECT_EQ(BeforeCall(*second, ProcessState::kAlive).delay, absl::Seconds(20));
  EXPECT_EQ(BeforeCall(*third, ProcessState::kAlive).delay, options.no_worker_wait);
  EXPECT_EQ(BeforeCall(policy, ProcessState::kAlive, kNow + absl::Seconds(10)).action,
            Action::kRetry);
  // A token that would come after the stream's limit is not waited for.
  const RetryDecision refused = BeforeCall(*fourth, ProcessState::kAlive);
  EXPECT_EQ(refused.action, Action::kConclude);
  EXPECT_EQ(protocol::ReasonOf(refused.status), protocol::kReasonWorkerLost);
  fourth->OnProgress();
  EXPECT_EQ(BeforeCall(*fourth, ProcessState::kAlive).action, Action::kRetry);
}

TEST_F(RetryPolicyTest, ASecondTryOfARejectedRequestTakesFromTheBudget) {
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 1});
  RetryPolicy policy = Policy(&budget);
  const CallFailure full = Failure(WorkerEnd::kOverloaded, absl::ResourceExhaustedError("full"));
  EXPECT_EQ(Fail(policy, full).action, Action::kRetry);
  EXPECT_EQ(Fail(policy, full).action, Action::kConclude);
}

TEST_F(RetryPolicyTest, ATokenBehindTheDeadlineIsNotWaitedFor) {
  RetryBudget budget({.per_request = 0, .per_second = 0.1, .max = 0, .per_stream_second = 0});
  for (const absl::Duration time_left : {absl::Seconds(9), absl::Seconds(11)}) {
    RetryPolicy policy = Policy(&budget);
    for (int i = 0; i < 2; ++i) Fail(policy, Failure(WorkerEnd::kLost));
    const RetryDecision decision = BeforeCall(policy, ProcessState::kAlive, kNow, time_left);
    EXPECT_EQ(decision.action, time_left < absl::Seconds(10) ? Action::kConclude : Action::kWait);
  }
}

TEST_F(RetryPolicyTest, RejectionsTakeNothingThatMigrationsNeed) {
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 1, .per_stream_second = 0});
  RetryPolicy rejected = Policy(&budget), migrates = Policy(&budget);
  Fail(rejected, Failure(WorkerEnd::kOverloaded, absl::ResourceExhaustedError("full")));
  Fail(migrates, Failure(WorkerEnd::kLost));
  Fail(migrates, Failure(WorkerEnd::kLost));
  EXPECT_EQ(BeforeCall(migrates, ProcessState::kAlive).action, Action::kRetry);
}

TEST_F(RetryPolicyTest, WithoutAWorkerItWaitsForTheNearestLimit) {
  struct Row {
    absl::Duration later;
    std::optional<absl::Duration> delay;  // none: the stream ends
  };
  const absl::Duration exact = options.exact_wait, wait = options.no_worker_wait;
  const Row rows[] = {
      {absl::ZeroDuration(), exact}, {exact / 2, exact / 2},
      {exact, wait - exact},         {wait - absl::Seconds(1), absl::Seconds(1)},
      {wait, std::nullopt},
  };
  const absl::Status none =
      protocol::WithReason(absl::UnavailableError("none"), protocol::kReasonNoWorker);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.later);
    RetryPolicy policy = Policy();
    const RetryDecision decision = policy.OnNoWorker(none, /*is_cold=*/false, kNow + row.later);
    EXPECT_EQ(decision.action, row.delay.has_value() ? Action::kWait : Action::kConclude);
    EXPECT_EQ(decision.delay, row.delay.value_or(absl::ZeroDuration()));
    EXPECT_EQ(decision.status, row.delay.has_value() ? absl::OkStatus() : none);
    EXPECT_EQ(policy.allows_inexact(kNow + row.later), row.later >= exact);
  }
}

TEST_F(RetryPolicyTest, ANewStreamWaitsLongerForAColdModel) {
  options.cold_start_wait = absl::Minutes(10);
  const absl::Status none = absl::UnavailableError("none");
  RetryPolicy policy = Policy();
  const absl::Duration late = kNow + absl::Minutes(9);
  EXPECT_EQ(policy.OnNoWorker(none, /*is_cold=*/true, late).delay, absl::Minutes(1));
  // A worker that came and went meanwhile does not end the wait.
  EXPECT_EQ(policy.OnNoWorker(none, /*is_cold=*/false, late).delay, absl::Minutes(1));
  EXPECT_EQ(policy.OnNoWorker(none, true, kNow + absl::Minutes(10)).action, Action::kConclude);

  // The wait is not held against the stream once it has begun.
  Fail(policy, Failure(WorkerEnd::kLost), late);
  EXPECT_EQ(policy.OnNoWorker(none, /*is_cold=*/true, late + options.exact_wait).delay,
            options.no_worker_wait - options.exact_wait);
}

TEST_F(RetryPolicyTest, AColdStartWaitBelowTheOtherWaitCountsForNothing) {
  options.cold_start_wait = absl::ZeroDuration();
  RetryPolicy policy = Policy();
  EXPECT_EQ(policy.OnNoWorker(absl::UnavailableError("none"), true, kNow + absl::Seconds(1)).delay,
            options.no_worker_wait - absl::Seconds(1));
}

TEST_F(RetryPolicyTest, AnErrorOfRoutingThatNoWaitMendsEndsTheStream) {
  const absl::Status unknown = absl::NotFoundError("model");
  const RetryDecision decision = Policy().OnNoWorker(unknown, /*is_cold=*/true, kNow);
  EXPECT_EQ(decision.action, Action::kConclude);
  EXPECT_EQ(decision.status, unknown);
}

TEST_F(RetryPolicyTest, TheTimeWithoutACallIsCountedUntilProgress) {
  const absl::Status none = absl::UnavailableError("none");
  RetryPolicy policy = Policy();
  const absl::Duration later = kNow + absl::Seconds(20);
  Fail(policy, Failure(WorkerEnd::kDrained, Draining()), later);
  // 20 s have passed before that call.
  EXPECT_EQ(policy.OnNoWorker(none, /*is_cold=*/false, later + absl::Seconds(4)).delay,
            absl::Seconds(6));
  policy.OnCallStarted(later + absl::Seconds(4));
  policy.OnProgress();
  policy.OnFailure(Failure(WorkerEnd::kDrained, Draining()), later + absl::Seconds(5));
  EXPECT_EQ(policy.OnNoWorker(none, /*is_cold=*/false, later + absl::Seconds(6)).delay,
            absl::Seconds(29));
}

TEST_F(RetryPolicyTest, WorkersThatBringTheStreamNoFurtherEndItWhenTheWaitIsUsedUp) {
  for (const absl::Status& status :
       {absl::UnavailableError("reset"), absl::ResourceExhaustedError("full")}) {
    const bool is_full = absl::IsResourceExhausted(status);
    RetryPolicy policy = Policy();
    CallFailure failure = Failure(is_full ? WorkerEnd::kOverloaded : WorkerEnd::kLost, status);
    failure.was_accepted = true;
    const absl::Duration late = kNow + options.no_worker_wait;
    EXPECT_EQ(Fail(policy, failure, late).action, Action::kWait);  // the first is always tried
    const RetryDecision second = Fail(policy, failure, late);
    EXPECT_EQ(second.action, Action::kConclude);
    EXPECT_TRUE(second.is_migration);
    if (is_full) {
      EXPECT_EQ(second.status, status);
    } else {
      EXPECT_EQ(protocol::ReasonOf(second.status), protocol::kReasonWorkerLost);
    }
  }
}

}  // namespace
}  // namespace continuo::gateway
