// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"

namespace continuo::simulate {

// The network between gateways and workers, by their numbers: every message takes the same time,
// and none arrives where the two are cut off from each other. Not thread-safe.
class Network {
 public:
  explicit Network(absl::Duration delay) : delay_(delay) {}

  absl::Duration delay() const { return delay_; }
  bool IsCut(int gateway, int worker) const {
    return !cut_.empty() && cut_.contains({gateway, worker});
  }
  void SetCut(int gateway, int worker, bool cut) {
    if (cut) {
      cut_.insert({gateway, worker});
    } else {
      cut_.erase({gateway, worker});
    }
  }

 private:
  const absl::Duration delay_;
  absl::flat_hash_set<std::pair<int, int>> cut_;
};

}  // namespace continuo::simulate
