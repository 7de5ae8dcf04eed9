// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace continuo::simulate {

// The rate of a counter over the samples of the last while, as Prometheus' rate() has it: a counter
// that falls has begun anew at 0, and fewer than two samples have no rate. What Prometheus
// extrapolates to the ends of the window is left out. Times never go back. Not thread-safe.
class CounterRate {
 public:
  explicit CounterRate(absl::Duration window) : window_(window) {}

  void Add(double value, absl::Duration now) {
    if (!samples_.empty()) {
      total_ += value >= last_ ? value - last_ : value;
    }
    last_ = value;
    samples_.emplace_back(now, total_);
    Forget(now);
  }

  // A second's growth.
  std::optional<double> At(absl::Duration now) {
    Forget(now);
    if (samples_.size() < 2) return std::nullopt;
    const auto& [first_time, first] = samples_.front();
    const auto& [last_time, last] = samples_.back();
    if (last_time <= first_time) return std::nullopt;
    return (last - first) / absl::ToDoubleSeconds(last_time - first_time);
  }

 private:
  void Forget(absl::Duration now) {
    while (!samples_.empty() && samples_.front().first < now - window_) samples_.pop_front();
  }

  const absl::Duration window_;
  std::deque<std::pair<absl::Duration, double>> samples_;  // time and total, oldest first
  double last_ = 0, total_ = 0;
};

}  // namespace continuo::simulate
