// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace continuo::simulate {

// One metric of a HorizontalPodAutoscaler whose target is an average over the pods.
struct ScalingMetric {
  double target = 1;
  // The value of each pod that has one. An external metric has only their sum.
  std::vector<double> values;
  // Of the type Pods: each pod of the Deployment counts, also those without a value. Otherwise it
  // is external, and its sum is divided among the pods that there should be.
  bool is_per_pod = false;
  // False where whoever is asked for the metric does not answer.
  bool is_available = true;
};

struct HorizontalScalerOptions {
  int min_replicas = 1, max_replicas = 4;
  // How long the load has to be lower before pods are taken away (stabilizationWindowSeconds).
  absl::Duration scale_down = absl::Seconds(300);
};

// Decides the number of replicas as Kubernetes' controller does for the chart's autoscaler: the
// largest that any metric asks for, within a tolerance of a tenth; up at once by the default
// policies (four pods or twice as many within 15 s), down by one pod in 30 s once the window has
// asked for less throughout. Times never go back. Not thread-safe.
class HorizontalScaler {
 public:
  // `replicas` is the number at `now`, when the controller begins; it stays for a window.
  HorizontalScaler(const HorizontalScalerOptions& options, int replicas, absl::Duration now);

  // One sync: the number of replicas from now on. `replicas` are there or being made; a controller
  // whose target has none does nothing.
  int Next(const std::vector<ScalingMetric>& metrics, int replicas, absl::Duration now);

 private:
  struct Change {
    absl::Duration time;
    int by = 0;  // above 0: added
  };

  int Stabilise(int wanted, int replicas, absl::Duration now);
  int Limit(int wanted, int replicas, absl::Duration now) const;
  // Pods added less pods taken away within `period`.
  int ChangeWithin(absl::Duration period, absl::Duration now) const;

  const HorizontalScalerOptions options_;
  std::vector<std::pair<absl::Duration, int>> advice_;  // what the metrics asked for, oldest first
  std::vector<Change> changes_;                         // oldest first
};

// The number of replicas that one metric asks for. Nothing where it is not available, or no pod has
// a value that would be needed: such a metric is invalid.
std::optional<int> ReplicasFor(const ScalingMetric& metric, int replicas);

}  // namespace continuo::simulate
