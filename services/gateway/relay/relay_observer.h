// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/time/time.h"

namespace continuo::gateway {

// The labels of a stream's series: its model, and the number of the pool (WorkerLoad::pool) whose
// worker has it or had it last; -1 before the first worker.
struct RelayLabels {
  std::string_view model;
  int pool = -1;
};

// Receives the events of all relays as they happen, for metrics. Thread-safe.
class RelayObserver {
 public:
  virtual ~RelayObserver() = default;
  // The first worker has begun the prompt.
  virtual void OnBegun(const RelayLabels& labels, absl::Duration since_start) = 0;
  virtual void OnFirstToken(const RelayLabels& labels, absl::Duration since_start) = 0;
  // The time between two responses with tokens, migrations included, and the number of tokens in
  // the second one.
  virtual void OnTokens(const RelayLabels& labels, absl::Duration since_last, int tokens) = 0;
  // `labels` has the pool that is left. `reason` is "drained", "lost", "silent", "fault" or
  // "overloaded".
  virtual void OnMigration(const RelayLabels& labels, std::string_view reason) = 0;
  // The time from the loss of a worker to the first response of the next one.
  virtual void OnStall(const RelayLabels& labels, absl::Duration stall) = 0;
};

}  // namespace continuo::gateway
