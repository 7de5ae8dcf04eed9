// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace continuo::engine {

// One tenant with live requests, or one that had some a moment ago.
struct Tenant {
  std::string name;
  int64_t served = 0;  // rows computed for it, on a scale that all tenants share
  int num_live = 0;    // requests
  // Set and used within one decision of the scheduler:
  int64_t held = 0;  // blocks
  int num_running = 0;
};

// Who has got how much. Of tenants that want the same, the one that was served least is next, so
// that all get the same number of rows however many requests each one sends. What a tenant leaves
// unused while it has nothing to do is its credit, up to a burst: a light tenant is served at once,
// an absent one cannot save up. Not thread-safe.
class TenantShares {
 public:
  // `burst` and `slack` in rows; see IsOwed.
  TenantShares(int64_t burst, int64_t slack) : burst_(burst), slack_(slack) {}

  // A request of the tenant begins to live; the pointer is good until its Leave.
  Tenant* Enter(const std::string& name);
  void Leave(Tenant& tenant);
  void Charge(Tenant& tenant, int64_t rows);

  // Whether what `a` wants goes before what `b` already has: it was served less by more than the
  // slack, so that equals do not push each other aside at every turn.
  bool IsOwed(const Tenant& a, const Tenant& b) const { return a.served + slack_ < b.served; }

  // Tenants with live requests.
  int num_live() const { return num_live_; }
  // Known ones: live, or absent and still in debt. At most kMaxAbsent of the latter.
  int num_known() const { return static_cast<int>(tenants_.size()); }

  static constexpr int kMaxAbsent = 1024;

 private:
  void Forget();

  const int64_t burst_, slack_;
  absl::flat_hash_map<std::string, std::unique_ptr<Tenant>> tenants_;
  int num_live_ = 0;
  int64_t most_served_ = 0;
};

}  // namespace continuo::engine
