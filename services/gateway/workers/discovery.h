// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/workers/pool_spec.h"
#include "services/gateway/workers/resolver.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// Follows the resolver of each pool of --workers and gives the WorkerPool all of their addresses.
// Thread-safe.
class Discovery {
 public:
  // `workers` is the value of --workers. INVALID_ARGUMENT names the part of it that is wrong.
  static absl::StatusOr<std::unique_ptr<Discovery>> Open(const std::string& workers,
                                                         const ResolverOptions& options);

  // Called once. The pool lives until Stop returns.
  void Start(WorkerPool* pool);
  // The addresses are likely to have changed: the resolvers ask again now.
  void Refresh();
  // Ends the resolvers' threads; the pool is told nothing any more.
  void Stop();

 private:
  explicit Discovery(std::vector<PoolSpec> pools)
      : pools_(std::move(pools)), addresses_(pools_.size()) {}
  void OnAddresses(size_t pool, std::vector<std::string> addresses);

  const std::vector<PoolSpec> pools_;
  std::vector<std::unique_ptr<Resolver>> resolvers_;  // By pool.
  WorkerPool* worker_pool_ = nullptr;

  absl::Mutex mutex_;  // Held while the WorkerPool is told, so that it gets the newest last.
  // By pool; empty until its resolver has answered.
  std::vector<std::optional<std::vector<std::string>>> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
