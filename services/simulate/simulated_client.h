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
#include "services/simulate/event_loop.h"
#include "services/simulate/load.h"
#include "services/simulate/results.h"

namespace continuo::simulate {

// A client with one request: reads its stream at once, measures it, and compares each token with
// the one that the model would give there. Not thread-safe.
class SimulatedClient : public gateway::RelayClient {
 public:
  // Everything passed outlives the client. `on_end` is called once, last of all.
  SimulatedClient(PlannedRequest planned, v1::GenerateRequest request, const EventLoop* loop,
                  absl::Duration network_delay, Results* results,
                  std::function<void(SimulatedClient*)> on_end);

  // Takes the relay of the call that was opened, and starts it.
  void Begin(std::shared_ptr<gateway::StreamRelay> relay);
  // The call was rejected.
  void OnRejected(const absl::Status& status) { End(status); }

  // Gives the request up.
  void Cancel() { relay_->OnCancelled(); }

  // Of RelayClient.
  void Write(const v1::GenerateResponse& response) override;
  void Finish(const absl::Status& status, const gateway::RelayReport& report) override;

  // The first token that was not the expected one, or an answer of the wrong length; OK if none.
  const absl::Status& mistake() const { return mistake_; }
  const v1::GenerateRequest& request() const { return request_; }
  const PlannedRequest& planned() const { return planned_; }
  const gateway::StreamRelay* relay() const { return relay_.get(); }

 private:
  void Check(const v1::GenerateResponse& response);
  void End(const absl::Status& status);

  const PlannedRequest planned_;
  const v1::GenerateRequest request_;
  const EventLoop& loop_;
  const absl::Duration network_delay_;
  Results& results_;
  const std::function<void(SimulatedClient*)> on_end_;
  std::shared_ptr<gateway::StreamRelay> relay_;
  const absl::Duration start_;
  std::optional<absl::Duration> last_token_;
  int num_tokens_ = 0;
  bool has_finish_ = false;
  absl::Status mistake_;
};

}  // namespace continuo::simulate
