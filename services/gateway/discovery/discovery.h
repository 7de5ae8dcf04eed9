// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/discovery/pool_spec.h"
#include "services/gateway/discovery/resolver.h"
#include "services/gateway/discovery/worker_address.h"

namespace continuo::gateway {

// Follows the resolver of each pool of --workers and reports the addresses of all pools together.
// Thread-safe.
class Discovery {
 public:
  // Receives all known addresses whenever they may have changed, one call at a time. `complete`
  // tells that each resolver has answered once.
  using OnAddresses = std::function<void(const std::vector<WorkerAddress>&, bool complete)>;

  // `workers` is the value of --workers. INVALID_ARGUMENT names the part of it that is wrong.
  static absl::StatusOr<std::unique_ptr<Discovery>> Open(const std::string& workers,
                                                         const ResolverOptions& options);

  // The names of the pools, by their numbers.
  std::vector<std::string> PoolNames() const;

  // Called once. `on_addresses` may be called by this, and later from the resolvers' threads.
  void Start(OnAddresses on_addresses);
  // The addresses are likely to have changed: the resolvers ask again now.
  void Refresh();
  // Ends the resolvers' threads. `on_addresses` is not called after it.
  void Stop();

 private:
  explicit Discovery(std::vector<PoolSpec> pools)
      : pools_(std::move(pools)), addresses_(pools_.size()) {}
  void Update(size_t pool, std::vector<std::string> addresses);

  const std::vector<PoolSpec> pools_;
  std::vector<std::unique_ptr<Resolver>> resolvers_;  // By pool.
  OnAddresses on_addresses_;

  absl::Mutex mutex_;  // Held during on_addresses_, so that the newest addresses come last.
  // By pool; empty until its resolver has answered.
  std::vector<std::optional<std::vector<std::string>>> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
