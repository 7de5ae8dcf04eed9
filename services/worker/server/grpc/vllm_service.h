// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>

#include "services/worker/server/grpc/generate_call.h"
#include "vllm/vllm_engine.grpc.pb.h"

namespace continuo::server {

// vllm.grpc.engine of a worker, by which gateways for vLLM drive it: the same calls as those of
// InferenceService, for the same peers. Requests name no model: adapters are not reached by it.
// Abort and SubscribeKvEvents, which tells prompts, are for peers of the fleet, as WorkerService's
// Abort is; GetLoads for those of WatchLoad.
class VllmService
    : public vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_Generate<
          vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_Embed<
              vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_HealthCheck<
                  vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_Abort<
                      vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_GetModelInfo<
                          vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_GetServerInfo<
                              vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_GetLoads<
                                  vllm::grpc::engine::VllmEngine::
                                      WithRawCallbackMethod_GetTokenizer<
                                          vllm::grpc::engine::VllmEngine::
                                              WithRawCallbackMethod_SubscribeKvEvents<
                                                  vllm::grpc::engine::VllmEngine::Service>>>>>>>>> {
 public:
  // `next_id` is the engine's next name for a request. All outlive the service.
  VllmService(const GenerateCall::Dependencies& worker, std::atomic<engine::RequestId>* next_id)
      : worker_(worker), next_id_(next_id), start_(worker.clock->Elapsed()) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoads(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GetTokenizer(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* SubscribeKvEvents(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

 private:
  const GenerateCall::Dependencies worker_;
  std::atomic<engine::RequestId>* const next_id_;
  const absl::Duration start_;
};

}  // namespace continuo::server
