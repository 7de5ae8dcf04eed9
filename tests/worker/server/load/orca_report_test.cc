// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/load/orca_report.h"

#include <gtest/gtest.h>

namespace continuo::server {
namespace {

v1::WatchLoadResponse Serving() {
  v1::WatchLoadResponse load;
  load.set_health(v1::WORKER_HEALTH_SERVING);
  load.set_total_kv_blocks(1000);
  load.set_max_running_requests(64);
  return load;
}

TEST(OrcaReportTest, AnIdleWorkerIsNotIgnored) {
  const auto report = MakeOrcaReport(Serving());
  EXPECT_EQ(report.utilization().at("kv_cache"), 0);
  EXPECT_EQ(report.application_utilization(), 0.01);
  EXPECT_EQ(report.rps_fractional(), 1);
}

TEST(OrcaReportTest, TheFullerOfCacheAndBatchCounts) {
  v1::WatchLoadResponse load = Serving();
  load.set_used_kv_blocks(500);
  load.set_cached_kv_blocks(400);  // may be taken at once
  load.set_running_requests(16);
  EXPECT_EQ(MakeOrcaReport(load).utilization().at("kv_cache"), 0.5);
  EXPECT_EQ(MakeOrcaReport(load).application_utilization(), 0.5);
  load.set_running_requests(48);
  EXPECT_EQ(MakeOrcaReport(load).utilization().at("kv_cache"), 0.5);
  EXPECT_EQ(MakeOrcaReport(load).application_utilization(), 0.75);
}

TEST(OrcaReportTest, AQueueIsAboveAll) {
  v1::WatchLoadResponse load = Serving();
  load.set_running_requests(64);
  load.set_waiting_requests(32);
  load.set_pending_prompt_tokens(12'000);
  const auto report = MakeOrcaReport(load);
  EXPECT_EQ(report.application_utilization(), 1.5);
  EXPECT_EQ(report.named_metrics().at("running_requests"), 64);
  EXPECT_EQ(report.named_metrics().at("waiting_requests"), 32);
  EXPECT_EQ(report.named_metrics().at("pending_prompt_tokens"), 12'000);
}

TEST(OrcaReportTest, SlotsOfStatesCountAsTheCache) {
  v1::WatchLoadResponse load = Serving();
  load.set_total_kv_blocks(0);
  load.set_total_state_slots(40);
  load.set_used_state_slots(30);
  EXPECT_EQ(MakeOrcaReport(load).utilization().at("kv_cache"), 0.75);
  EXPECT_EQ(MakeOrcaReport(load).application_utilization(), 0.75);
}

TEST(OrcaReportTest, AWorkerThatDoesNotServeIsOverloaded) {
  v1::WatchLoadResponse load = Serving();
  load.set_health(v1::WORKER_HEALTH_NOT_SERVING);
  EXPECT_EQ(MakeOrcaReport(load).application_utilization(), 2);
  EXPECT_EQ(MakeOrcaReport(v1::WatchLoadResponse()).application_utilization(), 2);
}

}  // namespace
}  // namespace continuo::server
