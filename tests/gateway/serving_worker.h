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
  void OnFirstToken(std::string_view, absl::Duration) override {}
  void OnTokens(std::string_view, absl::Duration, int) override {}
  void OnMigration(std::string_view, std::string_view) override {}
  void OnStall(std::string_view, absl::Duration) override {}
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
