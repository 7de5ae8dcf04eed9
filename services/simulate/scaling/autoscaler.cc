// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/autoscaler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace continuo::simulate {
namespace {

// The default of Kubernetes' controller, and that of a ScaledObject's pollingInterval.
constexpr absl::Duration kSyncInterval = absl::Seconds(15);
constexpr absl::Duration kPollInterval = absl::Seconds(30);
// The range of rate() in the chart's queries.
constexpr absl::Duration kRateWindow = absl::Minutes(1);
// A gateway looks at its demand at this interval, which is PolledStream's.
constexpr absl::Duration kListenInterval = absl::Milliseconds(100);

}  // namespace

Autoscaler::Autoscaler(const AutoscalerOptions& options, std::string model,
                       const std::vector<std::unique_ptr<SimulatedWorker>>* workers, PodSet* pods,
                       Demands demands, EventLoop* loop)
    : options_(options),
      model_(std::move(model)),
      workers_(*workers),
      pods_(*pods),
      demands_(std::move(demands)),
      loop_(*loop),
      horizontal_({.min_replicas = std::max(1, options.min_replicas),
                   .max_replicas = options.max_replicas,
                   .scale_down = options.scale_down},
                  pods->wanted(), loop->Elapsed()),
      idle_(options.scale_down, loop->Elapsed()) {
  // What the controller sees is half an interval old.
  loop_.After(options_.scrape_interval / 2,
              [this] { Every(options_.scrape_interval, &Autoscaler::Scrape); });
  Every(kSyncInterval, &Autoscaler::Sync);
  if (options_.min_replicas > 0) return;
  Every(kPollInterval, &Autoscaler::Poll);
  Every(kListenInterval, &Autoscaler::Listen);
}

void Autoscaler::Every(absl::Duration interval, void (Autoscaler::*method)()) {
  loop_.After(interval, [this, interval, method] {
    (this->*method)();
    Every(interval, method);
  });
}

void Autoscaler::Scrape() {
  scraped_.clear();
  for (const auto& worker : workers_) {
    const std::optional<WorkerGauges> gauges = worker->Gauges();
    if (!gauges.has_value()) continue;
    const std::pair<int, uint64_t> pod = {worker->number(), pods_.pod_number(worker->number())};
    CounterRate& rate = token_rates_.try_emplace(pod, kRateWindow).first->second;
    rate.Add(gauges->token_seconds, loop_.Elapsed());
    scraped_.push_back({.worker = pod.first,
                        .pod = pod.second,
                        .kv_occupancy = gauges->kv_occupancy,
                        .waiting_tokens = gauges->waiting_tokens,
                        .token_time = rate.At(loop_.Elapsed())});
  }
  // Of pods that are gone.
  std::erase_if(token_rates_, [this](auto& rate) {
    return rate.first.second != pods_.pod_number(rate.first.first);
  });
}

std::vector<ScalingMetric> Autoscaler::Metrics() {
  const bool is_per_pod = options_.by == AutoscalerOptions::By::kHpa;
  ScalingMetric occupancy = {.target = options_.kv_occupancy, .is_per_pod = is_per_pod};
  ScalingMetric waiting = {.target = static_cast<double>(options_.queued_tokens),
                           .is_per_pod = is_per_pod};
  ScalingMetric token_time = {.target = options_.token_time, .is_per_pod = is_per_pod};
  for (const Scraped& pod : scraped_) {
    // The controller leaves out pods that are being deleted or gone; a query over the pool does
    // not, while they are scraped.
    const bool is_there = pods_.IsServing(pod.worker) && pods_.pod_number(pod.worker) == pod.pod;
    if (is_per_pod && !is_there) continue;
    occupancy.values.push_back(pod.kv_occupancy);
    waiting.values.push_back(pod.waiting_tokens);
    if (pod.token_time.has_value()) token_time.values.push_back(*pod.token_time);
  }
  std::vector<ScalingMetric> metrics = {std::move(occupancy), std::move(waiting)};
  if (options_.token_time > 0) metrics.push_back(std::move(token_time));
  if (options_.min_replicas > 0) return metrics;
  const gateway::Demand* const demand = Connected();
  ScalingMetric queued = {.target = static_cast<double>(options_.queued_tokens),
                          .is_available = demand != nullptr};
  if (demand != nullptr) {
    queued.values = {static_cast<double>(demand->Total(model_).queued_tokens)};
  }
  metrics.push_back(std::move(queued));
  return metrics;
}

void Autoscaler::Sync() {
  pods_.Scale(horizontal_.Next(Metrics(), pods_.wanted(), loop_.Elapsed()));
}

void Autoscaler::Poll() {
  const bool is_active = IsActive();
  // Without a gateway, a trigger fails, and KEDA takes nothing away.
  if (!is_active && Connected() == nullptr) return;
  pods_.Scale(idle_.Next(is_active, pods_.wanted(), loop_.Elapsed()));
}

bool Autoscaler::IsActive() {
  const bool is_used = std::ranges::any_of(
      scraped_, [](const Scraped& pod) { return pod.kv_occupancy > 0 || pod.waiting_tokens > 0; });
  if (is_used) return true;
  const gateway::Demand* const demand = Connected();
  return demand != nullptr && demand->Total(model_).open_requests > 0;
}

void Autoscaler::Listen() {
  const gateway::Demand* const demand = Connected();
  if (demand == nullptr) return;
  // A stream to another gateway begins anew.
  if (std::exchange(connected_, demand->incarnation()) != demand->incarnation()) activity_ = {};
  const std::optional<bool> told = activity_.Next(demand->Total(model_).open_requests > 0,
                                                  demand->IsServed(model_), loop_.Elapsed());
  if (!told.has_value()) return;
  // An inactive trigger does not speak for the others.
  pods_.Scale(idle_.Next(*told || IsActive(), pods_.wanted(), loop_.Elapsed()));
}

gateway::Demand* Autoscaler::Connected() {
  const std::vector<gateway::Demand*> demands = demands_();
  const auto same = std::ranges::find_if(demands, [this](const gateway::Demand* demand) {
    return demand != nullptr && demand->incarnation() == connected_;
  });
  const auto at = same != demands.end()
                      ? same
                      : std::ranges::find_if(demands, [](const auto* d) { return d != nullptr; });
  if (at == demands.end()) return nullptr;
  // Peers tell it each change (GatewayService); here it has what they would have told by now.
  for (size_t i = 0; i < demands.size(); ++i) {
    const std::string address = absl::StrCat("gateway-", i);
    if (demands[i] == nullptr) {
      (*at)->ForgetPeer(address);
    } else if (demands[i] != *at) {
      (*at)->SetPeer(address, demands[i]->incarnation(), demands[i]->Local());
    }
  }
  return *at;
}

}  // namespace continuo::simulate
