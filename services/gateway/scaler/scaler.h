// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/trust/peer_check.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/discovery/resolver.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/scaler/demand.h"
#include "services/gateway/scaler/demand_peers.h"
#include "services/gateway/scaler/external_scaler.h"
#include "services/gateway/scaler/gateway_service.h"

namespace continuo::gateway {

struct ScalerOptions {
  std::string listen;  // Empty and "off": there is no scaler.
  // The ports of the scalers of all gateways of the fleet, as MakeResolver takes them. Empty: this
  // gateway tells of its own clients alone.
  std::string peers;
  ResolverOptions resolver;
  std::string token_file;  // Of the token that gateways show to each other; empty: none.

  bool is_on() const { return !listen.empty() && listen != "off"; }
};

// The port at which KEDA asks who waits for a model, and the other gateways for it. It has neither
// TLS nor keys, as the port of the metrics; gateways show each other the token. Thread-safe.
class Scaler {
 public:
  // Listens on return. The pointers outlive the scaler. INVALID_ARGUMENT and UNAVAILABLE name the
  // flag or the address.
  static absl::StatusOr<std::unique_ptr<Scaler>> Start(const ScalerOptions& options,
                                                       const Admission* admission,
                                                       const LoadView* view, Timer* timer,
                                                       const Clock* clock);
  ~Scaler();

  std::string address() const { return server_->address(); }

  // Ends the streams of KEDA and of the other gateways with OK, and takes no new connections: KEDA
  // goes on at another gateway. Returns when all calls have ended, at the deadline at the latest.
  // May be called again.
  void Shutdown(absl::Time deadline);

 private:
  Scaler(std::unique_ptr<common::PeerCheck> gateways, const Admission* admission,
         const LoadView* view, Timer* timer, const Clock* clock);

  std::unique_ptr<common::PeerCheck> gateways_;
  Demand demand_;
  ExternalScaler external_scaler_;
  GatewayService gateway_service_;
  std::unique_ptr<DemandPeers> peers_;  // Null without peers.
  std::unique_ptr<common::GrpcServer> server_;
};

}  // namespace continuo::gateway
