// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/reports/gateway_metrics.h"
#include "services/gateway/requests/auth.h"
#include "services/gateway/requests/key_limiter.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

// What stands before every method: whether the gateway still takes calls, who calls, what of a call
// is sent on, and whether the limits let it in. Thread-safe.
class CallIntake {
 public:
  // All of them outlive it.
  struct Dependencies {
    const Authenticator* auth = nullptr;
    KeyLimiter* key_limiter = nullptr;
    GatewayMetrics* metrics = nullptr;
    Router* router = nullptr;
    const Clock* clock = nullptr;
  };
  explicit CallIntake(const Dependencies& dependencies) : dependencies_(dependencies) {}

  // From now on calls that need a worker are rejected.
  void BeginDrain() { draining_ = true; }
  // UNAVAILABLE with reason CONTINUE after BeginDrain.
  absl::Status CheckOpen() const;
  // After BeginDrain: returns when no call was rejected for `quiet`, or after `longest`.
  void WaitForQuiet(absl::Duration quiet, absl::Duration longest) const;

  absl::StatusOr<Caller> FindCaller(const ClientCall& call) const;
  // The tenant, deadline and trace of a call, and the request id where the client sent one. `key`
  // becomes the caller's.
  absl::StatusOr<CallContext> ContextOf(const ClientCall& call,
                                        std::shared_ptr<const KeyGrant>* key) const;

  // Checks that the key is for the request's model. A key for one model says which one is meant
  // where the request does not.
  template <typename Request>
  absl::Status BindModel(const KeyGrant* key, Request* request) const {
    if (key != nullptr && key->models.size() == 1 && request->model().empty()) {
      request->set_model(key->models.front());
    }
    return dependencies_.key_limiter->CheckModel(key, request->model());
  }

  // Admits a call that the key's limits and `admission` let in. `claim` becomes the place that the
  // key gives to it, which whoever rejects it later refunds. The model may have a worker that is
  // free though the tenant's queue is forecast to be longer than the deadline.
  absl::StatusOr<Admission::Ticket> Admit(Admission* admission, AdmissionRequest request,
                                          std::shared_ptr<const KeyGrant> key,
                                          KeyLimiter::Claim* claim) const;

  // Names and numbers that no other call has.
  std::string MakeRequestId();
  std::string MakeCallId();
  uint64_t MakeSeed();

 private:
  const Dependencies dependencies_;
  std::atomic<bool> draining_ = false;
  mutable absl::Mutex mutex_;
  mutable absl::CondVar rejected_ ABSL_GUARDED_BY(mutex_);  // Signalled by CheckOpen.
  absl::BitGen random_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
