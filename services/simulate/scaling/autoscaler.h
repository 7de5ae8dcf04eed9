// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/scaler/activity.h"
#include "services/gateway/scaler/demand.h"
#include "services/simulate/event/event_loop.h"
#include "services/simulate/scaling/counter_rate.h"
#include "services/simulate/scaling/horizontal_scaler.h"
#include "services/simulate/scaling/idle_scaler.h"
#include "services/simulate/scaling/pod_set.h"
#include "services/simulate/worker/simulated_worker.h"

namespace continuo::simulate {

// The autoscaling of a pool, with the names of the chart's values.
struct AutoscalerOptions {
  enum class By {
    kHpa,   // a HorizontalPodAutoscaler with the metrics of each pod
    kKeda,  // a ScaledObject, whose queries are sums over the pool
  };
  By by = By::kHpa;
  int min_replicas = 1, max_replicas = 4;  // a minimum of 0 needs kKeda
  double kv_occupancy = 0.7;               // share of the KV cache in use, mean of the workers
  int64_t queued_tokens = 8192;            // prompt tokens that wait, mean of the workers
  // Share of the time that tokens take (StepCost::TokenTime), mean of the workers; 0: no metric.
  double token_time = 0.5;
  absl::Duration scale_down = absl::Seconds(300);
  PodSet::Options pods;
  absl::Duration scrape_interval = absl::Seconds(15);  // of Prometheus
};

// Scales the workers as the chart's autoscaler does. Prometheus scrapes the workers, Kubernetes'
// controller looks at what was scraped every 15 s, and where the minimum is 0, KEDA asks every 30 s
// whether anybody uses the pool. A gateway tells KEDA of demand by the classes of its scaler,
// unchanged; their transport is left out. Not thread-safe.
class Autoscaler {
 public:
  // The demand at each gateway, by its number; null for one that does not run.
  using Demands = std::function<std::vector<gateway::Demand*>()>;

  // Begins now. Everything passed outlives the autoscaler, which lives as long as events of
  // the loop run.
  Autoscaler(const AutoscalerOptions& options, std::string model,
             const std::vector<std::unique_ptr<SimulatedWorker>>* workers, PodSet* pods,
             Demands demands, EventLoop* loop);

 private:
  struct Scraped {
    int worker = 0;
    uint64_t pod = 0;  // PodSet::pod_number
    double kv_occupancy = 0, waiting_tokens = 0;
    std::optional<double> token_time;
  };

  void Scrape();
  // The controller's and KEDA's intervals.
  void Sync();
  void Poll();
  // The stream that KEDA keeps open to one of the gateways.
  void Listen();
  // The gateway that KEDA is connected to, with what its peers have told it; null if none runs.
  gateway::Demand* Connected();
  std::vector<ScalingMetric> Metrics();
  bool IsActive();
  void Every(absl::Duration interval, void (Autoscaler::*method)());

  const AutoscalerOptions options_;
  const std::string model_;
  const std::vector<std::unique_ptr<SimulatedWorker>>& workers_;
  PodSet& pods_;
  const Demands demands_;
  EventLoop& loop_;
  std::vector<Scraped> scraped_;
  // The rates of continuo_token_seconds_total, by worker and number of the pod.
  std::map<std::pair<int, uint64_t>, CounterRate> token_rates_;
  HorizontalScaler horizontal_;
  IdleScaler idle_;
  gateway::Activity activity_;  // of the stream
  std::string connected_;       // the incarnation of the gateway; empty before the first
};

}  // namespace continuo::simulate
