// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/workers/declared_models.h"

namespace continuo::gateway {

// The models that pools declare and those that workers have ever reported, with their descriptions.
// A model stays known when all of its workers are gone. Not thread-safe.
class ModelCatalog {
 public:
  explicit ModelCatalog(const DeclaredModels& declared = {});

  void AddName(const std::string& name) { names_.insert(name); }
  bool Knows(const std::string& name) const { return names_.contains(name); }
  // A LoRA adapter of the model `parent`.
  void AddAdapter(const std::string& name, const std::string& parent) {
    names_.insert(name);
    if (name != parent) adapters_[name] = parent;
  }
  // A worker serves the adapter no more. It is forgotten once no worker has it, lost ones included,
  // unless it is declared: then its name is no model's.
  void Withdraw(const std::string& name) { withdrawn_.insert(name); }
  // Present reports win over earlier ones and over declared names: a name that one of the workers
  // has as a model of its own is no adapter, and one of several parents is the first's.
  void SettleAdapters(const std::vector<std::shared_ptr<const WorkerLoad>>& workers);
  // The name is listed from now on, described or not: the worker that reported it has answered
  // ListModels, has failed to, or does not serve yet.
  void List(const std::string& name) { listed_.insert(name); }
  // A worker's answer to ListModels; the last one counts.
  void SetDescription(const v1::Model& model) { descriptions_[model.name()] = model; }

  // Sorted.
  std::vector<std::string> Names() const { return {names_.begin(), names_.end()}; }
  // Those that are adapters, with the models that they adapt.
  const std::map<std::string, std::string, std::less<>>& Adapters() const { return adapters_; }
  // The listed models sorted by name, each with the fingerprints and the number of its serving
  // workers. One without a description is `undescribed`, with the parent of an adapter. A model
  // that a worker has just reported is not listed yet: its description comes in a moment, and half
  // of one would tell clients that it can do nothing.
  std::vector<v1::Model> Models(const LoadSnapshot& snapshot) const;

 private:
  std::set<std::string> names_;
  std::set<std::string> listed_;
  std::set<std::string> declared_;                            // that stay
  std::set<std::string> withdrawn_;                           // that may be forgotten
  std::map<std::string, std::string, std::less<>> adapters_;  // with their parents
  std::map<std::string, v1::Model> descriptions_;             // by name
};

}  // namespace continuo::gateway
