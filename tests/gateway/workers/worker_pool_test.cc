// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_pool.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "tests/testing/fake_worker.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

// Calls back when the test fires it; delays do not matter.
class FiredTimer : public Timer {
 public:
  void After(absl::Duration, std::function<void()> callback) override {
    absl::MutexLock lock(&mutex_);
    due_.push_back(std::move(callback));
  }
  // Runs all callbacks that were added before. Callbacks that these add wait for the next Fire.
  void Fire() {
    std::vector<std::function<void()>> due;
    {
      absl::MutexLock lock(&mutex_);
      due.swap(due_);
    }
    for (const auto& callback : due) callback();
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::function<void()>> due_;
};

// Accepts connections on a loopback port and sends nothing.
class MuteListener {
 public:
  explicit MuteListener(int port) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    CONTINUO_CHECK(setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    sockaddr_in address = {.sin_family = AF_INET,
                           .sin_port = htons(static_cast<uint16_t>(port)),
                           .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CONTINUO_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    CONTINUO_CHECK(listen(listener_, 16) == 0);
    thread_ = std::thread([this] {
      for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0; ++num_connections_) {
        connections_.push_back(fd);
      }
    });
  }
  ~MuteListener() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const int fd : connections_) close(fd);
    close(listener_);
  }
  int num_connections() const { return num_connections_; }

 private:
  const int listener_;
  std::vector<int> connections_;
  std::atomic<int> num_connections_ = 0;
  std::thread thread_;
};

class WorkerPoolTest : public ::testing::Test {
 protected:
  // Polls until the condition holds, while timers go off; false after a minute.
  bool WaitUntil(const std::function<bool()>& holds) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (absl::Now() < end) {
      if (holds()) return true;
      timer_.Fire();
      std::this_thread::yield();
    }
    return false;
  }
  // Polls until the condition holds for the only worker.
  bool WaitFor(const std::function<bool(const WorkerLoad&)>& holds) {
    return WaitUntil([&] {
      const auto snapshot = view_.Get();
      return snapshot->workers.size() == 1 && holds(*snapshot->workers[0]);
    });
  }
  // Advances the clock in small steps, each with a report, until the condition holds; false after 5
  // s of it.
  bool PassUntil(const std::function<bool(const WorkerLoad&)>& holds) {
    for (int i = 0; i < 50; ++i) {
      if (holds(*view_.Get()->workers[0])) return true;
      clock_.Advance(absl::Milliseconds(100));
      if (!WaitFor([&](const auto& load) { return load.report_time == clock_.Elapsed(); })) break;
    }
    return false;
  }
  // Advances the clock in small steps and fires the timers in each, as in a running process.
  void Pass(absl::Duration time) {
    for (absl::Duration step; time > absl::ZeroDuration(); time -= step) {
      step = std::min(time, absl::Milliseconds(200));
      clock_.Advance(step);
      timer_.Fire();
    }
  }
  bool WaitForState(WorkerState state) {
    return WaitFor([=](const WorkerLoad& load) { return load.state == state; });
  }

  ManualClock clock_;
  LoadView view_;
  std::mt19937_64 random_{1};
  Router router_{&LeastLoadedOfTwo, &view_, &clock_, random_};
  FiredTimer timer_;
  FakeWorker worker_{{.name = "w"}};
  std::atomic<int> num_changes_ = 0;
  WorkerPool pool_{{.connect = {.credentials = grpc::InsecureChannelCredentials()},
                    .on_change = [this] { ++num_changes_; }},
                   &view_,
                   &router_,
                   &timer_,
                   &clock_};
};

TEST_F(WorkerPoolTest, WhatAWorkerReportsIsInTheView) {
  worker_.SetReport([](v1::WatchLoadResponse& report) {
    report.set_used_kv_blocks(7);
    report.set_pending_prompt_tokens(11);
  });
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  const auto load = view_.Get()->workers[0];
  EXPECT_EQ(load->address, worker_.address());
  EXPECT_EQ(load->model, "fake");
  EXPECT_EQ(load->fingerprint, "F");
  EXPECT_EQ(load->used_kv_blocks, 7);
  EXPECT_EQ(load->total_kv_blocks, 1000);
  EXPECT_EQ(load->pending_prompt_tokens, 11);
  EXPECT_TRUE(view_.Get()->discovery_complete);
}

TEST_F(WorkerPoolTest, AWorkerThatCouldNotNameItsModelAtFirstIsThereOnce) {
  worker_.SetReport([](v1::WatchLoadResponse& report) {
    report.set_state(v1::WORKER_STATE_LOADING);
    report.clear_model();
  });
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kLoading));
  worker_.SetReport([](v1::WatchLoadResponse& report) {
    report.set_state(v1::WORKER_STATE_SERVING);
    report.set_model("fake");
  });
  EXPECT_TRUE(WaitForState(WorkerState::kServing));
}

TEST_F(WorkerPoolTest, ADeadWorkerIsRefusedAndItsSuccessorAnotherIncarnation) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  const std::string first = view_.Get()->workers[0]->incarnation;
  const absl::Duration died = clock_.Elapsed();
  worker_.Kill();
  ASSERT_TRUE(WaitFor(
      [](const WorkerLoad& load) { return load.state == WorkerState::kLost && load.refused; }));
  EXPECT_EQ(router_.CheckProcess(worker_.address(), first, died), ProcessState::kExited);
  worker_.Restart();
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  EXPECT_NE(view_.Get()->workers[0]->incarnation, first);
  EXPECT_EQ(router_.CheckProcess(worker_.address(), first, died), ProcessState::kExited);
}

TEST_F(WorkerPoolTest, WhereNobodyAnswersNobodyIsKnownToHaveDied) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  const std::string first = view_.Get()->workers[0]->incarnation;
  const absl::Duration cut = clock_.Elapsed();
  // A call that begins after the kill would connect, and be refused before the mute one listens.
  ASSERT_TRUE(WaitUntil([&] { return !pool_.Models().empty(); }));
  worker_.Kill();
  // No timer goes off: it is not connected to again.
  while (view_.Get()->workers[0]->state != WorkerState::kLost) std::this_thread::yield();
  // From now on connections reach a mute listener, as behind a cut link.
  const MuteListener mute(worker_.port());
  ASSERT_TRUE(WaitUntil([&] { return mute.num_connections() > 1; }));
  EXPECT_FALSE(view_.Get()->workers[0]->refused);
  EXPECT_EQ(router_.CheckProcess(worker_.address(), first, cut), ProcessState::kUnknown);
}

TEST_F(WorkerPoolTest, AnUnlistedWorkerDrainsWhileItLivesAndIsForgottenAfterwards) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  ASSERT_TRUE(WaitUntil([&] { return !pool_.Models().empty(); }));
  pool_.SetAddresses({});
  EXPECT_EQ(view_.Get()->workers[0]->state, WorkerState::kDraining);
  EXPECT_NE(pool_.Find(worker_.address()), nullptr);
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  pool_.SetAddresses({});
  worker_.Kill();
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!view_.Get()->workers.empty() && absl::Now() < end) std::this_thread::yield();
  EXPECT_TRUE(view_.Get()->workers.empty());
  EXPECT_EQ(pool_.Find(worker_.address()), nullptr);
  ASSERT_EQ(pool_.Models().size(), 1);
  EXPECT_EQ(pool_.Models()[0].num_workers(), 0);
}

TEST_F(WorkerPoolTest, AnUnlistedWorkerWithoutRequestsIsForgottenThoughItReports) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  std::optional<Lease> lease = *router_.Pick({.model = "fake"});
  pool_.SetAddresses({});
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds * 2 && !view_.Get()->workers.empty(); ++i) {
      clock_.Advance(absl::Milliseconds(500));
      WaitUntil([&] {
        const auto snapshot = view_.Get();
        return snapshot->workers.empty() || snapshot->workers[0]->report_time == clock_.Elapsed();
      });
    }
  };
  pass(2);
  clock_.Advance(absl::Seconds(29));
  pass(2);
  // It has a stream of this gateway.
  ASSERT_EQ(view_.Get()->workers.size(), 1);
  EXPECT_EQ(view_.Get()->workers[0]->state, WorkerState::kDraining);
  lease.reset();
  pass(2);
  EXPECT_TRUE(view_.Get()->workers.empty());
  EXPECT_EQ(pool_.Find(worker_.address()), nullptr);
}

TEST_F(WorkerPoolTest, DeltasStandForWholeReports) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  worker_.SetReport([](v1::WatchLoadResponse& report) {
    report.Clear();
    report.set_is_delta(true);
    report.set_state(v1::WORKER_STATE_SERVING);
    report.set_used_kv_blocks(9);
  });
  ASSERT_TRUE(WaitFor([](const WorkerLoad& load) { return load.used_kv_blocks == 9; }));
  const auto load = view_.Get()->workers[0];
  EXPECT_EQ(load->model, "fake");
  EXPECT_EQ(load->fingerprint, "F");
  EXPECT_EQ(load->total_kv_blocks, 1000);
}

TEST_F(WorkerPoolTest, AHungWorkerMayTellItselfInItsReports) {
  worker_.SetReport(
      [](v1::WatchLoadResponse& report) { report.set_health(v1::WORKER_HEALTH_SERVING); });
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  // Its health service is not asked.
  worker_.SetHealth(false);
  EXPECT_FALSE(PassUntil([](const auto& load) { return load.state != WorkerState::kServing; }));
  worker_.SetReport(
      [](v1::WatchLoadResponse& report) { report.set_health(v1::WORKER_HEALTH_NOT_SERVING); });
  EXPECT_TRUE(PassUntil([](const auto& load) { return load.state == WorkerState::kHung; }));
}

TEST_F(WorkerPoolTest, SilenceIsNotMeasuredByTheClockOnTheWall) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  worker_.SetSilent(true);
  clock_.JumpWallClock(absl::Hours(1));
  timer_.Fire();
  EXPECT_EQ(view_.Get()->workers[0]->state, WorkerState::kServing);
  Pass(absl::Milliseconds(2001));
  EXPECT_EQ(view_.Get()->workers[0]->state, WorkerState::kLost);
}

TEST_F(WorkerPoolTest, ItsOwnPauseIsNobodysSilence) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  int lost = 0;
  const absl::StatusOr<Lease> lease = router_.Pick({.model = "fake"}, [&] { ++lost; });
  ASSERT_TRUE(lease.ok());
  // This process is stopped for a minute, and its timer is the first to run.
  worker_.SetSilent(true);
  clock_.Advance(absl::Minutes(1));
  timer_.Fire();
  EXPECT_EQ(lost, 0);
  Pass(absl::Seconds(2));
  EXPECT_EQ(lost, 0);
  // A worker that reports nothing from then on is silent.
  Pass(absl::Milliseconds(200));
  EXPECT_EQ(lost, 1);
}

TEST_F(WorkerPoolTest, FailingAgainIsNoChange) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  worker_.Kill();
  ASSERT_TRUE(WaitFor(
      [](const WorkerLoad& load) { return load.state == WorkerState::kLost && load.refused; }));
  // on_change is called after the view is written, and before the next attempt begins.
  std::shared_ptr<const LoadSnapshot> before = view_.Get();
  const auto wait_for_attempts = [&](int num_attempts) {
    for (int i = 0; i < num_attempts; ++i) {
      if (!WaitUntil([&] { return view_.Get() != before; })) return false;
      before = view_.Get();
    }
    return true;
  };
  ASSERT_TRUE(wait_for_attempts(1));
  // Many more attempts fail, and none of them calls on_change.
  const int changes = num_changes_;
  Pass(absl::Minutes(2));
  ASSERT_TRUE(wait_for_attempts(10));
  EXPECT_EQ(num_changes_, changes);
  worker_.Restart();
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  EXPECT_TRUE(WaitUntil([&] { return num_changes_ > changes; }));
}

TEST_F(WorkerPoolTest, ReportsReachTheViewTogether) {
  pool_.SetAddresses({worker_.address()});
  // Only a worker that has reported is asked for its models. No timer goes off meanwhile, and no
  // time passes.
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (pool_.Models().empty() && absl::Now() < end) std::this_thread::yield();
  ASSERT_EQ(pool_.Models().size(), 1);
  EXPECT_TRUE(view_.Get()->workers.empty());
  EXPECT_EQ(num_changes_, 0);
  timer_.Fire();
  ASSERT_EQ(view_.Get()->workers.size(), 1);
  EXPECT_EQ(view_.Get()->workers[0]->state, WorkerState::kServing);
  EXPECT_EQ(num_changes_, 1);
}

// Twelve addresses of one worker, as a fleet.
class FleetTest : public WorkerPoolTest {
 protected:
  std::vector<WorkerAddress> Addresses() const {
    std::vector<WorkerAddress> addresses;
    for (int i = 1; i <= 12; ++i) {
      addresses.emplace_back(absl::StrCat("127.0.0.", i, ":", fleet_.port()));
    }
    return addresses;
  }
  int NumIn(WorkerState state) const {
    const auto snapshot = view_.Get();
    return static_cast<int>(std::ranges::count_if(
        snapshot->workers, [&](const auto& load) { return load->state == state; }));
  }

  FakeWorker fleet_{{.name = "w"}, /*port=*/0, "0.0.0.0"};
};

TEST_F(FleetTest, AGatewayThatHearsOfNobodyKeepsItsLastView) {
  pool_.SetAddresses(Addresses());
  ASSERT_TRUE(WaitUntil([&] { return NumIn(WorkerState::kServing) == 12; }));
  int lost = 0;
  const absl::StatusOr<Lease> lease = router_.Pick({.model = "fake"}, [&] { ++lost; });
  ASSERT_TRUE(lease.ok());
  fleet_.SetSilent(true);
  Pass(absl::Seconds(10));
  EXPECT_EQ(NumIn(WorkerState::kServing), 12);
  EXPECT_EQ(lost, 0);
  // The end of a connection is no silence.
  fleet_.Kill();
  EXPECT_TRUE(WaitUntil([&] { return NumIn(WorkerState::kLost) == 12; }));
}

TEST_F(FleetTest, OneThatIsSilentAmongOthersIsLost) {
  std::vector<WorkerAddress> addresses = Addresses();
  addresses.emplace_back(worker_.address());
  pool_.SetAddresses(addresses);
  ASSERT_TRUE(WaitUntil([&] { return NumIn(WorkerState::kServing) == 13; }));
  worker_.SetSilent(true);
  const auto reported = [&] {
    const auto snapshot = view_.Get();
    return std::ranges::all_of(snapshot->workers, [&](const auto& load) {
      return load->address == worker_.address() || load->report_time == clock_.Elapsed();
    });
  };
  for (int i = 0; i < 60 && NumIn(WorkerState::kLost) == 0; ++i) {
    clock_.Advance(absl::Milliseconds(100));
    ASSERT_TRUE(WaitUntil(reported));
  }
  EXPECT_EQ(NumIn(WorkerState::kLost), 1);
  EXPECT_EQ(NumIn(WorkerState::kServing), 12);
}

TEST_F(WorkerPoolTest, AWatchThatNeverReportsIsSilent) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  int lost = 0;
  const absl::StatusOr<Lease> lease = router_.Pick({.model = "fake"}, [&] { ++lost; });
  ASSERT_TRUE(lease.ok());
  // The same process: its watch ends, and the next one says nothing. Calls that are open on the
  // connection hang.
  worker_.SetSilent(true);
  worker_.EndWatches();
  ASSERT_TRUE(WaitForState(WorkerState::kLost));
  ASSERT_TRUE(WaitUntil([&] { return worker_.num_watches() == 2; }));
  EXPECT_EQ(lost, 0);
  Pass(absl::Milliseconds(2001));
  EXPECT_EQ(lost, 1);
}

TEST_F(WorkerPoolTest, AWorkerThatReportsAndComputesNothingIsHung) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  int lost = 0;
  const absl::StatusOr<Lease> lease = router_.Pick({.model = "fake"}, [&] { ++lost; });
  ASSERT_TRUE(lease.ok());
  worker_.SetHealth(false);
  ASSERT_TRUE(PassUntil([](const auto& load) { return load.state == WorkerState::kHung; }));
  EXPECT_EQ(lost, 1);
  EXPECT_TRUE(absl::IsUnavailable(router_.Pick({.model = "fake"}).status()));
  EXPECT_EQ(router_.CheckProcess(lease->address(), lease->incarnation(), absl::ZeroDuration()),
            ProcessState::kHung);
  // Its reports go on, and change nothing.
  EXPECT_FALSE(PassUntil([](const auto& load) { return load.state != WorkerState::kHung; }));
  worker_.SetHealth(true);
  EXPECT_TRUE(PassUntil([](const auto& load) { return load.state == WorkerState::kServing; }));
}

TEST_F(WorkerPoolTest, ADrainThatShowsInTheHealthFirstLosesNobody) {
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitForState(WorkerState::kServing));
  int lost = 0;
  const absl::StatusOr<Lease> lease = router_.Pick({.model = "fake"}, [&] { ++lost; });
  ASSERT_TRUE(lease.ok());
  worker_.SetHealth(false);
  clock_.Advance(absl::Milliseconds(150));
  ASSERT_TRUE(WaitFor([&](const auto& load) { return load.report_time == clock_.Elapsed(); }));
  worker_.SetState(v1::WORKER_STATE_DRAINING);
  ASSERT_TRUE(WaitForState(WorkerState::kDraining));
  EXPECT_FALSE(PassUntil([](const auto& load) { return load.state != WorkerState::kDraining; }));
  EXPECT_EQ(lost, 0);
}

TEST_F(WorkerPoolTest, AWorkerThatHasNeverReportedHoldsNoAnswerUpForLong) {
  worker_.SetSilent(true);
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitUntil([&] { return worker_.num_watches() == 1; }));
  Pass(absl::Milliseconds(2200));
  // It may be the only worker of a model that it has not named yet.
  EXPECT_FALSE(view_.Get()->discovery_complete);
  Pass(absl::Seconds(30));
  EXPECT_TRUE(view_.Get()->discovery_complete);
  EXPECT_TRUE(absl::IsUnavailable(router_.Pick({.model = "fake"}).status()));
}

TEST_F(WorkerPoolTest, AdaptersOfAWorkerThatLoadsAreKnownAndListed) {
  worker_.SetReport([](v1::WatchLoadResponse& report) {
    report.set_state(v1::WORKER_STATE_LOADING);
    report.clear_fingerprint();
    report.add_adapters()->set_model("poet");
  });
  pool_.SetAddresses({worker_.address()});
  ASSERT_TRUE(WaitUntil([&] { return view_.Get()->known_models.size() == 2; }));
  EXPECT_EQ(view_.Get()->adapters,
            (std::map<std::string, std::string, std::less<>>{{"poet", "fake"}}));
  EXPECT_EQ(BaseModels(*view_.Get()), std::vector<std::string>{"fake"});
  EXPECT_EQ(router_.Pick({.model = "poet"}).status().code(), absl::StatusCode::kUnavailable);
  const std::vector<v1::Model> models = pool_.Models();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[1].name(), "poet");
  EXPECT_EQ(models[1].parent(), "fake");
}

}  // namespace
}  // namespace continuo::gateway
