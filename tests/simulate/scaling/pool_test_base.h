// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "services/simulate/scaling/pod_set.h"

namespace continuo::simulate {

// Four places for pods, all of whose workers serve. A worker has no streams, so one that drains
// ends with the next events of the loop.
class PoolTestBase : public ::testing::Test {
 protected:
  // A pod takes `start` from the request for it until it serves.
  explicit PoolTestBase(absl::Duration start)
      : pods_(
            {.start = start}, &workers_, &loop_, [] {}, [] {}) {
    profile_.engine.num_blocks = 64;
    for (int i = 0; i < 4; ++i) {
      WorkerEvents events = {.on_report = [](const auto&) {},
                             .on_down = [this, i] { pods_.OnExit(i); },
                             .on_exit = [] {},
                             .on_health = [](bool) {}};
      workers_.push_back(std::make_unique<SimulatedWorker>(i, true, &profile_, &loop_, &network_,
                                                           std::move(events), &hooks_));
    }
    pods_.Begin(4);
  }
  ~PoolTestBase() override { loop_.Clear(); }

  void Run(absl::Duration time) { loop_.RunUntil(loop_.Elapsed() + time); }

  EventLoop loop_;
  Network network_{absl::ZeroDuration()};
  profile::WorkerProfile profile_ = profile::ExampleProfile();
  TestHooks hooks_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  PodSet pods_;
};

}  // namespace continuo::simulate
