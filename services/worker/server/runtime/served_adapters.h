// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// The LoRA adapters that a worker serves as models of their own, by name. A call keeps the one that
// it uses. Immutable.
class ServedAdapters {
 public:
  using Adapter = std::shared_ptr<const ServedModel>;

  explicit ServedAdapters(std::vector<ServedModel> models) {
    for (ServedModel& model : models) {
      auto adapter = std::make_shared<const ServedModel>(std::move(model));
      adapters_[adapter->name] = std::move(adapter);
    }
  }
  // Null where there is none of that name.
  Adapter Find(std::string_view name) const {
    const auto at = adapters_.find(name);
    return at == adapters_.end() ? nullptr : at->second;
  }
  // Sorted by name.
  std::vector<Adapter> All() const {
    std::vector<Adapter> all;
    for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
    return all;
  }

 private:
  std::map<std::string, Adapter, std::less<>> adapters_;
};

}  // namespace continuo::server
