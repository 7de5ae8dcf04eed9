// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/gateway_service.h"

#include <cstdint>
#include <optional>

#include "services/common/grpc/refused_stream.h"

namespace continuo::gateway {
namespace {

// A peer hears from this gateway at least this often.
constexpr absl::Duration kHeartbeat = absl::Seconds(2);

}  // namespace

grpc::ServerWriteReactor<v1::WatchDemandResponse>* GatewayService::WatchDemand(
    grpc::CallbackServerContext* context, const v1::WatchDemandRequest* /*request*/) {
  if (peers_ != nullptr) {
    if (const absl::Status peer = peers_->Require(*context); !peer.ok()) {
      return new common::RefusedStream<v1::WatchDemandResponse>(peer);
    }
  }
  return PolledStream<v1::WatchDemandResponse>::Start(
      &streams_, timer_,
      [this, sent = std::optional<DemandByModel>(),
       sent_time = absl::ZeroDuration()]() mutable -> std::optional<v1::WatchDemandResponse> {
        DemandByModel demand = demand_->Local();
        const absl::Duration now = clock_->Elapsed();
        if (sent == demand && now - sent_time < kHeartbeat) return std::nullopt;
        sent_time = now;
        sent = std::move(demand);
        v1::WatchDemandResponse response;
        response.set_incarnation(demand_->incarnation());
        for (const auto& [name, counts] : *sent) {
          v1::ModelDemand& model = *response.add_models();
          model.set_model(name);
          model.set_open_requests(static_cast<uint64_t>(counts.open_requests));
          model.set_queued_prompt_tokens(static_cast<uint64_t>(counts.queued_tokens));
        }
        return response;
      });
}

}  // namespace continuo::gateway
