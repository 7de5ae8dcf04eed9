// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/demand.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace continuo::gateway {
namespace {

void Add(const DemandByModel& demand, const std::string& model, Admission::ModelCounts* total) {
  const auto at = demand.find(model);
  if (at == demand.end()) return;
  total->open_requests += at->second.open_requests;
  total->queued_tokens += at->second.queued_tokens;
}

}  // namespace

DemandByModel Demand::Local() const {
  DemandByModel demand = local_();
  std::erase_if(demand,
                [&](const auto& entry) { return !entry.first.empty() && !IsKnown(entry.first); });
  return demand;
}

bool Demand::IsKnown(std::string_view model) const {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  return std::ranges::find(snapshot->known_models, model) != snapshot->known_models.end();
}

bool Demand::IsServed(std::string_view model) const {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  return std::ranges::any_of(snapshot->workers, [&](const auto& load) {
    return load->model == model && load->state == WorkerState::kServing;
  });
}

Admission::ModelCounts Demand::Total(std::string_view model) const {
  const std::string name(model);
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const std::vector<std::string> models = BaseModels(*snapshot);
  const bool is_only_model = models.size() == 1 && models.front() == name;
  Admission::ModelCounts total;
  const auto add = [&](const DemandByModel& demand) {
    Add(demand, name, &total);
    // The workers of a model compute its adapters.
    for (const auto& [adapter, parent] : snapshot->adapters) {
      if (parent == name) Add(demand, adapter, &total);
    }
    if (is_only_model) Add(demand, "", &total);
  };
  add(local_());
  const absl::Duration now = clock_->Elapsed();
  absl::MutexLock lock(&mutex_);
  for (const auto& [address, peer] : peers_) {
    if (now - peer.time <= kMaxPeerAge) add(peer.demand);
  }
  return total;
}

void Demand::SetPeer(const std::string& address, std::string_view incarnation,
                     DemandByModel demand) {
  if (incarnation == incarnation_) return;
  absl::MutexLock lock(&mutex_);
  peers_[address] = {.demand = std::move(demand), .time = clock_->Elapsed()};
}

void Demand::ForgetPeer(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  peers_.erase(address);
}

}  // namespace continuo::gateway
