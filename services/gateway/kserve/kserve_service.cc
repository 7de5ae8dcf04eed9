// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/kserve_service.h"

#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/kserve/call/served.h"
#include "services/gateway/kserve/infer_call.h"
#include "services/gateway/kserve/infer_stream.h"

namespace continuo::gateway::kserve {
namespace {

using Models = std::vector<v1::Model>;

}  // namespace

template <typename Request, typename Answer>
grpc::ServerUnaryReactor* KserveService::AnswerKnown(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer& bytes,
                                                     grpc::ByteBuffer* response, Answer answer) {
  const ClientCall call = CallOf(*context, bytes);
  // Bytes without a valid key are not parsed.
  if (const auto tenant = dependencies_.service->Authenticate(call); !tenant.ok()) {
    return common::EndUnary(context, tenant.status());
  }
  const absl::StatusOr<Request> request = common::ParseMessage<Request>(bytes);
  if (!request.ok()) return common::EndUnary(context, request.status());
  const auto answered = answer(*request, dependencies_.models(call));
  if (answered.ok()) common::SerializeMessage(*answered, response);
  return common::EndUnary(context, answered.status());
}

// Probes have no key.
grpc::ServerUnaryReactor* KserveService::ServerLive(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* /*bytes*/,
                                                    grpc::ByteBuffer* response) {
  inference::ServerLiveResponse answer;
  answer.set_live(true);
  common::SerializeMessage(answer, response);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ServerReady(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* /*bytes*/,
                                                     grpc::ByteBuffer* response) {
  inference::ServerReadyResponse answer;
  answer.set_ready(dependencies_.ready());
  common::SerializeMessage(answer, response);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ModelReady(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  return AnswerKnown<inference::ModelReadyRequest>(
      context, *bytes, response,
      [](const auto& request,
         const Models& models) -> absl::StatusOr<inference::ModelReadyResponse> {
        inference::ModelReadyResponse answer;
        answer.set_ready(IsReady(models, request.name(), request.version()));
        return answer;
      });
}

grpc::ServerUnaryReactor* KserveService::ServerMetadata(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* bytes,
                                                        grpc::ByteBuffer* response) {
  return AnswerKnown<inference::ServerMetadataRequest>(
      context, *bytes, response,
      [this](const auto&, const Models&) -> absl::StatusOr<inference::ServerMetadataResponse> {
        return ServerMetadataOf(dependencies_.version);
      });
}

grpc::ServerUnaryReactor* KserveService::ModelMetadata(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* bytes,
                                                       grpc::ByteBuffer* response) {
  return AnswerKnown<inference::ModelMetadataRequest>(
      context, *bytes, response, [](const auto& request, const Models& models) {
        return ModelMetadataOf(models, request.name(), request.version());
      });
}

grpc::ServerUnaryReactor* KserveService::RepositoryIndex(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* response) {
  return AnswerKnown<inference::RepositoryIndexRequest>(
      context, *bytes, response,
      [](const auto& request, const Models& models) { return RepositoryIndexOf(models, request); });
}

grpc::ServerUnaryReactor* KserveService::ModelInfer(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  return InferUnary::Start(context, *bytes, response, dependencies_.service,
                           dependencies_.open_calls);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* KserveService::ModelStreamInfer(
    grpc::CallbackServerContext* context) {
  return InferStream::Start(context, dependencies_.service, dependencies_.open_calls);
}

}  // namespace continuo::gateway::kserve
