// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/gateway_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;

class GatewayMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LoadSnapshot snapshot;
    snapshot.known_models = {"m"};
    snapshot.workers.push_back(std::make_shared<const WorkerLoad>(
        WorkerLoad{.model = "m", .state = WorkerState::kServing, .report_time = clock_.Elapsed()}));
    view_.Set(std::move(snapshot));
  }
  std::vector<prometheus::MetricFamily> Collect() const {
    std::vector<prometheus::MetricFamily> all;
    for (const auto& collectable : metrics_.collectables()) {
      for (auto& family : collectable->Collect()) all.push_back(std::move(family));
    }
    return all;
  }
  // Returns the sum of the series of a family whose labels include these.
  double Value(const std::string& name, const std::map<std::string, std::string>& labels) const {
    double sum = 0;
    for (const auto& family : Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        size_t found = 0;
        for (const auto& label : metric.label) {
          const auto want = labels.find(label.name);
          found += want != labels.end() && want->second == label.value;
        }
        if (found < labels.size()) continue;
        sum += metric.counter.value + metric.gauge.value +
               static_cast<double>(metric.histogram.sample_count);
      }
    }
    return sum;
  }

  ManualClock clock_;
  LoadView view_;
  Admission admission_{AdmissionLimits{}};
  GatewayMetrics metrics_{&admission_, &view_, &clock_};
};

TEST_F(GatewayMetricsTest, TheNamesAreAContract) {
  std::set<std::string> names;
  for (const auto& family : Collect()) names.insert(family.name);
  EXPECT_THAT(
      names,
      ElementsAre("continuo_gateway_build_info", "continuo_gateway_inter_token_seconds",
                  "continuo_gateway_load_age_seconds", "continuo_gateway_migration_stall_seconds",
                  "continuo_gateway_migrations_total", "continuo_gateway_open_streams",
                  "continuo_gateway_queued_prompt_tokens", "continuo_gateway_queued_requests",
                  "continuo_gateway_rejected_total", "continuo_gateway_requests_total",
                  "continuo_gateway_spans_dropped_total", "continuo_gateway_tenant_tokens_total",
                  "continuo_gateway_time_to_first_token_seconds",
                  "continuo_gateway_unauthenticated_total", "continuo_gateway_workers",
                  "process_cpu_seconds_total", "process_max_fds", "process_open_fds",
                  "process_resident_memory_bytes", "process_start_time_seconds",
                  "process_virtual_memory_bytes"));
}

TEST_F(GatewayMetricsTest, TheSeriesOfAServedModelAreThereFromTheStart) {
  size_t series = 0;
  for (const auto& family : Collect()) {
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) series += label.name == "model" && label.value == "m";
    }
  }
  // The series are: requests 17 (codes), migrations 5, three histograms, workers 5, queued tokens.
  EXPECT_EQ(series, 31);
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"code", "UNAVAILABLE"}}), 0);
  EXPECT_EQ(Value("continuo_gateway_workers", {{"state", "serving"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_workers", {{"state", "lost"}}), 0);
}

TEST_F(GatewayMetricsTest, WhatHappensIsCounted) {
  metrics_.OnFirstToken("m", absl::Milliseconds(3));
  metrics_.OnMigration("m", "lost");
  metrics_.OnStall("m", absl::Milliseconds(30));
  metrics_.OnRequestEnd("m", absl::OkStatus());
  metrics_.OnRequestEnd(
      "m", protocol::WithReason(absl::ResourceExhaustedError(""), protocol::kReasonOverloaded));
  metrics_.OnTenantTokens("t", 5, 7);
  const auto ticket = *admission_.Admit({.bytes = 10, .tokens = 100, .model = "m"});
  std::optional<Admission::Ticket> other = *admission_.Admit({.tokens = 50, .model = "x"});
  EXPECT_EQ(Value("continuo_gateway_time_to_first_token_seconds", {{"model", "m"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_migrations_total", {{"model", "m"}, {"reason", "lost"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"model", "m"}, {"code", "OK"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"code", "RESOURCE_EXHAUSTED"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_rejected_total", {{"reason", "OVERLOADED"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_tenant_tokens_total", {{"tenant", "t"}, {"kind", "prompt"}}),
            5);
  EXPECT_EQ(Value("continuo_gateway_open_streams", {}), 2);
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "m"}}), 100);
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "unknown"}}), 50);
  other.reset();
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "unknown"}}), 0);
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "m"}}), 100);
  metrics_.OnUnauthenticated();
  EXPECT_EQ(Value("continuo_gateway_unauthenticated_total", {}), 1);
  EXPECT_EQ(Value("continuo_gateway_spans_dropped_total", {}), 0);
  metrics_.set_dropped_spans([] { return 3; });
  EXPECT_EQ(Value("continuo_gateway_spans_dropped_total", {}), 3);
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Value("continuo_gateway_load_age_seconds", {}), 2);
}

TEST_F(GatewayMetricsTest, NamesFromClientsMakeNoEndlessSeries) {
  for (int i = 0; i < 2000; ++i) {
    metrics_.OnRequestEnd("invented-" + std::to_string(i), absl::NotFoundError(""));
    metrics_.OnTenantTokens("tenant-" + std::to_string(i), 1, 1);
  }
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"model", "unknown"}}), 2000);
  // A thousand tenants, "default" among them, have series of their own.
  EXPECT_EQ(Value("continuo_gateway_tenant_tokens_total", {{"tenant", "other"}}), 2002);
  size_t series = 0;
  for (const auto& family : Collect()) series += family.metric.size();
  EXPECT_LT(series, 2100);
}

}  // namespace
}  // namespace continuo::gateway
