// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_verdict.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

constexpr std::optional<v1::WorkerState> kNothing = std::nullopt;
constexpr std::optional<v1::WorkerState> kLoading = v1::WORKER_STATE_LOADING;
constexpr std::optional<v1::WorkerState> kServing = v1::WORKER_STATE_SERVING;
constexpr std::optional<v1::WorkerState> kDraining = v1::WORKER_STATE_DRAINING;
constexpr std::optional<v1::WorkerState> kUnspecified = v1::WORKER_STATE_UNSPECIFIED;

absl::Duration At(int milliseconds) { return absl::Milliseconds(milliseconds); }

// Verdicts of a worker in one situation each.
WorkerVerdict Closed() { return WorkerVerdict(); }
WorkerVerdict Connecting() {
  WorkerVerdict verdict;
  verdict.OnConnecting(At(0));
  return verdict;
}
WorkerVerdict Reporting() {
  WorkerVerdict verdict = Connecting();
  verdict.OnReport(At(0));
  verdict.OnBeginServing(At(0));
  return verdict;
}
WorkerVerdict NotServing() {
  WorkerVerdict verdict = Reporting();
  verdict.OnHealth(/*not_serving=*/true, At(1000));
  verdict.OnReport(At(1300));
  return verdict;
}
WorkerVerdict Hung() {
  WorkerVerdict verdict = NotServing();
  EXPECT_EQ(verdict.Check(At(1400), At(0), /*claims_serving=*/true), Verdict::kHung);
  return verdict;
}
WorkerVerdict Silent() {
  WorkerVerdict verdict = Reporting();
  EXPECT_EQ(verdict.Check(At(2001), At(0), /*claims_serving=*/true), Verdict::kSilent);
  return verdict;
}
WorkerVerdict Ended() {
  WorkerVerdict verdict = Reporting();
  verdict.OnEnd();
  return verdict;
}

TEST(WorkerVerdictTest, EachSituationHasItsVerdict) {
  struct Row {
    const char* name;
    WorkerVerdict worker;
    ModelEvidence evidence;
    Verdict verdict;
    WorkerState state;
  };
  const std::vector<Row> rows = {
      // Without reports the evidence of before does not matter.
      {"closed", Closed(), {kNothing}, Verdict::kLost, WorkerState::kLost},
      {"closed, serving before", Closed(), {kServing}, Verdict::kLost, WorkerState::kLost},
      {"ended", Ended(), {kServing}, Verdict::kLost, WorkerState::kLost},
      {"connecting", Connecting(), {kNothing}, Verdict::kConnecting, WorkerState::kLost},
      {"connecting, serving before",
       Connecting(),
       {kServing},
       Verdict::kConnecting,
       WorkerState::kLost},
      {"silent", Silent(), {kServing}, Verdict::kSilent, WorkerState::kLost},
      {"another model reports", Reporting(), {kNothing}, Verdict::kLost, WorkerState::kLost},
      // The report counts.
      {"loading", Reporting(), {kLoading}, Verdict::kLoading, WorkerState::kLoading},
      {"unspecified", Reporting(), {kUnspecified}, Verdict::kLoading, WorkerState::kLoading},
      {"serving", Reporting(), {kServing}, Verdict::kServing, WorkerState::kServing},
      {"slow", Reporting(), {kServing, true, true}, Verdict::kSlow, WorkerState::kServing},
      {"draining", Reporting(), {kDraining}, Verdict::kDraining, WorkerState::kDraining},
      {"draining, slow",
       Reporting(),
       {kDraining, true, true},
       Verdict::kDraining,
       WorkerState::kDraining},
      // An unlisted worker drains; one that loads goes on loading.
      {"unlisted", Reporting(), {kServing, false}, Verdict::kDraining, WorkerState::kDraining},
      {"unlisted, slow",
       Reporting(),
       {kServing, false, true},
       Verdict::kDraining,
       WorkerState::kDraining},
      {"unlisted, loading",
       Reporting(),
       {kLoading, false},
       Verdict::kLoading,
       WorkerState::kLoading},
      // Health alone is no verdict; a confirmed contradiction is one.
      {"not serving", NotServing(), {kServing}, Verdict::kServing, WorkerState::kServing},
      {"hung", Hung(), {kServing}, Verdict::kHung, WorkerState::kHung},
      {"hung, slow", Hung(), {kServing, true, true}, Verdict::kHung, WorkerState::kHung},
      {"hung, unlisted", Hung(), {kServing, false}, Verdict::kDraining, WorkerState::kDraining},
      {"hung, draining", Hung(), {kDraining}, Verdict::kDraining, WorkerState::kDraining},
      {"hung, loading", Hung(), {kLoading}, Verdict::kLoading, WorkerState::kLoading},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(row.worker.Judge(row.evidence), row.verdict) << row.name;
    EXPECT_EQ(RoutingState(row.worker.Judge(row.evidence)), row.state) << row.name;
  }
}

TEST(WorkerVerdictTest, OnlyAWorkerThatReportedHasAReport) {
  EXPECT_FALSE(Closed().has_report());
  EXPECT_FALSE(Connecting().has_report());
  EXPECT_TRUE(Reporting().has_report());
  EXPECT_TRUE(Silent().has_report());
  EXPECT_FALSE(Ended().has_report());
}

TEST(WorkerVerdictTest, SilenceBeginsAfterTheLastReport) {
  WorkerVerdict verdict = Reporting();
  verdict.OnReport(At(500));
  EXPECT_EQ(verdict.Check(At(2500), At(0), true), std::nullopt);
  EXPECT_EQ(verdict.Check(At(2501), At(0), true), Verdict::kSilent);
  // It is found once.
  EXPECT_EQ(verdict.Check(At(9000), At(0), true), std::nullopt);
  verdict.OnReport(At(9000));
  EXPECT_EQ(verdict.Judge({kServing}), Verdict::kServing);
  EXPECT_EQ(verdict.Check(At(11001), At(0), true), Verdict::kSilent);
}

TEST(WorkerVerdictTest, AWatchThatNeverReportsIsSilent) {
  WorkerVerdict verdict = Connecting();
  EXPECT_EQ(verdict.Check(At(2000), At(0), false), std::nullopt);
  EXPECT_EQ(verdict.Check(At(2001), At(0), false), Verdict::kSilent);
}

TEST(WorkerVerdictTest, AWatchThatEndedIsNotSilent) {
  WorkerVerdict verdict = Ended();
  EXPECT_EQ(verdict.Check(At(9000), At(0), true), std::nullopt);
}

TEST(WorkerVerdictTest, APauseOfThisProcessIsNoSilence) {
  WorkerVerdict verdict = Reporting();
  EXPECT_EQ(verdict.Check(At(60000), /*awake_time=*/At(60000), true), std::nullopt);
  EXPECT_EQ(verdict.Check(At(62000), At(60000), true), std::nullopt);
  EXPECT_EQ(verdict.Check(At(62001), At(60000), true), Verdict::kSilent);
}

TEST(WorkerVerdictTest, HungNeedsAConfirmedContradiction) {
  struct Row {
    const char* name;
    int not_serving, report, check, awake;  // Times in milliseconds.
    bool claims_serving, hung;
  };
  for (const Row& row : std::vector<Row>{
           {"confirmed", 1000, 1200, 1400, 0, true, true},
           {"too early", 1000, 1200, 1399, 0, true, false},
           {"the last report is too old", 1000, 1199, 1400, 0, true, false},
           {"the last report came before", 1000, 500, 1400, 0, true, false},
           {"nothing is served", 1000, 1200, 1400, 0, false, false},
           {"just awake", 1000, 1200, 1400, 1001, true, false},
       }) {
    WorkerVerdict verdict = Reporting();
    verdict.OnHealth(/*not_serving=*/true, At(row.not_serving));
    verdict.OnReport(At(row.report));
    EXPECT_EQ(verdict.Check(At(row.check), At(row.awake), row.claims_serving),
              row.hung ? std::optional(Verdict::kHung) : std::nullopt)
        << row.name;
  }
}

TEST(WorkerVerdictTest, AReportThatBeginsToServeRestartsTheConfirmation) {
  WorkerVerdict verdict = NotServing();
  verdict.OnBeginServing(At(1300));
  EXPECT_EQ(verdict.Check(At(1400), At(0), true), std::nullopt);
  verdict.OnReport(At(1500));
  EXPECT_EQ(verdict.Check(At(1699), At(0), true), std::nullopt);
  EXPECT_EQ(verdict.Check(At(1700), At(0), true), Verdict::kHung);
}

TEST(WorkerVerdictTest, HungLastsUntilTheHealthServesAgain) {
  WorkerVerdict verdict = Hung();
  EXPECT_EQ(verdict.Check(At(1500), At(0), true), std::nullopt);
  verdict.OnHealth(/*not_serving=*/true, At(1600));
  verdict.OnReport(At(1600));
  EXPECT_EQ(verdict.Judge({kServing}), Verdict::kHung);
  verdict.OnHealth(/*not_serving=*/false, At(1700));
  EXPECT_EQ(verdict.Judge({kServing}), Verdict::kServing);
}

TEST(WorkerVerdictTest, AHealthThatAReportTellsNeedsNoOtherReport) {
  WorkerVerdict verdict;
  verdict.OnConnecting(At(0));
  verdict.OnReport(At(1000));
  verdict.OnReportedHealth(/*not_serving=*/true, At(1000));
  EXPECT_EQ(verdict.Check(At(1399), At(0), true), std::nullopt);
  EXPECT_EQ(verdict.Check(At(1400), At(0), true), Verdict::kHung);
  verdict.OnReport(At(1500));
  verdict.OnReportedHealth(/*not_serving=*/false, At(1500));
  EXPECT_EQ(verdict.Judge({kServing}), Verdict::kServing);
}

TEST(WorkerVerdictTest, ANewWatchForgetsTheHealth) {
  WorkerVerdict verdict = Hung();
  verdict.OnEnd();
  verdict.OnConnecting(At(2000));
  verdict.OnReport(At(2000));
  EXPECT_EQ(verdict.Judge({kServing}), Verdict::kServing);
}

TEST(WorkerVerdictTest, EachVerdictHasAName) {
  EXPECT_EQ(std::string(VerdictName(Verdict::kSilent)), "silent");
  EXPECT_EQ(std::string(VerdictName(Verdict::kHung)), "hung");
  EXPECT_EQ(std::string(VerdictName(Verdict::kLost)), "lost");
}

}  // namespace
}  // namespace continuo::gateway
