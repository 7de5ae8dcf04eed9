// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "services/worker/engine/sequence.h"
#include "services/worker/engine/tenant_shares.h"

namespace continuo::engine {

// Sequences that wait for room, in the order in which they are admitted: higher priority first;
// within one, tenants that have a gateway's move here, then the tenant that was served least;
// within a tenant, what has begun (preempted, or siblings whose prompt is read) and moves, then
// continuations, then new work; first come, first served. Not thread-safe.
class WaitingQueue {
 public:
  WaitingQueue() = default;
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;

  void Insert(Sequence* s);
  void Erase(Sequence* s);
  bool empty() const { return order_.empty(); }
  // The next one to be admitted. Requires !empty(). Tenants served since the last call are put in
  // their new place: O(log tenants) for each.
  Sequence* front();

  // In about the order of admission: tenants of one priority take turns.
  std::vector<const Sequence*> InOrder() const;

 private:
  struct BeforeInLine {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  // What one tenant has waiting at one priority. The order of its sequences depends on nothing
  // that changes while they are in here.
  struct Line {
    int priority = 0;
    const Tenant* tenant = nullptr;
    absl::btree_set<Sequence*, BeforeInLine> sequences;
    int num_moves = 0;
    int64_t served = 0;  // of the tenant, when the line got its place
  };
  struct Before {
    bool operator()(const Line* a, const Line* b) const;
  };
  Line& LineOf(const Sequence& s);
  void Place(Line& line);

  absl::flat_hash_map<std::pair<const Tenant*, int>, std::unique_ptr<Line>> lines_;
  absl::btree_set<Line*, Before> order_;  // none of them is empty
};

}  // namespace continuo::engine
