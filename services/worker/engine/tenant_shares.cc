// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/tenant_shares.h"

#include <algorithm>

namespace continuo::engine {

Tenant* TenantShares::Enter(const std::string& name) {
  std::unique_ptr<Tenant>& tenant = tenants_[name];
  if (tenant == nullptr) tenant = std::make_unique<Tenant>(Tenant{.name = name});
  if (tenant->num_live++ == 0) {
    ++num_live_;
    tenant->served = std::max(tenant->served, most_served_ - burst_);
  }
  return tenant.get();
}

void TenantShares::Leave(Tenant& tenant) {
  if (--tenant.num_live > 0) return;
  --num_live_;
  Forget();
}

void TenantShares::Charge(Tenant& tenant, int64_t rows) {
  tenant.served += rows;
  most_served_ = std::max(most_served_, tenant.served);
}

// Absent tenants that would come back with the whole burst are like new ones. The others are kept
// for their debt, unless nobody is there to whom they could owe, or they are too many.
void TenantShares::Forget() {
  if (num_live_ > 0 && num_known() <= num_live_ + kMaxAbsent) return;
  const auto erase = [&](auto is_forgotten) {
    absl::erase_if(tenants_, [&](const auto& entry) {
      return entry.second->num_live == 0 && is_forgotten(*entry.second);
    });
  };
  if (num_live_ > 0) {
    erase([&](const Tenant& t) { return t.served <= most_served_ - burst_; });
    if (num_known() <= num_live_ + kMaxAbsent / 2) return;
  }
  erase([](const Tenant&) { return true; });
  if (num_live_ == 0) most_served_ = 0;
}

}  // namespace continuo::engine
