// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "services/worker/engine/requests/sequence.h"
#include "services/worker/engine/requests/tenant_shares.h"

namespace continuo::engine {

// Sequences that wait for room, in the order in which they are admitted. Not thread-safe.
//
// Higher priority comes first. Within a priority, tenants with a migrated stream come first, then
// the tenant with the fewest virtual tokens. Within a tenant come sequences that have begun
// (preempted, or with a prefilled prompt) and migrations, then other continuations, then new work;
// among equals, first come, first served.
class WaitingQueue {
 public:
  WaitingQueue() = default;
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;

  void Insert(Sequence* s);
  void Erase(Sequence* s);
  bool empty() const { return order_.empty(); }
  // Returns the next one to be admitted. Requires !empty(). Moves tenants that were charged since
  // the last call to their new place: O(log tenants) for each.
  Sequence* front();

  // Returns all in about the order of admission: tenants of one priority take turns.
  std::vector<const Sequence*> InOrder() const;

 private:
  struct BeforeInLine {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  // The waiting sequences of one tenant at one priority. Their order depends on nothing that
  // changes while they are in here.
  struct Line {
    int priority = 0;
    const Tenant* tenant = nullptr;
    absl::btree_set<Sequence*, BeforeInLine> sequences;
    int num_migrations = 0;
    int64_t virtual_tokens = 0;  // of the tenant, when the line got its place
  };
  struct Before {
    bool operator()(const Line* a, const Line* b) const;
  };
  Line& LineOf(const Sequence& s);
  void Place(Line& line);

  absl::flat_hash_map<std::pair<const Tenant*, int>, std::unique_ptr<Line>> lines_;
  absl::btree_set<Line*, Before> order_;  // no line in it is empty
};

}  // namespace continuo::engine
