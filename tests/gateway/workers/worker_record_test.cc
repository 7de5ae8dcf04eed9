// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_record.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace continuo::gateway {
namespace {

class WorkerRecordTest : public ::testing::Test {
 protected:
  static v1::WatchLoadResponse Report(v1::WorkerState state, const std::string& model = "m",
                                      const std::string& incarnation = "1") {
    v1::WatchLoadResponse report;
    report.set_worker("w");
    report.set_incarnation(incarnation);
    report.set_state(state);
    report.set_model(model);
    report.set_fingerprint("F");
    return report;
  }
  ReportNews OnReport(const v1::WatchLoadResponse& report) {
    return record_.OnReport(report, now_, &slow_);
  }
  ReportNews Serve(const std::string& model = "m") {
    return OnReport(Report(v1::WORKER_STATE_SERVING, model));
  }
  std::optional<Verdict> Check() { return record_.Check(now_, absl::ZeroDuration(), &changed_); }
  WorkerState State(const std::string& model = "m") const {
    return record_.models().at(model).load->state;
  }

  absl::Duration now_;
  SlowWorkers slow_;
  WorkerRecord record_{"a:1", {}, now_};
  bool changed_ = false;
};

TEST_F(WorkerRecordTest, AReportIsALoadOfItsPool) {
  record_.SetPool(2, 0.5);
  record_.OnConnecting(now_);
  now_ = absl::Seconds(1);
  v1::WatchLoadResponse report = Report(v1::WORKER_STATE_SERVING);
  report.set_used_kv_blocks(7);
  EXPECT_TRUE(OnReport(report).changed);
  const WorkerLoad& load = *record_.models().at("m").load;
  EXPECT_EQ(load.address, "a:1");
  EXPECT_EQ(load.worker, "w");
  EXPECT_EQ(load.fingerprint, "F");
  EXPECT_EQ(load.used_kv_blocks, 7);
  EXPECT_EQ(load.pool, 2);
  EXPECT_EQ(load.pool_weight, 0.5);
  EXPECT_EQ(load.report_time, absl::Seconds(1));
}

TEST_F(WorkerRecordTest, CountsAloneAreNoChange) {
  Serve();
  v1::WatchLoadResponse report = Report(v1::WORKER_STATE_SERVING);
  report.set_running_requests(3);
  EXPECT_FALSE(OnReport(report).changed);
  EXPECT_TRUE(OnReport(Report(v1::WORKER_STATE_DRAINING)).changed);
}

TEST_F(WorkerRecordTest, AnotherProcessReplacesTheFirst) {
  EXPECT_FALSE(Serve().replaced);
  Serve("other");
  EXPECT_TRUE(OnReport(Report(v1::WORKER_STATE_SERVING, "m", "2")).replaced);
  EXPECT_FALSE(record_.models().contains("other"));
}

TEST_F(WorkerRecordTest, AModelWithoutANameIsThereUntilItHasOne) {
  OnReport(Report(v1::WORKER_STATE_LOADING, ""));
  EXPECT_FALSE(record_.IsDiscovered(now_, absl::Seconds(30)));
  EXPECT_EQ(State(""), WorkerState::kLoading);
  Serve();
  EXPECT_TRUE(record_.IsDiscovered(now_, absl::Seconds(30)));
  EXPECT_FALSE(record_.models().contains(""));
}

TEST_F(WorkerRecordTest, AnAddressThatFailsIsDiscoveredAfterAWhile) {
  EXPECT_FALSE(record_.IsDiscovered(absl::Seconds(31), absl::Seconds(30)));
  record_.OnEnd(/*refused=*/true);
  EXPECT_FALSE(record_.IsDiscovered(absl::Seconds(29), absl::Seconds(30)));
  EXPECT_TRUE(record_.IsDiscovered(absl::Seconds(30), absl::Seconds(30)));
}

TEST_F(WorkerRecordTest, UnlistedDrainsAtOnceAndListedServesWithTheNextReport) {
  Serve();
  EXPECT_TRUE(record_.SetListed(false, now_));
  EXPECT_EQ(State(), WorkerState::kDraining);
  EXPECT_FALSE(record_.SetListed(false, now_));
  EXPECT_FALSE(record_.SetListed(true, now_));
  EXPECT_EQ(State(), WorkerState::kDraining);
  EXPECT_TRUE(Serve().changed);
  EXPECT_EQ(State(), WorkerState::kServing);
}

TEST_F(WorkerRecordTest, AfterALossEachModelHasToReportAnew) {
  record_.OnConnecting(now_);
  Serve("a");
  Serve("b");
  EXPECT_TRUE(record_.OnEnd(/*refused=*/false));
  EXPECT_EQ(State("a"), WorkerState::kLost);
  record_.OnConnecting(now_);
  Serve("a");
  EXPECT_EQ(State("a"), WorkerState::kServing);
  EXPECT_EQ(State("b"), WorkerState::kLost);
}

TEST_F(WorkerRecordTest, ARefusalIsAChangeOnce) {
  Serve();
  EXPECT_TRUE(record_.OnEnd(/*refused=*/false));
  EXPECT_FALSE(record_.OnEnd(/*refused=*/false));
  EXPECT_TRUE(record_.OnEnd(/*refused=*/true));
  EXPECT_TRUE(record_.models().at("m").load->refused);
  EXPECT_FALSE(record_.OnEnd(/*refused=*/true));
  EXPECT_FALSE(record_.OnEnd(/*refused=*/false));
  Serve();
  EXPECT_FALSE(record_.models().at("m").load->refused);
}

TEST_F(WorkerRecordTest, ASilentWorkerIsLost) {
  record_.OnConnecting(now_);
  Serve();
  now_ += absl::Seconds(3);
  EXPECT_EQ(Check(), Verdict::kSilent);
  EXPECT_TRUE(changed_);
  EXPECT_EQ(State(), WorkerState::kLost);
}

TEST_F(WorkerRecordTest, AHungWorkerServesAgainWithAReportAfterItsHealthDoes) {
  record_.OnConnecting(now_);
  Serve();
  record_.OnHealth(/*not_serving=*/true, now_);
  now_ += absl::Milliseconds(500);
  Serve();
  EXPECT_EQ(Check(), Verdict::kHung);
  EXPECT_TRUE(changed_);
  EXPECT_EQ(State(), WorkerState::kHung);
  EXPECT_FALSE(Serve().changed);
  record_.OnHealth(/*not_serving=*/false, now_);
  EXPECT_EQ(State(), WorkerState::kHung);
  EXPECT_TRUE(Serve().changed);
  EXPECT_EQ(State(), WorkerState::kServing);
}

TEST_F(WorkerRecordTest, EachServingProcessIsAskedForItsModelsOnce) {
  const v1::WatchLoadResponse loading = Report(v1::WORKER_STATE_LOADING);
  const v1::WatchLoadResponse serving = Report(v1::WORKER_STATE_SERVING);
  OnReport(loading);
  EXPECT_FALSE(record_.TakeModelQuery(loading));
  OnReport(serving);
  EXPECT_TRUE(record_.TakeModelQuery(serving));
  EXPECT_FALSE(record_.TakeModelQuery(serving));
  record_.OnModelQueryFailed("another");
  EXPECT_FALSE(record_.TakeModelQuery(serving));
  record_.OnModelQueryFailed("1");
  EXPECT_TRUE(record_.TakeModelQuery(serving));
}

TEST_F(WorkerRecordTest, ReconnectsSlowDownUntilAReport) {
  const auto next = [&] {
    return record_.NextReconnectDelay(absl::Milliseconds(50), absl::Milliseconds(300));
  };
  EXPECT_EQ(next(), absl::Milliseconds(50));
  EXPECT_EQ(next(), absl::Milliseconds(100));
  EXPECT_EQ(next(), absl::Milliseconds(200));
  EXPECT_EQ(next(), absl::Milliseconds(300));
  EXPECT_EQ(next(), absl::Milliseconds(300));
  Serve();
  EXPECT_EQ(next(), absl::Milliseconds(50));
}

TEST_F(WorkerRecordTest, AdaptersAreKnownWhileTheirModelLoads) {
  v1::WatchLoadResponse report = Report(v1::WORKER_STATE_LOADING);
  report.add_adapters()->set_model("poet");
  EXPECT_TRUE(OnReport(report).changed);
  EXPECT_EQ(State("poet"), WorkerState::kLoading);
  EXPECT_EQ(record_.models().at("poet").load->parent, "m");
  report.set_state(v1::WORKER_STATE_SERVING);
  report.mutable_adapters(0)->set_fingerprint("P");
  EXPECT_TRUE(OnReport(report).changed);
  EXPECT_EQ(State("poet"), WorkerState::kServing);
  EXPECT_EQ(record_.models().at("poet").load->fingerprint, "P");
}

TEST_F(WorkerRecordTest, AdaptersComeAndGoWhileTheirWorkerServes) {
  v1::WatchLoadResponse report = Report(v1::WORKER_STATE_SERVING);
  OnReport(report);
  EXPECT_TRUE(record_.TakeModelQuery(report));
  v1::ServedAdapter& poet = *report.add_adapters();
  poet.set_model("poet");
  poet.set_fingerprint("P");
  poet.set_on_demand(true);
  EXPECT_TRUE(OnReport(report).changed);
  EXPECT_TRUE(record_.models().at("poet").load->on_demand);
  EXPECT_TRUE(record_.TakeModelQuery(report)) << "it is not described yet";
  EXPECT_FALSE(record_.TakeModelQuery(report));
  // Routing does not change with what is in memory.
  report.mutable_adapters(0)->set_on_demand(false);
  EXPECT_FALSE(OnReport(report).changed);
  EXPECT_FALSE(record_.models().at("poet").load->on_demand);
  EXPECT_FALSE(record_.TakeModelQuery(report));
  report.clear_adapters();
  const ReportNews news = OnReport(report);
  EXPECT_TRUE(news.changed);
  EXPECT_EQ(news.withdrawn, std::vector<std::string>{"poet"});
  EXPECT_FALSE(record_.TakeModelQuery(report));
  EXPECT_TRUE(OnReport(report).withdrawn.empty());
  // A new process that has not named them has withdrawn nothing.
  report.add_adapters()->set_model("poet");
  OnReport(report);
  report.clear_adapters();
  report.set_incarnation("2");
  EXPECT_TRUE(OnReport(report).withdrawn.empty());
}

TEST_F(WorkerRecordTest, AdaptersAreModelsWithTheLoadOfTheirs) {
  v1::WatchLoadResponse report = Report(v1::WORKER_STATE_SERVING);
  report.set_running_requests(3);
  const auto add = [&report](const std::string& model, const std::string& fingerprint) {
    v1::ServedAdapter& adapter = *report.add_adapters();
    adapter.set_model(model);
    adapter.set_fingerprint(fingerprint);
  };
  add("pirate", "P");
  add("poet", "Q");
  EXPECT_TRUE(OnReport(report).changed);
  EXPECT_FALSE(OnReport(report).changed);
  const WorkerLoad& poet = *record_.models().at("poet").load;
  EXPECT_EQ(poet.model, "poet");
  EXPECT_EQ(poet.parent, "m");
  EXPECT_EQ(poet.fingerprint, "Q");
  EXPECT_EQ(poet.running_requests, 3);
  EXPECT_EQ(State("pirate"), WorkerState::kServing);
  // They follow the verdict on the worker.
  report.set_state(v1::WORKER_STATE_DRAINING);
  EXPECT_TRUE(OnReport(report).changed);
  EXPECT_EQ(State("poet"), WorkerState::kDraining);
  record_.OnEnd(/*refused=*/true);
  EXPECT_EQ(State("poet"), WorkerState::kLost);
  // One that is not reported any more is gone, and one of the model's own name never was.
  report.set_state(v1::WORKER_STATE_SERVING);
  report.clear_adapters();
  add("poet", "Q2");
  add("m", "X");
  EXPECT_TRUE(OnReport(report).changed);
  EXPECT_FALSE(record_.models().contains("pirate"));
  EXPECT_EQ(record_.models().at("poet").load->fingerprint, "Q2");
  EXPECT_EQ(record_.models().at("m").load->fingerprint, "F");
}

}  // namespace
}  // namespace continuo::gateway
