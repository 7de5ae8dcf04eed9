// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace continuo {

// Time is passed in: what decides never asks the system. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time, for deadlines and reference times.
  virtual absl::Time Now() const = 0;
};

class SystemClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace continuo
