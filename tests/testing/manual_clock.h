// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "services/base/clock.h"

namespace continuo {

// A clock that stands still until a test moves it. Thread-safe.
class ManualClock : public Clock {
 public:
  explicit ManualClock(absl::Time start = absl::UnixEpoch() + absl::Hours(1))
      : nanoseconds_(absl::ToUnixNanos(start)) {}

  absl::Time Now() const override { return absl::FromUnixNanos(nanoseconds_ + wall_ahead_); }
  absl::Duration Elapsed() const override { return absl::Nanoseconds(nanoseconds_.load()); }
  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }
  // Sets the wall time, as an operator may do; Elapsed goes on as before.
  void JumpWallClock(absl::Duration by) { wall_ahead_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> nanoseconds_;
  std::atomic<int64_t> wall_ahead_ = 0;
};

}  // namespace continuo
