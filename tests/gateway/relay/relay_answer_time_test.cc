// SPDX-License-Identifier: Apache-2.0
// Tests of the answer times that a relay reports to admission, whatever its worker says.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <limits>

#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

// Admits a request with ten seconds left behind three that wait a second each.
absl::Status AdmitInQueue(RelayWorld& world) {
  std::deque<Admission::Ticket> queue;
  for (int i = 0; i < 20; ++i) {
    while (queue.size() < 3) {
      queue.push_back(*world.admission.Admit({.bytes = 1, .tokens = 50}));
      queue.back().SetSent(true);
    }
    world.sim.clock.Advance(absl::Seconds(1));
    queue.front().MarkRead();
    queue.pop_front();
  }
  return world.admission.Admit({.bytes = 1, .tokens = 50, .time_left = absl::Seconds(10)}).status();
}

// Makes answers take most of a minute or more, while the worker reports `seconds`.
void SayTotal(RelayWorld& world, int64_t seconds) {
  world.fleet.response_delay = absl::Seconds(20);
  world.fleet.edit = [seconds](v1::GenerateResponse& response) {
    if (!response.has_summary()) return;
    v1::Timings& timings = *response.mutable_summary()->mutable_timings();
    timings.mutable_total_duration()->set_seconds(seconds);
  };
}

TEST(RelayAnswerTimeTest, WhatAnswersTookIsExpectedOfTheNext) {
  RelayWorld world(1);
  SayTotal(world, 40);
  world.Run(Request());
  ASSERT_GT(world.client.report.duration, absl::Seconds(40));
  EXPECT_TRUE(absl::IsResourceExhausted(AdmitInQueue(world)));
}

TEST(RelayAnswerTimeTest, AWorkerCannotSayThatItsAnswersTakeForEver) {
  RelayWorld world(1);
  SayTotal(world, std::numeric_limits<int64_t>::max());
  world.Run(Request());
  EXPECT_EQ(AdmitInQueue(world), absl::OkStatus());
}

}  // namespace
}  // namespace continuo::gateway
