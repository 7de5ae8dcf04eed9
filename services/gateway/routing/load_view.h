// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/routing/route_table.h"
#include "services/gateway/routing/worker_load.h"

namespace continuo::gateway {

struct LoadSnapshot {
  std::vector<std::shared_ptr<const WorkerLoad>> workers;
  // The names of all models ever reported, sorted. A model whose workers are all gone stays known.
  std::vector<std::string> known_models;
  // Of known_models, those that are LoRA adapters, with the models that they adapt.
  std::map<std::string, std::string, std::less<>> adapters = {};
  // Every listed address has reported its model or failed for a while, so a model that is not in
  // known_models is unknown.
  bool discovery_complete = false;

  // The indexes of `workers`, which LoadView::Set fills in. Never null in a LoadView.
  std::shared_ptr<const RouteTable> table = nullptr;
  std::vector<GroupLoad> group_loads = {};  // by the numbers of the table's groups
};

// The names of known_models without those of adapters, which requests always name.
std::vector<std::string> BaseModels(const LoadSnapshot& snapshot);

// The current snapshot of all workers. Snapshots are immutable, and the lock is held for no longer
// than it takes to copy a pointer, so readers never wait for a writer's work. Thread-safe.
class LoadView {
 public:
  LoadView() { Set({}); }

  std::shared_ptr<const LoadSnapshot> Get() const {
    absl::MutexLock lock(&mutex_);
    return current_;
  }
  // Indexes the snapshot and makes it the current one. Costs a look at each worker, and more where
  // the set of workers, their models or fingerprints have changed.
  void Set(LoadSnapshot next);

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const LoadSnapshot> current_ ABSL_GUARDED_BY(mutex_);
  // The snapshot before, kept so that a writer destroys it and not the reader that uses it last.
  std::shared_ptr<const LoadSnapshot> previous_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
