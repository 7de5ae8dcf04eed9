// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/silence.h"

#include <algorithm>
#include <cstddef>

namespace continuo::gateway {

absl::Duration FleetSilenceLimit(std::vector<absl::Duration> ages) {
  if (ages.size() < kMinFleet) return absl::ZeroDuration();
  const auto quarter = ages.begin() + static_cast<ptrdiff_t>(ages.size() / 4);
  std::ranges::nth_element(ages, quarter);
  return kSilentAges * *quarter;
}

}  // namespace continuo::gateway
