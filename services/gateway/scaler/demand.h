// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

using DemandByModel = std::map<std::string, Admission::ModelCounts>;

// The demand for each model at this gateway and at its peers. Thread-safe.
class Demand {
 public:
  // A peer that has told nothing for longer counts as without demand.
  static constexpr absl::Duration kMaxPeerAge = absl::Seconds(10);

  // `incarnation` names this process among its peers. `local` tells the demand at this gateway; it
  // is called from any thread. `view` and `clock` outlive this object.
  Demand(std::string incarnation, std::function<DemandByModel()> local, const LoadView* view,
         const Clock* clock)
      : incarnation_(std::move(incarnation)),
        local_(std::move(local)),
        view_(view),
        clock_(clock) {}

  const std::string& incarnation() const { return incarnation_; }

  // The demand at this gateway for the models that it knows, and under "" that of clients who left
  // the name out.
  DemandByModel Local() const;
  // The demand for one model at all gateways. What was asked for without a name counts where only
  // one model is known.
  Admission::ModelCounts Total(std::string_view model) const;
  // True if the gateway knows the model.
  bool IsKnown(std::string_view model) const;
  // True if a worker of the model takes requests.
  bool IsServed(std::string_view model) const;

  // A peer has told its demand, which replaces what it told before.
  void SetPeer(const std::string& address, std::string_view incarnation, DemandByModel demand);
  void ForgetPeer(const std::string& address);

 private:
  struct Peer {
    DemandByModel demand;
    absl::Duration time;
  };

  const std::string incarnation_;
  const std::function<DemandByModel()> local_;
  const LoadView* const view_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);  // By address; without this gateway.
};

}  // namespace continuo::gateway
