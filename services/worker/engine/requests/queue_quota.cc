// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/queue_quota.h"

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::engine {

absl::Status QueueQuota::Check(const std::string& tenant, int64_t tokens) const {
  if (tokens_ == 0 || tokens <= max_tokens_ - tokens_) return absl::OkStatus();
  const auto it = by_tenant_.find(tenant);
  const int64_t own = it == by_tenant_.end() ? 0 : it->second;
  const auto num_tenants =
      static_cast<int64_t>(by_tenant_.size()) + (it == by_tenant_.end() ? 1 : 0);
  if (num_tenants > 1 && tokens <= max_tokens_ / num_tenants - own &&
      tokens <= 2 * max_tokens_ - tokens_) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(tokens_, " prompt tokens are waiting, ", tokens,
                                                   " more would exceed ", max_tokens_));
}

void QueueQuota::Add(const std::string& tenant, int64_t tokens) {
  if (tokens == 0) return;
  tokens_ += tokens;
  by_tenant_[tenant] += tokens;
}

void QueueQuota::Remove(const std::string& tenant, int64_t tokens) {
  if (tokens == 0) return;
  const auto it = by_tenant_.find(tenant);
  CONTINUO_CHECK(it != by_tenant_.end() && it->second >= tokens);
  tokens_ -= tokens;
  it->second -= tokens;
  if (it->second == 0) by_tenant_.erase(it);
}

}  // namespace continuo::engine
