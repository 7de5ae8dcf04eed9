// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

// They tell which workers of large pools this gateway watches (subset.h).
struct SubsetOptions {
  // The addresses of all gateways, this one among them, as --workers names one pool. Empty: every
  // gateway watches all workers.
  std::string gateways;
  size_t size = 200;  // Of a subset; 0 is no limit.
};

// Follows the resolver of each pool of --workers and reports the addresses of all pools together,
// or this gateway's subset of them. Thread-safe.
class Discovery {
 public:
  // Receives all known addresses whenever they may have changed, one call at a time. `complete`
  // tells that each resolver has answered once.
  using OnAddresses = std::function<void(const std::vector<WorkerAddress>&, bool complete)>;

  // `workers` is the value of --workers. INVALID_ARGUMENT names the part of it that is wrong.
  static absl::StatusOr<std::unique_ptr<Discovery>> Open(const std::string& workers,
                                                         const ResolverOptions& options,
                                                         const SubsetOptions& subset = {});

  // The names of the pools, by their numbers.
  std::vector<std::string> PoolNames() const;

  // Called once. `on_addresses` may be called by this, and later from the resolvers' threads, with
  // subsets not before the gateways are known. `port` is that of this gateway in their list.
  void Start(OnAddresses on_addresses, int port = 0);
  // The addresses are likely to have changed: the resolvers ask again now.
  void Refresh();
  // Ends the resolvers' threads. `on_addresses` is not called after it.
  void Stop();

 private:
  Discovery(std::vector<PoolSpec> pools, size_t subset_size)
      : pools_(std::move(pools)), subset_size_(subset_size), addresses_(pools_.size()) {}
  void Update(size_t pool, std::vector<std::string> addresses);
  void UpdateGateways(std::vector<std::string> gateways);
  void Report() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<PoolSpec> pools_;
  const size_t subset_size_;
  std::vector<std::unique_ptr<Resolver>> resolvers_;  // By pool.
  std::unique_ptr<Resolver> gateways_resolver_;       // Null without subsets.
  OnAddresses on_addresses_;
  int port_ = 0;

  absl::Mutex mutex_;  // Held during on_addresses_, so that the newest addresses come last.
  // By pool; empty until its resolver has answered.
  std::vector<std::optional<std::vector<std::string>>> addresses_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::vector<std::string>> gateways_ ABSL_GUARDED_BY(mutex_);  // As resolved last.
};

}  // namespace continuo::gateway
