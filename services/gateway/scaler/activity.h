// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace continuo::gateway {

// Decides what one StreamIsActive sends: at once whether the model is active, then each change. A
// model is inactive once nobody has asked for it for a while, so that short requests are no
// changes. `true` is repeated while the model has no worker, since KEDA drops what comes while it
// is busy. A function of what it is told; times are those of Clock::Elapsed. Not thread-safe.
class Activity {
 public:
  static constexpr absl::Duration kQuiet = absl::Seconds(5);
  static constexpr absl::Duration kRepeat = absl::Seconds(2);

  // Returns what is to be sent now, if anything is. `has_demand`: somebody waits for the model or
  // is answered. `is_served`: a worker takes requests.
  std::optional<bool> Next(bool has_demand, bool is_served, absl::Duration now);

 private:
  std::optional<bool> sent_;
  absl::Duration sent_time_;
  absl::Duration demand_time_ = -absl::InfiniteDuration();  // When there last was demand.
};

}  // namespace continuo::gateway
