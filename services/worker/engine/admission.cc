// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/admission.h"

#include <algorithm>
#include <functional>

namespace continuo {

int64_t PeakTokens(int64_t shared, std::vector<Footprint>& footprints) {
  std::ranges::sort(footprints, std::greater<>(), &Footprint::remaining);
  int64_t held = shared, count = 0, peak = shared;
  for (const Footprint& f : footprints) {
    held += f.tokens;
    ++count;
    peak = std::max(peak, held + count * f.remaining);
  }
  return peak;
}

}  // namespace continuo
