// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/gateway_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "services/common/telemetry/metrics.h"
#include "services/protocol/error.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class GatewayMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LoadSnapshot snapshot;
    snapshot.known_models = {"m"};
    snapshot.workers.push_back(
        std::make_shared<const WorkerLoad>(WorkerLoad{.model = "m",
                                                      .fingerprint = "F",
                                                      .state = WorkerState::kServing,
                                                      .report_time = clock_.Elapsed()}));
    view_.Set(std::move(snapshot));
    metrics_.set_pool_names({"stable", "canary"});
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
      ElementsAre(
          "continuo_gateway_build_info", "continuo_gateway_cold_requests",
          "continuo_gateway_fingerprint_workers", "continuo_gateway_inter_token_seconds",
          "continuo_gateway_key_rejections_total", "continuo_gateway_load_age_seconds",
          "continuo_gateway_max_open_bytes", "continuo_gateway_max_open_streams",
          "continuo_gateway_max_queued_prompt_tokens", "continuo_gateway_migration_stall_seconds",
          "continuo_gateway_migrations_total", "continuo_gateway_open_bytes",
          "continuo_gateway_open_streams", "continuo_gateway_queue_seconds",
          "continuo_gateway_queued_prompt_tokens", "continuo_gateway_queued_requests",
          "continuo_gateway_rejected_total", "continuo_gateway_request_seconds",
          "continuo_gateway_requests_total", "continuo_gateway_saturation_ratio",
          "continuo_gateway_spans_dropped_total", "continuo_gateway_tenant_tokens_total",
          "continuo_gateway_time_to_first_token_seconds", "continuo_gateway_unauthenticated_total",
          "continuo_gateway_usage_records_dropped_total", "continuo_gateway_workers",
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
  // The series of a pool are: requests 17 (codes) and 11 (reasons), migrations 5, five histograms;
  // there are those of pool 0 and of no pool. Beside them: workers 5, a fingerprint, queued tokens.
  EXPECT_EQ(series, 2 * 38 + 7);
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"code", "UNAVAILABLE"}}), 0);
  EXPECT_EQ(Value("continuo_gateway_workers", {{"state", "serving"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_workers", {{"state", "lost"}}), 0);
}

TEST_F(GatewayMetricsTest, WorkersOfAdaptersAreToldApart) {
  LoadSnapshot snapshot = *view_.Get();
  auto adapter = std::make_shared<WorkerLoad>(*snapshot.workers.at(0));
  adapter->parent = adapter->model;
  adapter->model = "poet";
  snapshot.workers.push_back(adapter);
  snapshot.known_models = {"m", "poet"};
  snapshot.adapters = {{"poet", "m"}};
  view_.Set(std::move(snapshot));
  EXPECT_EQ(Value("continuo_gateway_workers", {{"model", "poet"}, {"parent", "m"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_workers", {{"parent", ""}, {"state", "serving"}}), 1)
      << "the worker itself";
}

TEST_F(GatewayMetricsTest, WhatHappensIsCounted) {
  metrics_.OnFirstToken({"m", 0}, absl::Milliseconds(3));
  metrics_.OnMigration({"m", 0}, "lost");
  metrics_.OnStall({"m", 0}, absl::Milliseconds(30));
  metrics_.OnRequestEnd({"m", 0}, absl::OkStatus(), absl::Seconds(1));
  metrics_.OnRejected(
      "m", protocol::WithReason(absl::ResourceExhaustedError(""), protocol::kReasonOverloaded));
  metrics_.OnTenantTokens(
      "t", {.prompt = 5, .completion = 7, .generated = 9, .cached = 3, .reasoning = 2});
  const auto ticket = *admission_.Admit({.bytes = 10, .tokens = 100, .model = "m"});
  std::optional<Admission::Ticket> other = *admission_.Admit({.tokens = 50, .model = "x"});
  EXPECT_EQ(Value("continuo_gateway_time_to_first_token_seconds", {{"model", "m"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_migrations_total", {{"model", "m"}, {"reason", "lost"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"model", "m"}, {"code", "OK"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"code", "RESOURCE_EXHAUSTED"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_rejected_total", {{"reason", "OVERLOADED"}}), 1);
  for (const auto& [kind, number] : std::vector<std::pair<std::string, int>>{
           {"prompt", 5}, {"completion", 7}, {"generated", 9}, {"cached", 3}, {"reasoning", 2}}) {
    EXPECT_EQ(Value("continuo_gateway_tenant_tokens_total", {{"tenant", "t"}, {"kind", kind}}),
              number)
        << kind;
  }
  EXPECT_EQ(Value("continuo_gateway_open_streams", {}), 2);
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "m"}}), 100);
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "unknown"}}), 50);
  other.reset();
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "unknown"}}), 0);
  EXPECT_EQ(Value("continuo_gateway_queued_prompt_tokens", {{"model", "m"}}), 100);
  metrics_.OnUnauthenticated();
  EXPECT_EQ(Value("continuo_gateway_unauthenticated_total", {}), 1);
  EXPECT_EQ(Value("continuo_gateway_spans_dropped_total", {}), 0);
  EXPECT_EQ(Value("continuo_gateway_usage_records_dropped_total", {}), 0);
  metrics_.set_dropped_spans([] { return 3; });
  metrics_.set_dropped_records([] { return 4; });
  EXPECT_EQ(Value("continuo_gateway_spans_dropped_total", {}), 3);
  EXPECT_EQ(Value("continuo_gateway_usage_records_dropped_total", {}), 4);
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Value("continuo_gateway_load_age_seconds", {}), 2);
}

TEST_F(GatewayMetricsTest, PoolsAreToldApart) {
  metrics_.OnBegun({"m", 1}, absl::Milliseconds(2));
  metrics_.OnFirstToken({"m", 1}, absl::Milliseconds(3));
  metrics_.OnTokens({"m", 1}, absl::Milliseconds(3), 1);
  metrics_.OnMigration({"m", 1}, "lost");
  metrics_.OnStall({"m", 0}, absl::Milliseconds(30));
  metrics_.OnRequestEnd({"m", 0}, absl::OkStatus(), absl::Seconds(1));
  metrics_.OnRequestEnd({"m", 1}, absl::InternalError(""), absl::Seconds(1));
  for (const auto& [name, stable, canary] : std::vector<std::tuple<std::string, int, int>>{
           {"continuo_gateway_queue_seconds", 0, 1},
           {"continuo_gateway_time_to_first_token_seconds", 0, 1},
           {"continuo_gateway_inter_token_seconds", 0, 1},
           {"continuo_gateway_migrations_total", 0, 1},
           {"continuo_gateway_migration_stall_seconds", 1, 0},
           {"continuo_gateway_requests_total", 1, 1},
           // The duration of a failure says nothing.
           {"continuo_gateway_request_seconds", 1, 0}}) {
    EXPECT_EQ(Value(name, {{"pool", "stable"}}), stable) << name;
    EXPECT_EQ(Value(name, {{"pool", "canary"}}), canary) << name;
  }
  EXPECT_EQ(Value("continuo_gateway_workers", {{"pool", "stable"}, {"state", "serving"}}), 1);
  EXPECT_EQ(Value("continuo_gateway_fingerprint_workers",
                  {{"model", "m"}, {"pool", "stable"}, {"fingerprint", "F"}}),
            1);
  EXPECT_EQ(metrics_.PoolName(-1), "");
  EXPECT_EQ(metrics_.PoolName(2), "2");
}

TEST_F(GatewayMetricsTest, PlannedEndsAreToldApartFromErrors) {
  const auto count = [&](const std::string& reason) {
    return Value("continuo_gateway_requests_total", {{"code", "UNAVAILABLE"}, {"reason", reason}});
  };
  metrics_.OnRequestEnd(
      {"m", 0}, protocol::WithReason(absl::UnavailableError(""), protocol::kReasonContinue), {});
  metrics_.OnRequestEnd({"m", 0}, absl::UnavailableError(""), {});
  // A worker's own word makes no series.
  metrics_.OnRequestEnd({"m", 0}, protocol::WithReason(absl::UnavailableError(""), "ODD"), {});
  EXPECT_EQ(count("CONTINUE"), 1);
  EXPECT_EQ(count("NO_WORKER"), 0);
  EXPECT_EQ(count(""), 2);
  EXPECT_EQ(count("ODD"), 0);
}

TEST_F(GatewayMetricsTest, LimitsAreBesideWhatTheyLimit) {
  const AdmissionLimits limits;
  EXPECT_EQ(Value("continuo_gateway_max_open_streams", {}), limits.max_open_requests);
  EXPECT_EQ(Value("continuo_gateway_max_open_bytes", {}), limits.max_open_bytes);
  EXPECT_EQ(Value("continuo_gateway_max_queued_prompt_tokens", {}), limits.max_queued_tokens);
  const auto ticket = *admission_.Admit({.bytes = 10, .tokens = 1, .model = "m", .is_cold = true});
  EXPECT_EQ(Value("continuo_gateway_open_bytes", {}), 10);
  EXPECT_EQ(Value("continuo_gateway_cold_requests", {}), 1);
}

TEST_F(GatewayMetricsTest, SaturationIsThatOfTheScarcestLimit) {
  const AdmissionLimits limits = {
      .max_open_requests = 10, .max_open_bytes = 1000, .max_queued_tokens = 100};
  Admission admission(limits);
  GatewayMetrics metrics(&admission, &view_, &clock_);
  const auto page = [&] { return common::FormatMetrics(metrics.load_collectables()); };
  EXPECT_THAT(page(), HasSubstr("\ncontinuo_gateway_saturation_ratio 0\n"));
  auto first = *admission.Admit({.bytes = 50, .tokens = 70, .tenant = "t", .model = "m"});
  EXPECT_THAT(page(), HasSubstr("\ncontinuo_gateway_saturation_ratio 0.7\n"));
  first.MarkStarted();
  EXPECT_THAT(page(), HasSubstr("\ncontinuo_gateway_saturation_ratio 0.1\n"));
  const auto second = *admission.Admit({.bytes = 250, .tokens = 1, .tenant = "t", .model = "m"});
  EXPECT_THAT(page(), HasSubstr("\ncontinuo_gateway_saturation_ratio 0.3\n"));
  EXPECT_THAT(page(), HasSubstr("\ncontinuo_gateway_open_streams 2\n"));
  EXPECT_THAT(page(), HasSubstr("\ncontinuo_gateway_queued_requests 1\n"));
  // It is read without a key, so it names nobody.
  EXPECT_THAT(page(), Not(HasSubstr("{")));
}

TEST_F(GatewayMetricsTest, AQuietTenantMakesRoomForAnother) {
  GatewayMetrics metrics(&admission_, &view_, &clock_, /*max_tenants=*/2);
  const auto tokens = [&](const std::string& tenant) {
    std::optional<double> sum;
    for (const auto& collectable : metrics.collectables()) {
      for (const auto& family : collectable->Collect()) {
        if (family.name != "continuo_gateway_tenant_tokens_total") continue;
        for (const auto& metric : family.metric) {
          for (const auto& label : metric.label) {
            if (label.value == tenant) sum = sum.value_or(0) + metric.counter.value;
          }
        }
      }
    }
    return sum;
  };
  metrics.OnTenantTokens("a", {.prompt = 1});
  metrics.OnTenantTokens("b", {.prompt = 2});
  EXPECT_EQ(tokens("a"), 1);
  EXPECT_EQ(tokens("b"), std::nullopt);
  EXPECT_EQ(tokens("other"), 2);
  clock_.Advance(GatewayMetrics::kTenantQuiet);
  metrics.OnTenantTokens("a", {.prompt = 1});
  metrics.OnTenantTokens("b", {.prompt = 4});
  EXPECT_EQ(tokens("default"), std::nullopt);
  EXPECT_EQ(tokens("a"), 2);
  EXPECT_EQ(tokens("b"), 4);
  metrics.OnTenantTokens("c", {.prompt = 8});
  EXPECT_EQ(tokens("c"), std::nullopt);
  EXPECT_EQ(tokens("other"), 10);
}

// An adapter of each night has a name of its own.
TEST_F(GatewayMetricsTest, AModelThatTheFleetHasForgottenHasNoSeriesAnHourLater) {
  const auto know = [&](const std::vector<std::string>& models) {
    LoadSnapshot snapshot = *view_.Get();
    snapshot.known_models = models;
    view_.Set(std::move(snapshot));
  };
  const auto num_series = [&](const std::string& model) {
    size_t number = 0;
    for (const auto& family : Collect()) {
      for (const auto& metric : family.metric) {
        for (const auto& label : metric.label)
          number += label.name == "model" && label.value == model;
      }
    }
    return number;
  };
  const auto requests = [&](const std::string& model) {
    return Value("continuo_gateway_requests_total", {{"model", model}});
  };
  know({"m", "poet"});
  metrics_.OnRequestEnd({"poet", 0}, absl::OkStatus(), absl::Seconds(1));
  metrics_.OnMigration({"poet", 0}, "lost");
  metrics_.OnRejected("poet", absl::InternalError(""));
  EXPECT_EQ(requests("poet"), 2);
  know({"m"});
  clock_.Advance(GatewayMetrics::kModelForgotten - absl::Seconds(1));
  EXPECT_EQ(requests("poet"), 2) << "what came last is still scraped";
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(num_series("poet"), 0u);
  EXPECT_EQ(num_series("m"), 2 * 38u + 7);
  metrics_.OnRequestEnd({"poet", 0}, absl::OkStatus(), absl::Seconds(1));
  EXPECT_EQ(requests("unknown"), 1);
  know({"m", "poet"});
  EXPECT_EQ(requests("poet"), 0);
  metrics_.OnRequestEnd({"poet", 0}, absl::OkStatus(), absl::Seconds(1));
  EXPECT_EQ(requests("poet"), 1);
}

TEST_F(GatewayMetricsTest, NamesFromClientsMakeNoEndlessSeries) {
  for (int i = 0; i < 2000; ++i) {
    metrics_.OnRejected("invented-" + std::to_string(i), absl::NotFoundError(""));
    metrics_.OnTenantTokens("tenant-" + std::to_string(i), {.prompt = 1});
  }
  EXPECT_EQ(Value("continuo_gateway_requests_total", {{"model", "unknown"}}), 2000);
  // A thousand tenants, "default" among them, have series of their own.
  EXPECT_EQ(Value("continuo_gateway_tenant_tokens_total", {{"tenant", "other"}}), 1001);
  size_t series = 0;
  for (const auto& family : Collect()) series += family.metric.size();
  EXPECT_LT(series, 5200);
}

}  // namespace
}  // namespace continuo::gateway
