// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/discovery.h"

#include "absl/memory/memory.h"
#include "services/base/status_macros.h"
#include "services/gateway/discovery/subset.h"

namespace continuo::gateway {

absl::StatusOr<std::unique_ptr<Discovery>> Discovery::Open(const std::string& workers,
                                                           const ResolverOptions& options,
                                                           const SubsetOptions& subset) {
  ASSIGN_OR_RETURN(std::vector<PoolSpec> pools, ParsePools(workers));
  std::unique_ptr<Discovery> discovery =
      absl::WrapUnique(new Discovery(std::move(pools), subset.size));
  for (const PoolSpec& pool : discovery->pools_) {
    ASSIGN_OR_RETURN(discovery->resolvers_.emplace_back(), MakeResolver(pool.target, options));
  }
  if (!subset.gateways.empty()) {
    ASSIGN_OR_RETURN(discovery->gateways_resolver_,
                     MakeResolver(subset.gateways, options, "--gateways"));
  }
  return discovery;
}

std::vector<std::string> Discovery::PoolNames() const {
  std::vector<std::string> names;
  for (const PoolSpec& pool : pools_) names.push_back(pool.name);
  return names;
}

void Discovery::Start(OnAddresses on_addresses, int port) {
  on_addresses_ = std::move(on_addresses);
  port_ = port;
  if (gateways_resolver_ != nullptr) {
    gateways_resolver_->Start(
        [this](std::vector<std::string> gateways) { UpdateGateways(std::move(gateways)); });
  }
  for (size_t i = 0; i < resolvers_.size(); ++i) {
    resolvers_[i]->Start(
        [this, i](std::vector<std::string> addresses) { Update(i, std::move(addresses)); });
  }
}

void Discovery::Refresh() {
  for (const auto& resolver : resolvers_) resolver->Refresh();
}

void Discovery::Stop() {
  if (gateways_resolver_ != nullptr) gateways_resolver_->Stop();
  for (const auto& resolver : resolvers_) resolver->Stop();
}

void Discovery::Update(size_t pool, std::vector<std::string> addresses) {
  absl::MutexLock lock(&mutex_);
  addresses_[pool] = std::move(addresses);
  Report();
}

void Discovery::UpdateGateways(std::vector<std::string> gateways) {
  absl::MutexLock lock(&mutex_);
  gateways_ = std::move(gateways);
  Report();
}

void Discovery::Report() {
  std::string self;
  if (gateways_resolver_ != nullptr) {
    // Without them this gateway would watch all workers, and then drop most of them.
    if (!gateways_.has_value()) return;
    self = OwnAddress(*gateways_, LocalHosts(), port_);
  }
  std::vector<WorkerAddress> all;
  bool complete = true;
  for (size_t i = 0; i < pools_.size(); ++i) {
    complete = complete && addresses_[i].has_value();
    if (!addresses_[i].has_value()) continue;
    const std::vector<std::string> addresses =
        gateways_resolver_ == nullptr ? *addresses_[i]
                                      : SubsetOf(*addresses_[i], *gateways_, self, subset_size_);
    for (const std::string& address : addresses) {
      all.emplace_back(address, static_cast<int>(i), pools_[i].weight);
    }
  }
  on_addresses_(all, complete);
}

}  // namespace continuo::gateway
