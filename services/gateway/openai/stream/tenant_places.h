// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace continuo::gateway::openai {

// Bounds how much of one kind a tenant may have at a time. Thread-safe; outlives its places.
class TenantPlaces {
 public:
  // A place is given back at its end.
  class Place {
   public:
    Place() = default;
    Place(TenantPlaces* limiter, std::string tenant)
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
    TenantPlaces* limiter_ = nullptr;
    std::string tenant_;
  };

  // `what` is a part of the error's sentence: "streams of this tenant are generated again".
  explicit TenantPlaces(std::string_view what) : what_(what) {}

  // RESOURCE_EXHAUSTED, reason RATE_LIMITED, where the tenant has `limit` places; 0 is no limit.
  absl::StatusOr<Place> Enter(const std::string& tenant, int limit);

 private:
  void Leave(const std::string& tenant);

  const std::string what_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, int64_t> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway::openai
