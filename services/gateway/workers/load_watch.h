// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "continuo/v1/worker.grpc.pb.h"
#include "services/gateway/workers/worker_channel.h"

namespace continuo::gateway {

// One WatchLoad call to a worker. Takes deltas and hands on what they stand for. Owns itself until
// it is done. The callbacks come from gRPC's threads, one at a time, `on_end` last and once.
class LoadWatch : public grpc::ClientReadReactor<v1::WatchLoadResponse> {
 public:
  LoadWatch(std::shared_ptr<WorkerChannel> channel, v1::WatchLoadRequest request,
            std::function<void(const v1::WatchLoadResponse&)> on_report,
            std::function<void(const grpc::Status&)> on_end)
      : channel_(std::move(channel)),
        request_(AcceptDeltas(std::move(request))),
        on_report_(std::move(on_report)),
        on_end_(std::move(on_end)) {}

  // `self` is a reference to this object, which it keeps until the call is done.
  void Start(std::shared_ptr<LoadWatch> self);
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  static v1::WatchLoadRequest AcceptDeltas(v1::WatchLoadRequest request) {
    request.set_accepts_deltas(true);
    return request;
  }

  const std::shared_ptr<WorkerChannel> channel_;
  const v1::WatchLoadRequest request_;
  const std::function<void(const v1::WatchLoadResponse&)> on_report_;
  const std::function<void(const grpc::Status&)> on_end_;
  std::shared_ptr<LoadWatch> self_;
  grpc::ClientContext context_;
  v1::WatchLoadResponse response_;
  // The last response that was no delta, with the deltas since. Empty before the first.
  std::optional<v1::WatchLoadResponse> report_;
};

}  // namespace continuo::gateway
