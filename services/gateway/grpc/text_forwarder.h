// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/grpc/call_intake.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/relay/text_service.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// The methods Tokenize, Detokenize and GetTokenizer: sends each call to a worker of its model, and
// to another one where that is lost. Thread-safe; outlives its calls.
class TextForwarder {
 public:
  // All of them outlive it.
  struct Dependencies {
    CallIntake* intake = nullptr;
    Admission* admission = nullptr;
    Router* router = nullptr;
    const WorkerPool* pool = nullptr;
    OpenCalls* open_calls = nullptr;
  };
  explicit TextForwarder(const Dependencies& dependencies) : dependencies_(dependencies) {}

  // As gRPC calls them: the bytes are parsed once they have been admitted.
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer& bytes,
                                     grpc::ByteBuffer* response) const;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer& bytes,
                                       grpc::ByteBuffer* response) const;
  grpc::ServerUnaryReactor* GetTokenizer(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer& bytes,
                                         grpc::ByteBuffer* response) const;

  // As TextService has them.
  TextService::Cancel AskTokenize(const ClientCall& call, v1::TokenizeRequest request,
                                  TextService::Done<v1::TokenizeResponse> done) const;
  TextService::Cancel AskDetokenize(const ClientCall& call, v1::DetokenizeRequest request,
                                    TextService::Done<v1::DetokenizeResponse> done) const;
  TextService::Cancel AskGetTokenizer(const ClientCall& call, v1::GetTokenizerRequest request,
                                      TextService::Done<v1::GetTokenizerResponse> done) const;

 private:
  template <typename Request, typename Response, typename Method>
  grpc::ServerUnaryReactor* Forward(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                    Method method) const;
  template <typename Request, typename Response, typename Method>
  TextService::Cancel Ask(const ClientCall& call, Request request, TextService::Done<Response> done,
                          Method method) const;

  const Dependencies dependencies_;
};

}  // namespace continuo::gateway
