// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/tenant_places.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {

absl::StatusOr<TenantPlaces::Place> TenantPlaces::Enter(const std::string& tenant, int limit) {
  absl::MutexLock lock(&mutex_);
  int64_t& places = places_[tenant];
  if (limit > 0 && places >= limit) {
    return protocol::WithRetryInfo(
        protocol::WithReason(
            absl::ResourceExhaustedError(absl::StrCat(limit, " ", what_, " already, the limit")),
            protocol::kReasonRateLimited),
        absl::Seconds(1));
  }
  ++places;
  return Place(this, tenant);
}

void TenantPlaces::Leave(const std::string& tenant) {
  absl::MutexLock lock(&mutex_);
  const auto places = places_.find(tenant);
  if (--places->second == 0) places_.erase(places);
}

}  // namespace continuo::gateway::openai
