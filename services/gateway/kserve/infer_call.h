// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/kserve/call/infer_answer.h"
#include "services/gateway/kserve/call/infer_request.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway::kserve {

// Parses one request of a client that is known; `call` gets its size, and its identity where it has
// an idempotency key. An error has been logged and counted.
absl::StatusOr<InferCall> ParseInferCall(const grpc::ByteBuffer& bytes, GenerateService* service,
                                         ClientCall* call);

// One call of ModelInfer. Owns itself until gRPC is done with it.
class InferUnary : public grpc::ServerUnaryReactor, public RelayClient {
 public:
  // Returns the reactor of a new call. The service and what counts open calls outlive it.
  static grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                         GenerateService* service, OpenCalls* open_calls);

  void Write(const v1::GenerateResponse& response) override;
  void Finish(const absl::Status& status, const RelayReport& report) override;

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  InferUnary(grpc::ByteBuffer* response, OpenCalls* open_calls)
      : open_(open_calls), response_(response) {}
  // Parses and opens the generation.
  absl::Status Open(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
                    GenerateService* service);
  void End(const absl::Status& status);

  const OpenCalls::Call open_;
  grpc::ByteBuffer* const response_;
  InferCall call_;  // without its request
  std::optional<InferAnswer> answer_;
  bool has_answer_ = false;
  std::shared_ptr<StreamRelay> relay_;  // null where the generation was not opened
};

}  // namespace continuo::gateway::kserve
