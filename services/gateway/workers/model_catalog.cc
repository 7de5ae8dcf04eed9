// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/model_catalog.h"

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <utility>

namespace continuo::gateway {

ModelCatalog::ModelCatalog(const DeclaredModels& declared)
    : names_(declared.models.begin(), declared.models.end()), adapters_(declared.adapters) {
  for (const auto& [adapter, parent] : adapters_) names_.insert(adapter);
  listed_ = declared_ = names_;
}

void ModelCatalog::SettleAdapters(const std::vector<std::shared_ptr<const WorkerLoad>>& workers) {
  for (const auto& load : std::views::reverse(workers)) {
    if (!load->parent.empty()) adapters_[load->model] = load->parent;
  }
  for (const std::string& name : std::exchange(withdrawn_, {})) {
    const bool is_served =
        std::ranges::any_of(workers, [&](const auto& load) { return load->model == name; });
    if (is_served || declared_.contains(name)) continue;
    names_.erase(name);
    listed_.erase(name);
    adapters_.erase(name);
    descriptions_.erase(name);
  }
  if (adapters_.empty()) return;
  for (const auto& load : workers) {
    if (load->parent.empty()) adapters_.erase(load->model);
  }
}

std::vector<v1::Model> ModelCatalog::Models(const LoadSnapshot& snapshot) const {
  std::vector<v1::Model> models;
  for (const std::string& name : listed_) {
    v1::Model& model = models.emplace_back();
    if (const auto at = descriptions_.find(name); at != descriptions_.end()) {
      model = at->second;
    } else {
      model.set_name(name);
      model.set_undescribed(true);
      if (const auto adapter = adapters_.find(name); adapter != adapters_.end()) {
        model.set_parent(adapter->second);
      }
    }
    model.clear_fingerprints();
    std::set<std::string> fingerprints;
    uint32_t num_workers = 0;
    for (const auto& load : snapshot.workers) {
      if (load->model != name || load->state != WorkerState::kServing) continue;
      ++num_workers;
      if (!load->fingerprint.empty()) fingerprints.insert(load->fingerprint);
    }
    for (const std::string& fingerprint : fingerprints) model.add_fingerprints(fingerprint);
    model.set_num_workers(num_workers);
  }
  return models;
}

}  // namespace continuo::gateway
