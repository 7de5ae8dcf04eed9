// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace continuo::gateway::openai {

// Bounds the streams of one tenant that are generated again at a time, up to where they were cut.
// Thread-safe; outlives its places.
class ReplayLimiter {
 public:
  // A place is given back at its end.
  class Place {
   public:
    Place() = default;
    Place(ReplayLimiter* limiter, std::string tenant)
        : limiter_(limiter), tenant_(std::move(tenant)) {}
    Place(Place&& other) noexcept
        : limiter_(std::exchange(other.limiter_, nullptr)), tenant_(std::move(other.tenant_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(limiter_, other.limiter_);
      std::swap(tenant_, other.tenant_);
      return *this;
    }
    ~Place() { Release(); }
    void Release() {
      if (limiter_ != nullptr) std::exchange(limiter_, nullptr)->Leave(tenant_);
    }

   private:
    ReplayLimiter* limiter_ = nullptr;
    std::string tenant_;
  };

  // RESOURCE_EXHAUSTED, reason RATE_LIMITED, where the tenant has `limit` places; 0 is no limit.
  absl::StatusOr<Place> Enter(const std::string& tenant, int limit);

 private:
  void Leave(const std::string& tenant);

  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, int64_t> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway::openai
