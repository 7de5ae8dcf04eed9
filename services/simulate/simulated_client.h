// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/relay_client.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/protocol/continuation.h"
#include "services/simulate/event/event_loop.h"
#include "services/simulate/load.h"
#include "services/simulate/results.h"

namespace continuo::simulate {

// A client with one request: reads its stream at once, measures it, and compares each token with
// the one that the model would give there. As cli::Generation does, it goes on with a continuation
// when its stream ends UNAVAILABLE after a response. Not thread-safe.
class SimulatedClient : public gateway::RelayClient {
 public:
  struct Callbacks {
    // Asks for another call, after a while; the request has a continuation by then.
    std::function<void(SimulatedClient*, absl::Duration delay)> reconnect;
    std::function<void(SimulatedClient*)> on_end;  // called once, last of all
  };

  // Everything passed outlives the client. With `reconnects` it goes on after losses.
  SimulatedClient(PlannedRequest planned, v1::GenerateRequest request, const EventLoop* loop,
                  absl::Duration network_delay, bool reconnects, Results* results,
                  Callbacks callbacks);

  // Takes the relay of the call that was opened at that gateway, and starts it.
  void Begin(std::shared_ptr<gateway::StreamRelay> relay, int gateway);
  // The call was rejected.
  void OnRejected(const absl::Status& status) { Conclude(status); }
  // Gives the request up.
  void Cancel();
  // The process of the gateway has ended.
  void OnGatewayLost();

  // These implement RelayClient.
  void Write(const v1::GenerateResponse& response) override;
  void Finish(const absl::Status& status, const gateway::RelayReport& report) override;

  // The first token that was not the expected one, or an answer of the wrong length; OK if none.
  const absl::Status& mistake() const { return mistake_; }
  const v1::GenerateRequest& request() const { return request_; }
  const PlannedRequest& planned() const { return planned_; }
  // The gateway of the call that is open; -1 without one.
  int gateway() const { return relay_ != nullptr ? gateway_ : -1; }
  // The call that is open has brought a token or a summary.
  bool has_progress() const { return has_progress_; }

 private:
  void Conclude(absl::Status status);
  void Check(const v1::GenerateResponse& response);
  void End(const absl::Status& status);

  const PlannedRequest planned_;
  v1::GenerateRequest request_;
  const EventLoop& loop_;
  const absl::Duration network_delay_;
  Results& results_;
  const bool reconnects_;
  const Callbacks callbacks_;
  std::shared_ptr<gateway::StreamRelay> relay_;  // null without an open call
  int gateway_ = -1;
  bool has_progress_ = false;
  bool gateway_is_lost_ = false;
  protocol::ReceivedResponses received_;  // with reconnects_
  int num_reconnects_ = 0;                // since the last response
  const absl::Duration start_;
  std::optional<absl::Duration> last_token_;
  int num_tokens_ = 0;
  bool has_finish_ = false;
  absl::Status mistake_;
};

}  // namespace continuo::simulate
