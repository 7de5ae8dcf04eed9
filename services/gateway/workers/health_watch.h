// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>

namespace continuo::gateway {

// One call of grpc.health.v1.Health/Watch about a whole worker. Owns itself until it is done. The
// callbacks come from gRPC's threads, one at a time, `on_end` last and once.
class HealthWatch : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `not_serving` is true where the worker says NOT_SERVING. Any other answer, and a worker without
  // this service, counts as healthy.
  HealthWatch(std::shared_ptr<grpc::Channel> channel,
              std::function<void(bool not_serving)> on_health, std::function<void()> on_end)
      : channel_(std::move(channel)),
        on_health_(std::move(on_health)),
        on_end_(std::move(on_end)) {}

  // `self` is a reference to this object, which it keeps until the call is done.
  void Start(std::shared_ptr<HealthWatch> self);
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::function<void(bool)> on_health_;
  const std::function<void()> on_end_;
  std::shared_ptr<HealthWatch> self_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
};

}  // namespace continuo::gateway
