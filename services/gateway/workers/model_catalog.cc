// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/model_catalog.h"

#include <cstdint>

namespace continuo::gateway {

std::vector<v1::Model> ModelCatalog::Models(const LoadSnapshot& snapshot) const {
  std::vector<v1::Model> models;
  for (const std::string& name : listed_) {
    v1::Model& model = models.emplace_back();
    if (const auto at = descriptions_.find(name); at != descriptions_.end()) {
      model = at->second;
    } else {
      model.set_name(name);
      model.set_undescribed(true);
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
