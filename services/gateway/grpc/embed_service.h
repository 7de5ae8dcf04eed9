// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.pb.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/grpc/call_intake.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/text_service.h"
#include "services/gateway/relay/unary/unary_relay.h"
#include "services/gateway/reports/call_reports.h"
#include "services/gateway/requests/key_limiter.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// The method Embed: checks, admits, relays, logs and charges calls as those of Generate are.
// Thread-safe; outlives its calls.
class EmbedService {
 public:
  // All of them outlive the service.
  struct Dependencies {
    RelayEnvironment relay;
    const WorkerPool* pool = nullptr;
    Admission* admission = nullptr;
    OpenCalls* open_calls = nullptr;
    CallIntake* intake = nullptr;
    const CallReports* reports = nullptr;
  };
  explicit EmbedService(const Dependencies& dependencies) : dependencies_(dependencies) {}

  // As TextService::AskEmbed.
  TextService::Cancel Ask(const ClientCall& call, v1::EmbedRequest request,
                          TextService::Done<v1::EmbedResponse> done);
  // Ends the open calls with an error, and those that are admitted later.
  void EndAll(const absl::Status& status);
  int64_t num_calls() const;

 private:
  class Call;

  // `claim` becomes the place that the caller's key gives to an admitted request.
  absl::StatusOr<UnaryWork> Admit(const ClientCall& call, const common::CallTrace& trace,
                                  v1::EmbedRequest* request, KeyLimiter::Claim* claim);
  void OnEnd(Call* call, const absl::Status& status, const RelayReport& report);

  const Dependencies dependencies_;
  mutable absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // OK until EndAll
  absl::flat_hash_map<const Call*, std::weak_ptr<UnaryRelay>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
