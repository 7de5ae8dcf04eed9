// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::kserve {

// The parts of the gateway that the service uses. All of them outlive it.
struct Dependencies {
  GenerateService* service = nullptr;
  OpenCalls* open_calls = nullptr;
  // The models that a caller may use.
  std::function<std::vector<v1::Model>(const ClientCall&)> models;
  // True while the gateway takes requests and some worker serves.
  std::function<bool()> ready;
  std::string version;  // of the gateway
};

// inference.GRPCInferenceService, the Open Inference Protocol of KServe and Triton, as another way
// to GenerateService. Every method takes bytes and parses them itself, so that one that does not
// parse gets a status of ours. Thread-safe.
class KserveService
    : public inference::GRPCInferenceService::WithRawCallbackMethod_ServerLive<
          inference::GRPCInferenceService::WithRawCallbackMethod_ServerReady<
              inference::GRPCInferenceService::WithRawCallbackMethod_ModelReady<
                  inference::GRPCInferenceService::WithRawCallbackMethod_ServerMetadata<
                      inference::GRPCInferenceService::WithRawCallbackMethod_ModelMetadata<
                          inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
                              inference::GRPCInferenceService::
                                  WithRawCallbackMethod_ModelStreamInfer<
                                      inference::GRPCInferenceService::
                                          WithRawCallbackMethod_RepositoryIndex<
                                              inference::GRPCInferenceService::Service>>>>>>>> {
 public:
  explicit KserveService(Dependencies dependencies) : dependencies_(std::move(dependencies)) {}

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* bytes,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* bytes,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* bytes,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* RepositoryIndex(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* bytes,
                                            grpc::ByteBuffer* response) override;

 private:
  // Answers a unary call of a caller that is known by `answer`, a function from request to
  // StatusOr<response>, which also gets the models that the caller may use.
  template <typename Request, typename Answer>
  grpc::ServerUnaryReactor* AnswerKnown(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                        Answer answer);

  const Dependencies dependencies_;
};

}  // namespace continuo::gateway::kserve
