// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/base/byte_budget.h"
#include "services/worker/server/grpc/generate_call.h"

namespace continuo::server {

// InferenceService of a worker. Every method takes bytes and parses them itself (see wire.h).
class InferenceService
    : public v1::InferenceService::WithRawCallbackMethod_Generate<
          v1::InferenceService::WithRawCallbackMethod_Tokenize<
              v1::InferenceService::WithRawCallbackMethod_Detokenize<
                  v1::InferenceService::WithRawCallbackMethod_Embed<
                      v1::InferenceService::WithRawCallbackMethod_ListModels<
                          v1::InferenceService::WithRawCallbackMethod_GetModel<
                              v1::InferenceService::WithRawCallbackMethod_GetTokenizer<
                                  v1::InferenceService::Service>>>>>>> {
 public:
  // All outlive the service. `next_id` is the engine's next name for a request, and `text_budget`
  // bounds the Tokenize and Detokenize requests in progress.
  InferenceService(const GenerateCall::Dependencies& worker,
                   std::atomic<engine::RequestId>* next_id, ByteBudget* text_budget)
      : worker_(worker), next_id_(next_id), text_budget_(text_budget) {}

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
  grpc::ServerUnaryReactor* GetTokenizer(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;

 private:
  // The model that a request names (Serving::Find) once it is loaded, also while the worker drains.
  absl::StatusOr<std::shared_ptr<const ServedModel>> LoadedModel(std::string_view name) const;

  const GenerateCall::Dependencies worker_;
  std::atomic<engine::RequestId>* const next_id_;
  ByteBudget* const text_budget_;
};

}  // namespace continuo::server
