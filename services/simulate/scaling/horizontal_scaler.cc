// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/horizontal_scaler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace continuo::simulate {
namespace {

// The defaults of Kubernetes: changes that are smaller than this share are not made, and a target
// grows by so many pods, or to so many times as many, within the period.
constexpr double kTolerance = 0.1;
constexpr int kMostAdded = 4, kGrowth = 2;
constexpr absl::Duration kGrowthPeriod = absl::Seconds(15);
// The chart's policy for the way down.
constexpr int kMostRemoved = 1;
constexpr absl::Duration kRemovalPeriod = absl::Seconds(30);

bool IsNear(double ratio) { return std::abs(1 - ratio) <= kTolerance; }

int RoundUp(double replicas) {
  // A sum of values may be off by its last digits.
  return static_cast<int>(std::min(1e6, std::ceil(replicas - 1e-9)));
}

}  // namespace

std::optional<int> ReplicasFor(const ScalingMetric& metric, int replicas) {
  if (!metric.is_available) return std::nullopt;
  double sum = std::accumulate(metric.values.begin(), metric.values.end(), 0.0);
  if (!metric.is_per_pod) {
    return IsNear(sum / (metric.target * replicas)) ? replicas : RoundUp(sum / metric.target);
  }
  if (metric.values.empty()) return std::nullopt;
  const auto known = static_cast<double>(metric.values.size());
  const double ratio = sum / known / metric.target;
  const int missing = replicas - static_cast<int>(metric.values.size());
  if (missing <= 0) return IsNear(ratio) ? replicas : RoundUp(ratio * known);
  // A pod without a value counts for what speaks against a change.
  if (ratio < 1) sum += missing * metric.target;
  const double all = known + missing;
  const double cautious = sum / all / metric.target;
  if (IsNear(cautious) || (ratio < 1) != (cautious < 1)) return replicas;
  const int wanted = RoundUp(cautious * all);
  return cautious < 1 ? std::min(wanted, replicas) : std::max(wanted, replicas);
}

HorizontalScaler::HorizontalScaler(const HorizontalScalerOptions& options, int replicas,
                                   absl::Duration now)
    : options_(options), advice_({{now, replicas}}) {}

int HorizontalScaler::Next(const std::vector<ScalingMetric>& metrics, int replicas,
                           absl::Duration now) {
  if (replicas == 0) return 0;
  int wanted = 0;
  bool is_complete = true;
  for (const ScalingMetric& metric : metrics) {
    const std::optional<int> of_metric = ReplicasFor(metric, replicas);
    is_complete = is_complete && of_metric.has_value();
    wanted = std::max(wanted, of_metric.value_or(0));
  }
  // An invalid metric might ask for more than the others.
  if (!is_complete && wanted < replicas) return replicas;
  const int next = std::clamp(Limit(Stabilise(wanted, replicas, now), replicas, now),
                              options_.min_replicas, options_.max_replicas);
  if (next != replicas) changes_.push_back({.time = now, .by = next - replicas});
  std::erase_if(changes_, [&](const Change& c) { return now - c.time >= kRemovalPeriod; });
  return next;
}

int HorizontalScaler::Stabilise(int wanted, int replicas, absl::Duration now) {
  std::erase_if(advice_,
                [&](const auto& advice) { return now - advice.first >= options_.scale_down; });
  int most = wanted;
  for (const auto& [time, advised] : advice_) most = std::max(most, advised);
  advice_.emplace_back(now, wanted);
  if (wanted > replicas) return wanted;
  return std::min(replicas, most);
}

int HorizontalScaler::Limit(int wanted, int replicas, absl::Duration now) const {
  if (wanted > replicas) {
    const int before = replicas - ChangeWithin(kGrowthPeriod, now);
    return std::min(wanted, std::max({replicas, before + kMostAdded, before * kGrowth}));
  }
  const int before = replicas - ChangeWithin(kRemovalPeriod, now);
  return std::max(wanted, std::min(replicas, before - kMostRemoved));
}

int HorizontalScaler::ChangeWithin(absl::Duration period, absl::Duration now) const {
  int change = 0;
  for (const Change& c : changes_) {
    if (now - c.time < period) change += c.by;
  }
  return change;
}

}  // namespace continuo::simulate
