// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace continuo {

// The source of time. Classes that decide by time get a Clock and never ask the system.
// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time, for deadlines and reference times.
  virtual absl::Time Now() const = 0;
  // Time since some fixed moment; never goes back. For measuring how long something takes.
  virtual absl::Duration Elapsed() const { return Now() - absl::UnixEpoch(); }
};

class SystemClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Elapsed() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace continuo
