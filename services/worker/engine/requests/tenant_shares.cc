// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/tenant_shares.h"

#include <algorithm>

namespace continuo::engine {

Tenant* TenantShares::Enter(const std::string& name) {
  std::unique_ptr<Tenant>& tenant = tenants_[name];
  if (tenant == nullptr) tenant = std::make_unique<Tenant>(Tenant{.name = name});
  if (tenant->num_live++ == 0) {
    ++num_live_;
    tenant->virtual_tokens = std::max(tenant->virtual_tokens, most_virtual_tokens_ - burst_);
  }
  return tenant.get();
}

void TenantShares::Leave(Tenant& tenant) {
  if (--tenant.num_live > 0) return;
  --num_live_;
  Forget();
}

void TenantShares::Charge(Tenant& tenant, int64_t tokens) {
  tenant.virtual_tokens += tokens;
  most_virtual_tokens_ = std::max(most_virtual_tokens_, tenant.virtual_tokens);
}

// Idle tenants that would come back with the whole burst are like new ones. The others are kept,
// because they are ahead, unless no tenant is live or too many are known.
void TenantShares::Forget() {
  if (num_live_ > 0 && num_known() <= num_live_ + kMaxAbsent) return;
  const auto erase = [&](auto is_forgotten) {
    absl::erase_if(tenants_, [&](const auto& entry) {
      return entry.second->num_live == 0 && is_forgotten(*entry.second);
    });
  };
  if (num_live_ > 0) {
    erase([&](const Tenant& t) { return t.virtual_tokens <= most_virtual_tokens_ - burst_; });
    if (num_known() <= num_live_ + kMaxAbsent / 2) return;
  }
  erase([](const Tenant&) { return true; });
  if (num_live_ == 0) most_virtual_tokens_ = 0;
}

}  // namespace continuo::engine
