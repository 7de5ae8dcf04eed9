// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/time/time.h"

namespace continuo::gateway {

// Receives the events of all relays as they happen, for metrics. Thread-safe.
class RelayObserver {
 public:
  virtual ~RelayObserver() = default;
  virtual void OnFirstToken(std::string_view model, absl::Duration since_start) = 0;
  // The time between two responses with tokens, migrations included, and the number of tokens in
  // the second one.
  virtual void OnTokens(std::string_view model, absl::Duration since_last, int tokens) = 0;
  // `reason` is "drained", "lost", "silent", "fault" or "overloaded".
  virtual void OnMigration(std::string_view model, std::string_view reason) = 0;
  // The time from the loss of a worker to the first response of the next one.
  virtual void OnStall(std::string_view model, absl::Duration stall) = 0;
};

}  // namespace continuo::gateway
