// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/load_view.h"

#include <utility>

namespace continuo::gateway {

std::vector<std::string> BaseModels(const LoadSnapshot& snapshot) {
  std::vector<std::string> models;
  for (const std::string& name : snapshot.known_models) {
    if (!snapshot.adapters.contains(name)) models.push_back(name);
  }
  return models;
}

void LoadView::Set(LoadSnapshot next) {
  {
    const std::shared_ptr<const LoadSnapshot> last = Get();
    next.table = last != nullptr && RouteTable::IsShared(last->workers, next.workers)
                     ? last->table
                     : std::make_shared<const RouteTable>(next.workers);
  }
  next.group_loads = next.table->Summarise(next.workers);
  auto fresh = std::make_shared<const LoadSnapshot>(std::move(next));
  // What is dropped is destroyed after the lock is released.
  absl::MutexLock lock(&mutex_);
  current_.swap(fresh);
  previous_.swap(fresh);
}

}  // namespace continuo::gateway
