// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// The models that pools declare and those that workers have ever reported, with their descriptions.
// A model stays known when all of its workers are gone. Not thread-safe.
class ModelCatalog {
 public:
  // `declared` are the names of --models.
  explicit ModelCatalog(const std::vector<std::string>& declared = {})
      : names_(declared.begin(), declared.end()), declared_(names_) {}

  void AddName(const std::string& name) { names_.insert(name); }
  // A worker's answer to ListModels; the last one counts.
  void SetDescription(const v1::Model& model) { descriptions_[model.name()] = model; }

  // Sorted.
  std::vector<std::string> Names() const { return {names_.begin(), names_.end()}; }
  // The described and the declared models sorted by name, each with the fingerprints and the number
  // of its serving workers. A declared model whose description has not come is `undescribed`, for
  // half of a description would tell clients that it can do nothing; one that is not declared is
  // left out until then.
  std::vector<v1::Model> Models(const LoadSnapshot& snapshot) const;

 private:
  std::set<std::string> names_;
  std::set<std::string> declared_;
  std::map<std::string, v1::Model> descriptions_;  // by name
};

}  // namespace continuo::gateway
