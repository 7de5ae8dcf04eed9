// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/protocol/error.h"
#include "tests/gateway/relay/clock_with_hook.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

class RouterTest : public ::testing::Test {
 protected:
  void SetUp() override { Publish(); }

  WorkerLoad Worker(const std::string& address) {
    return {.address = address,
            .worker = address,
            .incarnation = address + "-1",
            .model = "m",
            .fingerprint = "F",
            .tokenizer_fingerprint = "T",
            .state = WorkerState::kServing,
            .used_kv_blocks = 0,
            .total_kv_blocks = 1000,
            .block_size_tokens = 16,
            .max_running_requests = 64,
            .report_time = clock_.Elapsed()};
  }
  void Publish() {
    LoadSnapshot snapshot;
    for (const WorkerLoad& worker : workers_) {
      snapshot.workers.push_back(std::make_shared<const WorkerLoad>(worker));
    }
    snapshot.known_models = known_models_;
    snapshot.adapters = adapters_;
    snapshot.discovery_complete = true;
    view_.Set(std::move(snapshot));
  }
  // Adds a worker that reports now.
  void Report(WorkerLoad& worker) {
    worker.report_time = clock_.Elapsed();
    Publish();
  }
  std::string PickAddress(const RouteKey& key) {
    const absl::StatusOr<Lease> lease = router_.Pick(key);
    return lease.ok() ? lease->address() : "";
  }

  ManualClock clock_;
  LoadView view_;
  std::mt19937_64 random_{7};
  std::vector<std::string> known_models_ = {"m"};
  std::map<std::string, std::string, std::less<>> adapters_;
  std::vector<WorkerLoad> workers_ = {Worker("a:1"), Worker("b:1")};
  Router router_{&LeastLoadedOfTwo, &view_, &clock_, random_};
};

TEST_F(RouterTest, ALeaseCountsAsInFlightUntilItIsDestroyed) {
  {
    absl::StatusOr<Lease> lease = router_.Pick({.model = "m"});
    ASSERT_TRUE(lease.ok());
    const std::string address = lease->address();
    EXPECT_EQ(router_.InFlight(address), 1);
    const Lease moved = *std::move(lease);
    EXPECT_EQ(router_.InFlight(address), 1);
  }
  EXPECT_EQ(router_.InFlight("a:1") + router_.InFlight("b:1"), 0);
}

TEST_F(RouterTest, OpenRequestsWithoutAReportSpreadOverTheWorkers) {
  std::vector<Lease> leases;
  for (int i = 0; i < 100; ++i) leases.push_back(*router_.Pick({.model = "m"}));
  // Two choices keep them within a few of each other; a blind choice would be 10 apart (sigma).
  EXPECT_NEAR(router_.InFlight("a:1"), 50, 4);
}

TEST_F(RouterTest, WhatAReportShowsIsNotCountedBesideIt) {
  // A prompt of 4,000 tokens is sent to one of them, and then shown by its report.
  const Lease lease = *router_.Pick({.model = "m", .prompt_tokens = 4000});
  WorkerLoad& taken = lease.address() == "a:1" ? workers_[0] : workers_[1];
  WorkerLoad& other = lease.address() == "a:1" ? workers_[1] : workers_[0];
  clock_.Advance(absl::Seconds(1));
  taken.running_requests = 1;
  taken.pending_prompt_tokens = 4000;
  other.running_requests = 1;
  other.pending_prompt_tokens = 4100;
  Report(taken);
  Report(other);
  int hits = 0;
  for (int i = 0; i < 400; ++i) hits += PickAddress({.model = "m"}) == taken.address;
  EXPECT_GT(hits, 250);  // 3 of 4; 1 of 4 if the prompt were counted twice
}

TEST_F(RouterTest, AWorkerIsFreeUntilItGetsARequest) {
  const RouteKey key = {.model = "m"};
  workers_[0].waiting_requests = 3;
  Publish();
  EXPECT_TRUE(router_.HasFree(key));
  EXPECT_TRUE(router_.HasFree({}));
  EXPECT_FALSE(router_.HasFree({.model = "other"}));
  {
    const absl::StatusOr<Lease> lease = router_.Pick(key);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->address(), "b:1");
    EXPECT_FALSE(router_.HasFree(key));
  }
  EXPECT_TRUE(router_.HasFree(key));
  workers_[1].state = WorkerState::kDraining;
  Publish();
  EXPECT_FALSE(router_.HasFree(key));
}

TEST_F(RouterTest, SilentLoadingAndDrainingWorkersTakeNothing) {
  workers_[0].state = WorkerState::kDraining;
  Publish();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(PickAddress({.model = "m"}), "b:1");
  workers_[1].state = WorkerState::kLoading;
  Publish();
  EXPECT_EQ(PickAddress({.model = "m"}), "");

  workers_ = {Worker("a:1"), Worker("b:1")};
  clock_.Advance(absl::Milliseconds(1900));
  Report(workers_[1]);
  clock_.Advance(absl::Milliseconds(200));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(PickAddress({.model = "m"}), "b:1");
}

TEST_F(RouterTest, AJumpOfTheWallClockLosesNobody) {
  for (const absl::Duration jump : {absl::Hours(1), -absl::Hours(2)}) {
    clock_.JumpWallClock(jump);
    EXPECT_NE(PickAddress({.model = "m"}), "");
    EXPECT_NE(router_.CheckProcess("a:1", "a:1-1", clock_.Elapsed() - absl::Seconds(1)),
              ProcessState::kExited);
  }
}

TEST_F(RouterTest, NoWorkerIsUnavailableAndAnUnknownModelNotFound) {
  workers_.clear();
  Publish();
  const absl::Status none = router_.Pick({.model = "m"}).status();
  EXPECT_TRUE(absl::IsUnavailable(none));
  EXPECT_EQ(protocol::ReasonOf(none), protocol::kReasonNoWorker);
  EXPECT_TRUE(absl::IsNotFound(router_.Pick({.model = "x"}).status()));
  known_models_.clear();
  Publish();
  EXPECT_TRUE(absl::IsUnavailable(router_.Pick({.model = "x"}).status()));
}

TEST_F(RouterTest, ADeclaredModelIsColdWhileNoWorkerServesIt) {
  Router router(&LeastLoadedOfTwo, &view_, &clock_, random_, {.declared_models = {"m", "n"}});
  known_models_ = {"m", "n", "undeclared"};
  Publish();
  EXPECT_FALSE(router.IsCold("m"));
  EXPECT_TRUE(router.IsCold("n"));
  EXPECT_FALSE(router.IsCold("undeclared"));
  EXPECT_FALSE(router.IsCold("unknown"));
  EXPECT_FALSE(router.IsCold(""));  // It could be any of them.
  EXPECT_FALSE(router_.IsCold("n"));
  for (WorkerLoad& worker : workers_) worker.state = WorkerState::kLoading;
  Publish();
  EXPECT_TRUE(router.IsCold("m"));
  known_models_ = {"m"};
  Publish();
  EXPECT_TRUE(router.IsCold(""));
}

TEST_F(RouterTest, AnAdapterIsAsColdAsThePoolOfItsModel) {
  Router router(&LeastLoadedOfTwo, &view_, &clock_, random_, {.declared_models = {"m"}});
  known_models_ = {"m", "poet"};
  adapters_ = {{"poet", "m"}};
  Publish();
  EXPECT_FALSE(router.IsCold("poet")) << "workers of the model are there, and do not have it";
  for (WorkerLoad& worker : workers_) worker.state = WorkerState::kLoading;
  Publish();
  EXPECT_TRUE(router.IsCold("poet"));
  EXPECT_TRUE(router.IsCold("m"));
  workers_.clear();
  Publish();
  EXPECT_TRUE(router.IsCold("poet"));
  EXPECT_TRUE(router.IsCold("")) << "which is the model";
  EXPECT_FALSE(router_.IsCold("poet"));
}

TEST_F(RouterTest, TheModelMayBeLeftOutWhereThereIsOne) {
  EXPECT_TRUE(router_.Pick({}).ok());
  known_models_ = {"m", "n"};
  Publish();
  const absl::Status status = router_.Pick({}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(protocol::FieldOf(status), "model");
}

TEST_F(RouterTest, ARequestForAnAdapterGoesWhereItIsAndMustNameIt) {
  known_models_ = {"m", "poet"};
  adapters_ = {{"poet", "m"}};
  WorkerLoad adapter = workers_[1];
  adapter.model = "poet";
  adapter.parent = "m";
  workers_.push_back(adapter);
  Publish();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(PickAddress({.model = "poet"}), "b:1");
  const absl::StatusOr<Lease> lease = router_.Pick({});
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->load().model, "m");
  // It is known without a worker, as other models are.
  workers_.pop_back();
  Publish();
  EXPECT_TRUE(absl::IsUnavailable(router_.Pick({.model = "poet"}).status()));
}

TEST_F(RouterTest, AStreamGoesWhereItsFingerprintIs) {
  workers_[0].fingerprint = "G";
  Publish();
  const RouteKey key = {.model = "m", .fingerprint = "G", .tokenizer_fingerprint = "T"};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(PickAddress(key), "a:1");
  workers_[0].state = WorkerState::kLost;
  Publish();
  EXPECT_EQ(PickAddress(key), "b:1");
  RouteKey exact = key;
  exact.exact_only = true;
  EXPECT_EQ(protocol::ReasonOf(router_.Pick(exact).status()), protocol::kReasonNoWorker);
}

TEST_F(RouterTest, AStreamWaitsForItsLostWorkerBeforeItGoesOnInexactly) {
  workers_[0].fingerprint = "G";
  workers_[0].state = WorkerState::kLost;
  Publish();
  RouteKey key = {.model = "m", .fingerprint = "G", .tokenizer_fingerprint = "T"};
  key.allow_inexact = false;
  EXPECT_TRUE(absl::IsUnavailable(router_.Pick(key).status()));
  key.allow_inexact = true;
  EXPECT_EQ(PickAddress(key), "b:1");
}

// A stream of HTTP goes on by its request, of which nothing was received here: this gateway may
// have heard of no worker of that fingerprint, or never hear of one.
TEST_F(RouterTest, APreferredFingerprintIsBegunAlikeAndRulesNothingOut) {
  workers_[0].fingerprint = "G00d";
  Publish();
  RouteKey key = {.model = "m", .preferred_fingerprint = "G0"};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(PickAddress(key), "a:1");
  key.preferred_fingerprint = "H";
  for (const bool exact_only : {false, true}) {
    key.exact_only = exact_only;
    for (const bool allow_inexact : {false, true}) {
      key.allow_inexact = allow_inexact;
      EXPECT_NE(PickAddress(key), "");
    }
  }
  // One that is lost is waited for.
  key = {.model = "m", .preferred_fingerprint = "G0", .allow_inexact = false};
  workers_[0].state = WorkerState::kLost;
  Publish();
  EXPECT_EQ(protocol::ReasonOf(router_.Pick(key).status()), protocol::kReasonNoWorker);
  key.allow_inexact = true;
  EXPECT_EQ(PickAddress(key), "b:1");
}

TEST_F(RouterTest, AnotherTokenizerEndsAStream) {
  const RouteKey key = {.model = "m", .fingerprint = "G", .tokenizer_fingerprint = "U"};
  const absl::Status status = router_.Pick(key).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonModelChanged);
  // A worker that is lost or loads may have the stream's tokenizer.
  for (const WorkerState state : {WorkerState::kLost, WorkerState::kHung, WorkerState::kLoading}) {
    workers_[0].state = state;
    Publish();
    EXPECT_EQ(protocol::ReasonOf(router_.Pick(key).status()), protocol::kReasonNoWorker);
  }
  workers_[0].model = "";  // not reported yet
  Publish();
  EXPECT_EQ(protocol::ReasonOf(router_.Pick(key).status()), protocol::kReasonNoWorker);
  workers_[0].model = "another";
  Publish();
  EXPECT_EQ(protocol::ReasonOf(router_.Pick(key).status()), protocol::kReasonModelChanged);
}

TEST_F(RouterTest, HoldersOfALeaseAreToldOnceThatTheirWorkerIsLost) {
  workers_.pop_back();
  Publish();
  int lost = 0, kept = 0;
  const Lease first = *router_.Pick({.model = "m"}, [&] { ++lost; });
  workers_[0].incarnation = "a:1-2";
  Report(workers_[0]);
  const Lease second = *router_.Pick({.model = "m"}, [&] { ++kept; });
  router_.WorkerLost("a:1", "a:1-2");
  router_.WorkerLost("a:1", "a:1-2");
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(kept, 0);
  router_.WorkerLost("a:1", "");
  EXPECT_EQ(kept, 1);
}

TEST_F(RouterTest, AHolderIsToldOfALossBetweenTheLookAndTheLease) {
  ClockWithHook clock;
  Router router(&LeastLoadedOfTwo, &view_, &clock, random_);
  workers_.pop_back();
  const std::vector<std::function<void()>> losses = {
      [&] { workers_[0].state = WorkerState::kLost; },
      [&] { workers_[0].incarnation = "a:1-2"; },
      [&] { workers_.clear(); },
  };
  for (const auto& lose : losses) {
    workers_ = {Worker("a:1")};
    Publish();
    int lost = 0;
    // After the snapshot was taken, before the lease is recorded.
    clock.OnNextUse([&] {
      lose();
      Publish();
      router.WorkerLost("a:1", "");
    });
    const absl::StatusOr<Lease> lease = router.Pick({.model = "m"}, [&] { ++lost; });
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lost, 1);
    router.WorkerLost("a:1", "");
    EXPECT_EQ(lost, 1);
  }
}

TEST_F(RouterTest, WaitersAreCalledOnceAtTheNextChange) {
  int calls = 0;
  router_.WaitForChange({}, [&] { ++calls; });
  EXPECT_EQ(calls, 0);
  router_.ViewChanged();
  router_.ViewChanged();
  EXPECT_EQ(calls, 1);
}

TEST_F(RouterTest, TheStateOfAProcessIsReadFromWhatIsHeardAfterwards) {
  const absl::Duration died = clock_.Elapsed();
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kUnknown);
  clock_.Advance(absl::Milliseconds(100));
  Report(workers_[0]);
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kAlive);
  workers_[0].state = WorkerState::kLost;
  Publish();
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kUnknown);
  // Silence is no exit, however long.
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kUnknown);
  workers_[0].state = WorkerState::kHung;
  Report(workers_[0]);
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kHung);
  workers_[0].state = WorkerState::kLost;
  workers_[0].refused = true;
  Publish();
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kExited);
  workers_[0] = Worker("a:1");
  workers_[0].incarnation = "a:1-2";
  Publish();
  EXPECT_EQ(router_.CheckProcess("a:1", "a:1-1", died), ProcessState::kExited);
  EXPECT_EQ(router_.CheckProcess("c:1", "c:1-1", died), ProcessState::kExited);
}

}  // namespace
}  // namespace continuo::gateway
