// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace continuo::gateway {

// Returns how old a worker's last report has to be beside those of its peers before the worker
// counts as silent, by the ages of the last reports of all open watches. A gateway that is short of
// CPU reads every report late, and one that is cut off reads none: the fault is its own, and to
// migrate all streams would only add load. So the limit is kSilentAges times the age that a quarter
// of the fleet does not exceed. While more than three quarters are silent nobody is, and the
// gateway keeps its last view of them until their connections end. A fleet of fewer than kMinFleet
// watches has no limit of this kind (zero).
absl::Duration FleetSilenceLimit(std::vector<absl::Duration> ages);
inline constexpr int kSilentAges = 8;
inline constexpr size_t kMinFleet = 8;

}  // namespace continuo::gateway
