// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/trust/token_file.h"
#include "services/gateway/discovery/resolver.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/scaler/demand.h"

namespace continuo::gateway {

// Watches the demand at the other gateways of the fleet, and writes it into the Demand.
// Thread-safe.
class DemandPeers {
 public:
  // The delay before a peer that was lost is called again.
  static constexpr absl::Duration kReconnect = absl::Seconds(1);

  // `resolver` finds the addresses of all gateways, this one's among them. Each call brings the
  // token; null: none. The pointers outlive this object.
  DemandPeers(std::unique_ptr<Resolver> resolver, const common::TokenFile* token, Demand* demand,
              Timer* timer);
  // Ends all calls and waits for them.
  ~DemandPeers();
  DemandPeers(const DemandPeers&) = delete;
  DemandPeers& operator=(const DemandPeers&) = delete;

 private:
  class Watch;
  struct Alive;

  void SetAddresses(const std::vector<std::string>& addresses);
  // Calls the peer if it is listed and not called already.
  void Connect(const std::string& address);
  void OnEnd(const std::string& address, const Watch* watch);

  const std::unique_ptr<Resolver> resolver_;
  const common::TokenFile* const token_;
  Demand* const demand_;
  Timer* const timer_;
  const std::shared_ptr<Alive> alive_;
  absl::Mutex mutex_;
  // By listed address; null between two calls.
  std::map<std::string, std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway
