// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "tests/testing/manual_clock.h"

namespace continuo::gateway {

// Calls a hook when it is next asked for the time: in the middle of the code under test.
class ClockWithHook : public ManualClock {
 public:
  absl::Duration Elapsed() const override {
    if (auto hook = std::exchange(hook_, nullptr)) hook();
    return ManualClock::Elapsed();
  }
  void OnNextUse(std::function<void()> hook) { hook_ = std::move(hook); }

 private:
  mutable std::function<void()> hook_;
};

}  // namespace continuo::gateway
