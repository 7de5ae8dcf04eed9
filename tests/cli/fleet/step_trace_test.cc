// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/fleet/steps.h"

namespace continuo::cli {
namespace {

using nlohmann::json;
using testing::MakeStep;
using testing::MakeSteps;

constexpr auto kStop = v1::FINISH_REASON_STOP;
constexpr uint64_t kEnough = 1 << 20;

json Finish(StepTrace& trace) {
  trace.End("w0", "duration");
  const std::string text = trace.TakeText();
  EXPECT_EQ(text.size(), trace.num_bytes());
  return json::parse(text);
}

std::vector<json> Events(const json& trace, const std::string& phase, int process) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == phase && event["pid"] == process) events.push_back(event);
  }
  return events;
}

// Checks that slices of a thread do not overlap.
void ExpectNoOverlaps(const json& trace) {
  std::map<std::pair<int, int>, int64_t> ends;  // ns
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const auto ns = [&](const char* name) { return std::llround(event[name].get<double>() * 1e3); };
    int64_t& end = ends[{event["pid"], event["tid"]}];
    EXPECT_GE(ns("ts"), end) << event;
    end = ns("ts") + ns("dur");
  }
}

TEST(StepTraceTest, AStepIsASliceWithItsFigures) {
  StepTrace trace(kEnough);
  v1::Step step = MakeStep(1, {{"a", 100, 0, 90, 0}, {"b", 5, 9, 1, 5}});
  step.set_waiting_requests(3);
  step.set_used_kv_blocks(12);
  trace.Take(MakeSteps({step, MakeStep(2, {{"b", 5, 10, 1, 6}})}));
  const json result = Finish(trace);
  const std::vector<json> steps = Events(result, "X", 1);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["ts"], 0.0);
  EXPECT_EQ(steps[0]["dur"], 8000.0);
  EXPECT_EQ(steps[1]["ts"], 10000.0);
  EXPECT_EQ(steps[0]["args"],
            json::parse(R"({"number":1,"sequences":2,"prefill tokens":90,"decode tokens":1,
                            "waiting":3,"KV blocks":12})"));
  EXPECT_FALSE(Events(result, "C", 1).empty());
  EXPECT_EQ(result["otherData"]["steps"], 2);
}

TEST(StepTraceTest, ARequestIsASliceForEachPieceOfItsPromptAndOneForItsAnswer) {
  StepTrace trace(kEnough);
  trace.Take(MakeSteps({MakeStep(1, {{"a", 10, 0, 6, 0}}), MakeStep(2, {{"a", 10, 6, 4, 1}}),
                        MakeStep(3, {{"a", 10, 10, 1, 2}})}));
  trace.Take(
      MakeSteps({MakeStep(4, {{"a", 10, 11, 1, 3, kStop}}), MakeStep(5, {{"b", 9, 0, 9, 1}})}));
  const json result = Finish(trace);
  const std::vector<json> slices = Events(result, "X", 2);
  ASSERT_EQ(slices.size(), 5u);
  EXPECT_EQ(slices[0]["name"], "a prompt");
  EXPECT_EQ(slices[1]["args"]["prefilled"], 4);
  EXPECT_EQ(slices[2]["name"], "a");
  EXPECT_EQ(slices[2]["ts"], 18000.0);   // the end of the step that prefilled the rest
  EXPECT_EQ(slices[2]["dur"], 20000.0);  // to the end of the fourth
  EXPECT_EQ(slices[2]["args"]["generated"], 3);
  EXPECT_EQ(slices[2]["args"]["end"], "stop");
  EXPECT_EQ(slices[3]["name"], "b prompt");
  EXPECT_EQ(slices[3]["tid"], 1);  // the row that was free
  EXPECT_EQ(slices[4]["args"]["end"], "the trace ends");
  ExpectNoOverlaps(result);
}

TEST(StepTraceTest, PreemptedLostAndLeftRequestsEnd) {
  StepTrace trace(kEnough);
  trace.Take(MakeSteps({MakeStep(1, {{"a", 4, 0, 4, 1}, {"b", 4, 0, 4, 1}, {"c", 4, 0, 4, 1}})}));
  trace.Take(
      MakeSteps({MakeStep(2, {{"a", 4, 0, 0, 1, {}, /*preempted=*/true}, {"b", 4, 4, 1, 2}})}));
  for (uint64_t i = 3; i < 300; ++i) trace.Take(MakeSteps({MakeStep(i, {{"b", 4, 5, 1, 3}})}));
  trace.Lose("UNAVAILABLE");
  std::map<std::string, std::string> ends;
  const json result = Finish(trace);
  for (const json& slice : Events(result, "X", 2)) {
    if (slice["args"].contains("end")) ends[slice["name"]] = slice["args"]["end"];
  }
  EXPECT_EQ(ends["a"], "preempted");
  EXPECT_EQ(ends["b"], "the worker is gone");
  EXPECT_EQ(ends["c"], "gone");
  EXPECT_EQ(Events(result, "i", 1).size(), 1u);
}

TEST(StepTraceTest, ItEndsBeforeItsSizeAndIsWhole) {
  StepTrace trace(StepTrace::kMinBytes);
  std::string text;
  uint64_t step = 0;
  for (; !trace.full(); ++step) {
    ASSERT_LT(step, 100000u);
    trace.Take(MakeSteps({MakeStep(step, {{"a" + std::to_string(step), 4, 0, 4, 1}})}));
    text += trace.TakeText();
  }
  EXPECT_GT(step, 50u);
  trace.Take(MakeSteps({MakeStep(step, {{"z", 4, 0, 4, 1}})}));
  trace.End("w0", "max_bytes");
  text += trace.TakeText();
  EXPECT_LE(text.size(), StepTrace::kMinBytes);
  EXPECT_EQ(json::parse(text)["otherData"]["ended"], "max_bytes");
}

TEST(StepTraceTest, StepsThatWereNotSeenAreMarked) {
  StepTrace trace(kEnough);
  trace.Take(MakeSteps({MakeStep(5, {{"a", 4, 0, 4, 1}})}, /*num_dropped=*/4));
  const json result = Finish(trace);
  EXPECT_EQ(Events(result, "i", 1)[0]["name"], "4 steps not seen");
  EXPECT_EQ(result["otherData"]["steps not seen"], 4);
}

TEST(StepTraceTest, WhateverAWorkerSaysTheTraceIsJsonWithoutOverlaps) {
  StepTrace trace(kEnough);
  const std::string evil = "\"},\\\x1b]0;\n{\u202e";
  for (uint64_t i = 0; i < 50; ++i) {
    v1::Step step = MakeStep(50 - i, {{evil, 4, static_cast<uint32_t>(i), 4'000'000'000, 0},
                                      {evil, 4, 9, 1, 4'000'000'000}});
    const int64_t extremes[] = {std::numeric_limits<int64_t>::min(), -5, 0, 1,
                                std::numeric_limits<int64_t>::max()};
    step.mutable_start_time()->set_seconds(extremes[i % 5]);
    step.mutable_duration()->set_seconds(extremes[i / 5 % 5]);
    trace.Take(MakeSteps({step}, std::numeric_limits<uint64_t>::max()));
  }
  trace.Lose(evil);
  trace.End(evil, evil);
  const std::string text = trace.TakeText();
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  ExpectNoOverlaps(json::parse(text));
}

}  // namespace
}  // namespace continuo::cli
