// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/discovery.h"

#include "absl/memory/memory.h"
#include "services/base/status_macros.h"

namespace continuo::gateway {

absl::StatusOr<std::unique_ptr<Discovery>> Discovery::Open(const std::string& workers,
                                                           const ResolverOptions& options) {
  ASSIGN_OR_RETURN(std::vector<PoolSpec> pools, ParsePools(workers));
  std::unique_ptr<Discovery> discovery = absl::WrapUnique(new Discovery(std::move(pools)));
  for (const PoolSpec& pool : discovery->pools_) {
    ASSIGN_OR_RETURN(discovery->resolvers_.emplace_back(), MakeResolver(pool.target, options));
  }
  return discovery;
}

std::vector<std::string> Discovery::PoolNames() const {
  std::vector<std::string> names;
  for (const PoolSpec& pool : pools_) names.push_back(pool.name);
  return names;
}

void Discovery::Start(OnAddresses on_addresses) {
  on_addresses_ = std::move(on_addresses);
  for (size_t i = 0; i < resolvers_.size(); ++i) {
    resolvers_[i]->Start(
        [this, i](std::vector<std::string> addresses) { Update(i, std::move(addresses)); });
  }
}

void Discovery::Refresh() {
  for (const auto& resolver : resolvers_) resolver->Refresh();
}

void Discovery::Stop() {
  for (const auto& resolver : resolvers_) resolver->Stop();
}

void Discovery::Update(size_t pool, std::vector<std::string> addresses) {
  absl::MutexLock lock(&mutex_);
  addresses_[pool] = std::move(addresses);
  std::vector<WorkerAddress> all;
  bool complete = true;
  for (size_t i = 0; i < pools_.size(); ++i) {
    complete = complete && addresses_[i].has_value();
    if (!addresses_[i].has_value()) continue;
    for (const std::string& address : *addresses_[i]) {
      all.emplace_back(address, static_cast<int>(i), pools_[i].weight);
    }
  }
  on_addresses_(all, complete);
}

}  // namespace continuo::gateway
