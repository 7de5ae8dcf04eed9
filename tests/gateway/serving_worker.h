// SPDX-License-Identifier: Apache-2.0
#pragma once

// Helpers for tests of relays with their own workers.

#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

// Ignores everything.
class IgnoringObserver : public RelayObserver {
 public:
  void OnBegun(const RelayLabels&, absl::Duration) override {}
  void OnFirstToken(const RelayLabels&, absl::Duration) override {}
  void OnTokens(const RelayLabels&, absl::Duration, int) override {}
  void OnMigration(const RelayLabels&, std::string_view) override {}
  void OnStall(const RelayLabels&, absl::Duration) override {}
};

// A worker of the model "fake" at the address `name`, called worker-`name`, that serves forever.
inline std::shared_ptr<const WorkerLoad> ServingWorker(const std::string& name) {
  return std::make_shared<const WorkerLoad>(
      WorkerLoad{.address = name,
                 .worker = "worker-" + name,
                 .incarnation = name,
                 .model = "fake",
                 .fingerprint = "F",
                 .tokenizer_fingerprint = "T",
                 .state = WorkerState::kServing,
                 .report_time = absl::InfiniteFuture() - absl::UnixEpoch()});
}

}  // namespace continuo::gateway
