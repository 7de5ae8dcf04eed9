// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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
  // `serial` orders streams.
  WorkerStream(std::shared_ptr<gateway::StreamRelay> relay, int attempt, int gateway,
               uint64_t serial)
      : relay_(std::move(relay)), attempt_(attempt), gateway_(gateway), serial_(serial) {}
  // Sets what is called once, when the relay has got the end or gives the call up.
  void SetOnClosed(std::function<void(bool abandoned)> on_closed) {
    on_closed_ = std::move(on_closed);
  }

  void StartRead() override;
  void Abandon() override;

  // A response, or the end of the stream, has come over the network. Nothing follows an end.
  void Arrive(v1::GenerateResponse response);
  void ArriveEnd(absl::Status status);

  // While the stream is held, what arrives is kept back: the network is cut.
  void Hold() { is_held_ = true; }
  void Release();
  // The connection is gone: what was held is lost, and the stream ends.
  void Reset();

  int gateway() const { return gateway_; }
  uint64_t serial() const { return serial_; }
  // The relay may still get something.
  bool is_open() const { return relay_ != nullptr; }

 private:
  void Pass();

  std::shared_ptr<gateway::StreamRelay> relay_;  // null once it has got the end or given up
  const int attempt_;
  const int gateway_;
  const uint64_t serial_;
  std::function<void(bool)> on_closed_;
  std::deque<v1::GenerateResponse> arrived_;
  std::optional<absl::Status> end_;
  bool is_reading_ = false;
  bool is_held_ = false;
};

}  // namespace continuo::simulate
