// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "externalscaler/externalscaler.grpc.pb.h"
#include "services/base/clock.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/scaler/demand.h"
#include "services/gateway/scaler/polled_stream.h"

namespace continuo::gateway {

// externalscaler.ExternalScaler for KEDA: tells whether a model is asked for, at this gateway and
// its peers, so that its pool is started from zero, and by how many queued prompt tokens.
// Thread-safe.
class ExternalScaler : public externalscaler::ExternalScaler::CallbackService {
 public:
  // The name of the only metric.
  static constexpr char kMetric[] = "queued_prompt_tokens";

  // All of them outlive the server.
  ExternalScaler(const Demand* demand, Timer* timer, const Clock* clock)
      : demand_(demand), timer_(timer), clock_(clock) {}

  // Ends all streams with OK, those that begin later too: KEDA 2.18 then calls again after two
  // seconds, while it waits up to a minute after an error, twice as long each time
  // (externalPushScaler.Run in its pkg/scalers/external_scaler.go).
  void EndStreams() { streams_.EndAll(); }

  grpc::ServerUnaryReactor* IsActive(grpc::CallbackServerContext* context,
                                     const externalscaler::ScaledObjectRef* request,
                                     externalscaler::IsActiveResponse* response) override;
  grpc::ServerWriteReactor<externalscaler::IsActiveResponse>* StreamIsActive(
      grpc::CallbackServerContext* context,
      const externalscaler::ScaledObjectRef* request) override;
  grpc::ServerUnaryReactor* GetMetricSpec(grpc::CallbackServerContext* context,
                                          const externalscaler::ScaledObjectRef* request,
                                          externalscaler::GetMetricSpecResponse* response) override;
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const externalscaler::GetMetricsRequest* request,
                                       externalscaler::GetMetricsResponse* response) override;

 private:
  // The metadata of a trigger.
  struct Trigger {
    std::string model;
    int64_t queued_tokens = 8192;
  };
  // INVALID_ARGUMENT names the key; NOT_FOUND names a model that the gateway does not know.
  absl::StatusOr<Trigger> Parse(const externalscaler::ScaledObjectRef& reference) const;

  const Demand* const demand_;
  Timer* const timer_;
  const Clock* const clock_;
  OpenStreams streams_;
};

}  // namespace continuo::gateway
