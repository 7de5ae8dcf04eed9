// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace continuo::simulate {

void LatencyHistogram::Record(absl::Duration duration, uint64_t times) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(duration));
  const double place = std::log(std::max(seconds, kLeast) / kLeast) / std::log(kRatio);
  counts_[std::min(kClasses - 1, static_cast<size_t>(place))] += times;
  count_ += times;
  sum_ += seconds * static_cast<double>(times);
  max_ = std::max(max_, seconds);
}

double LatencyHistogram::Percentile(double share) const {
  if (count_ == 0) return 0;
  const auto rank =
      std::max(uint64_t{1}, static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_))));
  uint64_t below = 0;
  size_t i = 0;
  while (i + 1 < kClasses && (below += counts_[i]) < rank) ++i;
  // The middle of the class.
  return std::min(max_, kLeast * std::pow(kRatio, static_cast<double>(i) + 0.5));
}

}  // namespace continuo::simulate
