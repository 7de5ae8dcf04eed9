// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// The models that workers have ever reported, with their descriptions. A model stays known when all
// of its workers are gone. Not thread-safe.
class ModelCatalog {
 public:
  void AddName(const std::string& name) { names_.insert(name); }
  // A worker's answer to ListModels; the last one counts.
  void SetDescription(const v1::Model& model) { descriptions_[model.name()] = model; }

  // Sorted.
  std::vector<std::string> Names() const { return {names_.begin(), names_.end()}; }
  // The described models sorted by name, each with the fingerprints and the number of its serving
  // workers. A model whose description has not come is left out: half of one would tell clients
  // that it can do nothing.
  std::vector<v1::Model> Models(const LoadSnapshot& snapshot) const;

 private:
  std::set<std::string> names_;
  std::map<std::string, v1::Model> descriptions_;  // by name
};

}  // namespace continuo::gateway
