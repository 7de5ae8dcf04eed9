// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/inference_service.h"

#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/grpc/embed_call.h"
#include "services/worker/server/grpc/unary_call.h"
#include "services/worker/server/session/text_answers.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {

absl::StatusOr<std::shared_ptr<const ServedModel>> InferenceService::LoadedModel(
    std::string_view name) const {
  const Serving* serving = worker_.serving->get();
  if (serving == nullptr) return worker_.lifecycle->CheckServing();
  return serving->Find(name);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new GenerateCall(context, *request, next_id_->fetch_add(1, std::memory_order_relaxed),
                          worker_);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerText<v1::TokenizeRequest>(
      *worker_.text_pool, *text_budget_, context, request, response,
      [this](const v1::TokenizeRequest& r) -> absl::StatusOr<v1::TokenizeResponse> {
        ASSIGN_OR_RETURN(const auto model, LoadedModel(r.model()));
        return AnswerTokenize(r, worker_.clock->Now(), *model);
      });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerText<v1::DetokenizeRequest>(
      *worker_.text_pool, *text_budget_, context, request, response,
      [this](const v1::DetokenizeRequest& r) -> absl::StatusOr<v1::DetokenizeResponse> {
        ASSIGN_OR_RETURN(const auto model, LoadedModel(r.model()));
        return AnswerDetokenize(r, *model);
      });
}

grpc::ServerUnaryReactor* InferenceService::Embed(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return new EmbedCall(context, *request, response, next_id_, worker_);
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<v1::ListModelsRequest>(
      context, request, response,
      [this](const v1::ListModelsRequest&) -> absl::StatusOr<v1::ListModelsResponse> {
        v1::ListModelsResponse list;
        if (const Serving* s = worker_.serving->get(); s != nullptr) {
          *list.add_models() = ToProto(s->model);
          for (const ServedAdapters::Offer& offer : s->adapters->All()) {
            *list.add_models() = ToProto(*offer.model);
          }
        }
        return list;
      });
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<v1::GetModelRequest>(
      context, request, response,
      [this](const v1::GetModelRequest& r) -> absl::StatusOr<v1::GetModelResponse> {
        ASSIGN_OR_RETURN(const auto model, LoadedModel(r.name()));
        RETURN_IF_ERROR(ValidateModelName(r.name(), *model));
        v1::GetModelResponse found;
        *found.mutable_model() = ToProto(*model);
        return found;
      });
}

grpc::ServerUnaryReactor* InferenceService::GetTokenizer(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<v1::GetTokenizerRequest>(
      context, request, response,
      [this](const v1::GetTokenizerRequest& r) -> absl::StatusOr<v1::GetTokenizerResponse> {
        ASSIGN_OR_RETURN(const auto model, LoadedModel(r.model()));
        return AnswerGetTokenizer(r, *model);
      });
}

}  // namespace continuo::server
