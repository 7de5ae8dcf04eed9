// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/time.h"

namespace continuo::simulate {

// Decides whether a pool has no replicas, as KEDA's operator does where minReplicaCount is 0: the
// first once a trigger is active, none once all have been inactive for the cooldown. Between, the
// HorizontalScaler decides. Times never go back. Not thread-safe.
class IdleScaler {
 public:
  // The triggers count as active at `now`, when the operator begins.
  IdleScaler(absl::Duration cooldown, absl::Duration now)
      : cooldown_(cooldown), active_time_(now) {}

  // The triggers were asked, or one has told: the number of replicas from now on.
  int Next(bool is_active, int replicas, absl::Duration now) {
    if (is_active) {
      active_time_ = now;
      return replicas == 0 ? 1 : replicas;
    }
    return now - active_time_ > cooldown_ ? 0 : replicas;
  }

 private:
  const absl::Duration cooldown_;
  absl::Duration active_time_;
};

}  // namespace continuo::simulate
