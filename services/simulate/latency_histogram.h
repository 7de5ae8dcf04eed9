// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace continuo::simulate {

// Counts durations in classes of which each is 1 % longer than the one before, from 1 µs to about
// five hours: percentiles are right to 0.5 %, in constant memory. Not thread-safe.
class LatencyHistogram {
 public:
  // Counts `duration` so many times.
  void Record(absl::Duration duration, uint64_t times = 1);

  uint64_t count() const { return count_; }
  // In seconds; 0 without any.
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double max() const { return max_; }
  // The value that at least `share`, in [0, 1], of the durations do not exceed, in seconds.
  double Percentile(double share) const;

 private:
  static constexpr double kRatio = 1.01, kLeast = 1e-6;
  static constexpr size_t kClasses = 2376;

  std::array<uint64_t, kClasses> counts_ = {};
  uint64_t count_ = 0;
  double sum_ = 0, max_ = 0;
};

}  // namespace continuo::simulate
