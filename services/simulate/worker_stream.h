// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/worker_call.h"

namespace continuo::simulate {

// One stream of responses from a worker to a relay, as gRPC would carry it: responses that have
// arrived wait until the relay reads. Not thread-safe.
class WorkerStream : public gateway::WorkerCall, public std::enable_shared_from_this<WorkerStream> {
 public:
  WorkerStream(std::shared_ptr<gateway::StreamRelay> relay, int attempt, int gateway)
      : relay_(std::move(relay)), attempt_(attempt), gateway_(gateway) {}
  // Sets what is called once, when the relay gives the call up.
  void SetOnAbandoned(std::function<void()> on_abandoned) {
    on_abandoned_ = std::move(on_abandoned);
  }

  void StartRead() override;
  void Abandon() override;

  // A response, or the end of the stream, has come over the network. Nothing follows an end.
  void Arrive(v1::GenerateResponse response);
  void ArriveEnd(absl::Status status);

  // While the stream is held, what arrives is kept back: the network is cut.
  void Hold() { is_held_ = true; }
  void Release();

  int gateway() const { return gateway_; }
  // The relay may still get something.
  bool is_open() const { return relay_ != nullptr; }

 private:
  void Pass();

  std::shared_ptr<gateway::StreamRelay> relay_;  // null once it has got the end or given up
  const int attempt_;
  const int gateway_;
  std::function<void()> on_abandoned_;
  std::deque<v1::GenerateResponse> arrived_;
  std::optional<absl::Status> end_;
  bool is_reading_ = false;
  bool is_held_ = false;
};

}  // namespace continuo::simulate
