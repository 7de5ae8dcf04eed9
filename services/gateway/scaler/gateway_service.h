// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "continuo/v1/gateway.grpc.pb.h"
#include "services/base/clock.h"
#include "services/common/trust/peer_check.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/scaler/demand.h"
#include "services/gateway/scaler/polled_stream.h"

namespace continuo::gateway {

// continuo.v1.GatewayService for the other gateways of the fleet. Thread-safe.
class GatewayService : public v1::GatewayService::CallbackService {
 public:
  // All of them outlive the server.
  GatewayService(const Demand* demand, Timer* timer, const Clock* clock)
      : demand_(demand), timer_(timer), clock_(clock) {}
  // Sets who may call: those that the check takes for gateways. Called before the server starts; it
  // outlives the server.
  void set_peers(common::PeerCheck* peers) { peers_ = peers; }
  // Ends all streams with OK, those that begin later too.
  void EndStreams() { streams_.EndAll(); }

  grpc::ServerWriteReactor<v1::WatchDemandResponse>* WatchDemand(
      grpc::CallbackServerContext* context, const v1::WatchDemandRequest* request) override;

 private:
  const Demand* const demand_;
  Timer* const timer_;
  const Clock* const clock_;
  common::PeerCheck* peers_ = nullptr;  // Null: everybody may.
  OpenStreams streams_;
};

}  // namespace continuo::gateway
