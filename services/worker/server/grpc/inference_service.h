// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include "continuo/v1/inference.grpc.pb.h"
#include "services/worker/server/grpc/worker_core.h"

namespace continuo::server {

// InferenceService of a worker. Every method takes bytes and parses them itself (see wire.h).
class InferenceService : public v1::InferenceService::WithRawCallbackMethod_Generate<
                             v1::InferenceService::WithRawCallbackMethod_Tokenize<
                                 v1::InferenceService::WithRawCallbackMethod_Detokenize<
                                     v1::InferenceService::WithRawCallbackMethod_Embed<
                                         v1::InferenceService::WithRawCallbackMethod_ListModels<
                                             v1::InferenceService::WithRawCallbackMethod_GetModel<
                                                 v1::InferenceService::Service>>>>>> {
 public:
  // `core` outlives the service.
  explicit InferenceService(WorkerCore* core) : core_(core) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  WorkerCore* const core_;
};

}  // namespace continuo::server
