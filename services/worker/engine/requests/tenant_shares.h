// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace continuo::engine {

// One tenant with live requests, or one that had some recently.
struct Tenant {
  std::string name;
  // Tokens computed for it, on a scale that all tenants share (the virtual time of fair queueing).
  int64_t virtual_tokens = 0;
  int num_live = 0;  // requests
  // Scratch of one preemption decision:
  int64_t held = 0;  // blocks
  int num_running = 0;
};

// Fair queueing among tenants. Of tenants that want the same thing, the one with the fewest virtual
// tokens is next, so all get the same number of tokens however many requests each one sends. A
// tenant that was idle may lag behind by at most a burst: a light tenant runs at once, and nobody
// can save up more. Not thread-safe.
class TenantShares {
 public:
  // `burst` and `slack` are in tokens; see HasDeficit for the slack.
  TenantShares(int64_t burst, int64_t slack) : burst_(burst), slack_(slack) {}

  // A request of the tenant begins to live. The pointer is valid until its Leave.
  Tenant* Enter(const std::string& name);
  void Leave(Tenant& tenant);
  void Charge(Tenant& tenant, int64_t tokens);

  // Returns whether work of `a` preempts work of `b`: `a` has got fewer tokens, by more than the
  // slack, so that equals do not push each other aside at every step.
  bool HasDeficit(const Tenant& a, const Tenant& b) const {
    return a.virtual_tokens + slack_ < b.virtual_tokens;
  }

  // Returns the number of tenants with live requests.
  int num_live() const { return num_live_; }
  // Returns the number of tenants that are live, or idle and ahead: of these at most kMaxAbsent.
  int num_known() const { return static_cast<int>(tenants_.size()); }

  static constexpr int kMaxAbsent = 1024;

 private:
  void Forget();

  const int64_t burst_, slack_;
  absl::flat_hash_map<std::string, std::unique_ptr<Tenant>> tenants_;
  int num_live_ = 0;
  int64_t most_virtual_tokens_ = 0;
};

}  // namespace continuo::engine
