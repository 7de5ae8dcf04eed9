// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// The LoRA adapters that a worker serves as models of their own, by name. A call keeps the one that
// it uses. Thread-safe.
class ServedAdapters {
 public:
  using Adapter = std::shared_ptr<const ServedModel>;

  // Replaces one of the same name.
  void Add(ServedModel model) {
    auto adapter = std::make_shared<const ServedModel>(std::move(model));
    absl::MutexLock lock(&mutex_);
    adapters_[adapter->name] = std::move(adapter);
  }
  // Null where there is none of that name.
  Adapter Find(std::string_view name) const {
    absl::MutexLock lock(&mutex_);
    const auto at = adapters_.find(name);
    return at == adapters_.end() ? nullptr : at->second;
  }
  // Sorted by name.
  std::vector<Adapter> All() const {
    absl::MutexLock lock(&mutex_);
    std::vector<Adapter> all;
    for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
    return all;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, Adapter, std::less<>> adapters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
