// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/load_delta.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace continuo::protocol {
namespace {

v1::WatchLoadResponse Report() {
  v1::WatchLoadResponse report;
  report.set_worker("worker-1");
  report.set_incarnation("1");
  report.set_state(v1::WORKER_STATE_SERVING);
  report.set_model("m");
  report.set_fingerprint("F");
  report.set_tokenizer_fingerprint("T");
  report.set_running_requests(3);
  report.set_waiting_requests(2);
  report.set_pending_prompt_tokens(700);
  report.set_used_kv_blocks(10);
  report.set_cached_kv_blocks(5);
  report.set_total_kv_blocks(100);
  report.set_block_size_tokens(16);
  report.set_max_running_requests(64);
  report.set_used_state_slots(6);
  report.set_cached_state_slots(4);
  report.set_total_state_slots(32);
  report.set_steps(1000);
  report.set_prefill_tokens_per_second(10.5f);
  report.set_decode_tokens_per_second(20.5f);
  report.set_health(v1::WORKER_HEALTH_SERVING);
  v1::ServedAdapter& adapter = *report.add_adapters();
  adapter.set_model("a");
  adapter.set_fingerprint("f");
  return report;
}

TEST(LoadDeltaTest, AReportIsItsDeltaOverTheOneBefore) {
  // What changes may become zero, which has no bytes.
  v1::WatchLoadResponse next = Report();
  next.set_state(v1::WORKER_STATE_DRAINING);
  next.set_running_requests(0);
  next.set_waiting_requests(0);
  next.set_pending_prompt_tokens(0);
  next.set_used_kv_blocks(0);
  next.set_cached_kv_blocks(0);
  next.set_used_state_slots(0);
  next.set_cached_state_slots(0);
  next.set_steps(1001);
  next.set_prefill_tokens_per_second(0);
  next.set_decode_tokens_per_second(0);
  next.set_health(v1::WORKER_HEALTH_NOT_SERVING);
  ASSERT_TRUE(IsDeltaOf(next, Report()));
  const v1::WatchLoadResponse delta = MakeLoadDelta(next);
  EXPECT_TRUE(delta.is_delta());
  EXPECT_LT(delta.ByteSizeLong(), 15u);
  v1::WatchLoadResponse report = Report();
  ApplyLoadDelta(delta, &report);
  EXPECT_EQ(report.SerializeAsString(), next.SerializeAsString());
}

TEST(LoadDeltaTest, WhatADeltaLeavesOutMakesAWholeReportNecessary) {
  const std::vector<std::function<void(v1::WatchLoadResponse&)>> changes = {
      [](auto& report) { report.set_worker("x"); },
      [](auto& report) { report.set_incarnation("x"); },
      [](auto& report) { report.set_model("x"); },
      [](auto& report) { report.set_fingerprint("x"); },
      [](auto& report) { report.set_tokenizer_fingerprint("x"); },
      [](auto& report) { report.set_total_kv_blocks(1); },
      [](auto& report) { report.set_block_size_tokens(1); },
      [](auto& report) { report.set_max_running_requests(1); },
      [](auto& report) { report.set_total_state_slots(1); }};
  for (const auto& change : changes) {
    v1::WatchLoadResponse report = Report();
    change(report);
    EXPECT_FALSE(IsDeltaOf(report, Report())) << report.ShortDebugString();
  }
  EXPECT_TRUE(IsDeltaOf(Report(), Report()));
}

// A field that is added to a report and forgotten here would never reach a gateway.
TEST(LoadDeltaTest, EveryFieldIsInADeltaOrMakesAWholeReportNecessary) {
  const v1::WatchLoadResponse full;
  const auto* const descriptor = v1::WatchLoadResponse::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    if (descriptor->field(i)->name() == "is_delta") continue;
    const std::string& name = descriptor->field(i)->name();
    v1::WatchLoadResponse next = Report();
    // All other fields as in `full`.
    for (int j = 0; j < descriptor->field_count(); ++j) {
      if (j != i) next.GetReflection()->ClearField(&next, descriptor->field(j));
    }
    ASSERT_GT(next.ByteSizeLong(), 0u) << name << " is not set by Report()";
    if (!IsDeltaOf(next, full)) continue;
    v1::WatchLoadResponse report;
    ApplyLoadDelta(MakeLoadDelta(next), &report);
    EXPECT_EQ(report.SerializeAsString(), next.SerializeAsString()) << name;
  }
}

TEST(LoadDeltaTest, OtherAdaptersNeedAWholeReport) {
  v1::WatchLoadResponse full = Report();
  full.add_adapters()->set_model("poet");
  v1::WatchLoadResponse next = full;
  next.set_steps(1001);
  ASSERT_TRUE(IsDeltaOf(next, full));
  EXPECT_EQ(MakeLoadDelta(next).adapters_size(), 0);
  v1::WatchLoadResponse report = full;
  ApplyLoadDelta(MakeLoadDelta(next), &report);
  EXPECT_EQ(report.SerializeAsString(), next.SerializeAsString());
  next.mutable_adapters(0)->set_fingerprint("F2");
  EXPECT_FALSE(IsDeltaOf(next, full));
  next = full;
  next.mutable_adapters(0)->set_on_demand(true);
  EXPECT_FALSE(IsDeltaOf(next, full));
  next = full;
  next.clear_adapters();
  EXPECT_FALSE(IsDeltaOf(next, full));
}

}  // namespace
}  // namespace continuo::protocol
