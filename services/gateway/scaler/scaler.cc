// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/scaler.h"

#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::gateway {
namespace {

// Requests here are small: a name and the metadata of a trigger.
constexpr int kMaxRequestBytes = 64 << 10;
constexpr size_t kScalerBufferBytes = 16 << 20;

std::string MakeIncarnation() {
  absl::BitGen random;
  return absl::StrCat(absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16),
                      absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16));
}

}  // namespace

Scaler::Scaler(std::unique_ptr<common::PeerCheck> gateways, const Admission* admission,
               const LoadView* view, Timer* timer, const Clock* clock)
    : gateways_(std::move(gateways)),
      demand_(
          MakeIncarnation(), [admission] { return admission->counts_by_model(); }, view, clock),
      external_scaler_(&demand_, timer, clock),
      gateway_service_(&demand_, timer, clock) {
  gateway_service_.set_peers(gateways_.get());
}

absl::StatusOr<std::unique_ptr<Scaler>> Scaler::Start(const ScalerOptions& options,
                                                      const Admission* admission,
                                                      const LoadView* view, Timer* timer,
                                                      const Clock* clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<common::PeerCheck> gateways,
                   common::PeerCheck::Open({.token_file = options.token_file}));
  std::unique_ptr<Scaler> scaler =
      absl::WrapUnique(new Scaler(std::move(gateways), admission, view, timer, clock));
  std::unique_ptr<Resolver> resolver;
  if (!options.peers.empty()) {
    absl::StatusOr<std::unique_ptr<Resolver>> made = MakeResolver(options.peers, options.resolver);
    if (!made.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--scaler_peers: ", std::string(made.status().message())));
    }
    resolver = *std::move(made);
  }
  common::GrpcServerOptions server;
  server.listen = options.listen;
  server.max_receive_bytes = kMaxRequestBytes;
  server.max_buffer_bytes = kScalerBufferBytes;
  server.max_concurrent_streams = 1024;
  ASSIGN_OR_RETURN(scaler->server_, common::GrpcServer::Start(server, {&scaler->external_scaler_,
                                                                       &scaler->gateway_service_}));
  if (resolver != nullptr) {
    scaler->peers_ = std::make_unique<DemandPeers>(std::move(resolver), scaler->gateways_->token(),
                                                   &scaler->demand_, timer);
  }
  return scaler;
}

void Scaler::Shutdown(absl::Time deadline) {
  external_scaler_.EndStreams();
  gateway_service_.EndStreams();
  server_->Shutdown(deadline);
}

Scaler::~Scaler() {
  // Its calls write into the demand, and its own gateway is among the peers.
  peers_.reset();
  server_.reset();
}

}  // namespace continuo::gateway
