// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/vllm_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/message_bytes.h"
#include "services/common/grpc/refused_stream.h"
#include "services/common/version.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/grpc/embed_call.h"
#include "services/worker/server/grpc/unary_call.h"
#include "services/worker/server/vllm/vllm_answer.h"
#include "services/worker/server/vllm/vllm_info.h"
#include "services/worker/server/vllm/vllm_request.h"
#include "services/worker/server/vllm_calls/kv_events_call.h"
#include "services/worker/server/vllm_calls/tokenizer_call.h"

namespace continuo::server {
namespace {

namespace engine_v1 = vllm::grpc::engine;

class VllmGenerateForm : public GenerateForm {
 public:
  absl::Status Parse(grpc::ByteBuffer bytes, v1::GenerateRequest* request) override {
    engine_v1::GenerateRequest asked;
    RETURN_IF_ERROR(ParseRequest(bytes, &asked));
    ASSIGN_OR_RETURN(*request, ReadVllmGenerate(asked));
    const engine_v1::SamplingParams& p = asked.sampling_params();
    answer_.emplace(VllmAnswer::Form{.stream = asked.stream(),
                                     .has_alternatives = p.logprobs() > 0,
                                     .has_prompt_alternatives = p.prompt_logprobs() > 0});
    return absl::OkStatus();
  }
  std::vector<grpc::ByteBuffer> Serialize(const v1::GenerateResponse& response) override {
    std::vector<grpc::ByteBuffer> messages;
    for (const engine_v1::GenerateResponse& message : answer_->Add(response)) {
      common::SerializeMessage(message, &messages.emplace_back());
    }
    return messages;
  }
  absl::Status Explain(const absl::Status& status) const override { return WithVllmField(status); }

 private:
  std::optional<VllmAnswer> answer_;  // once the request was read
};

constexpr EmbedForm kVllmEmbedForm = {
    .parse = [](const grpc::ByteBuffer& bytes, v1::EmbedRequest* request) -> absl::Status {
      engine_v1::EmbedRequest asked;
      RETURN_IF_ERROR(ParseRequest(bytes, &asked));
      ASSIGN_OR_RETURN(*request, ReadVllmEmbed(asked));
      return absl::OkStatus();
    },
    .serialize = [](const v1::EmbedResponse& response,
                    grpc::ByteBuffer* bytes) { common::SerializeMessage(ToVllm(response), bytes); },
    .explain = [](const absl::Status& status) { return WithVllmField(status); }};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* VllmService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new GenerateCall(context, *request, next_id_->fetch_add(1, std::memory_order_relaxed),
                          worker_, std::make_unique<VllmGenerateForm>());
}

grpc::ServerUnaryReactor* VllmService::Embed(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return new EmbedCall(context, *request, response, next_id_, worker_, kVllmEmbedForm);
}

grpc::ServerUnaryReactor* VllmService::HealthCheck(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return AnswerUnary<engine_v1::HealthCheckRequest>(
      context, request, response,
      [this](
          const engine_v1::HealthCheckRequest&) -> absl::StatusOr<engine_v1::HealthCheckResponse> {
        engine_v1::HealthCheckResponse health;
        health.set_healthy(worker_.lifecycle->healthy());
        const absl::Status serving = worker_.lifecycle->CheckServing();
        health.set_message(serving.ok() ? (health.healthy() ? "healthy" : "the engine hangs")
                                        : std::string(serving.message()));
        return health;
      });
}

grpc::ServerUnaryReactor* VllmService::Abort(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  constexpr int kMaxIds = 1024;
  if (const absl::Status peer = worker_.peers.check->Require(*context); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  absl::StatusOr<CallInfo> info = ReadCallInfo(*context, worker_.peers);
  return AnswerUnary<engine_v1::AbortRequest>(
      context, request, response,
      [this, info](const engine_v1::AbortRequest& r) -> absl::StatusOr<engine_v1::AbortResponse> {
        RETURN_IF_ERROR(info.status());
        if (r.request_ids_size() > kMaxIds) {
          return protocol::FieldError("request_ids", absl::StrCat("has ", r.request_ids_size(),
                                                                  ", the limit is ", kMaxIds));
        }
        for (const std::string& id : r.request_ids()) {
          RETURN_IF_ERROR(protocol::ValidateId("request_ids", id));
        }
        for (const std::string& id : r.request_ids()) worker_.registry->Abort(info->tenant, id);
        return engine_v1::AbortResponse();
      });
}

grpc::ServerUnaryReactor* VllmService::GetModelInfo(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<engine_v1::GetModelInfoRequest>(
      context, request, response,
      [this](const engine_v1::GetModelInfoRequest&)
          -> absl::StatusOr<engine_v1::GetModelInfoResponse> {
        const Serving* const serving = worker_.serving->get();
        if (serving == nullptr) return worker_.lifecycle->CheckServing();
        return VllmModelInfo(serving->model, worker_.identity->model_path);
      });
}

grpc::ServerUnaryReactor* VllmService::GetServerInfo(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<engine_v1::GetServerInfoRequest>(
      context, request, response,
      [this](const engine_v1::GetServerInfoRequest&)
          -> absl::StatusOr<engine_v1::GetServerInfoResponse> {
        engine_v1::GetServerInfoResponse info =
            VllmServerInfo(worker_.load_board->Read(), worker_.clock->Elapsed() - start_);
        info.set_active_requests(static_cast<uint32_t>(worker_.registry->size()));
        return info;
      });
}

grpc::ServerUnaryReactor* VllmService::GetLoads(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  if (const absl::Status peer = CheckLoadPeer(*context, worker_.peers); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<engine_v1::GetLoadsRequest>(
      context, request, response,
      [this](const engine_v1::GetLoadsRequest& r) -> absl::StatusOr<engine_v1::GetLoadsResponse> {
        if (r.dp_rank() != 0) return protocol::FieldError("dp_rank", "there is rank 0 alone");
        return VllmLoads(worker_.load_board->Read(), worker_.clock->Now(),
                         std::string(common::Version()));
      });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* VllmService::GetTokenizer(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (const absl::Status peer = CheckInferencePeer(*context, worker_.peers); !peer.ok()) {
    return new common::RefusedStream<grpc::ByteBuffer>(peer);
  }
  return TokenizerCall::Start(*request, worker_.serving, worker_.text_pool);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* VllmService::SubscribeKvEvents(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (const absl::Status peer = worker_.peers.check->Require(*context); !peer.ok()) {
    return new common::RefusedStream<grpc::ByteBuffer>(peer);
  }
  return KvEventsCall::Start(*request, ReadCallInfo(*context, worker_.peers),
                             {.clock = worker_.clock,
                              .salt_key = worker_.salt_key,
                              .load_board = worker_.load_board,
                              .serving = worker_.serving,
                              .lifecycle = worker_.lifecycle});
}

}  // namespace continuo::server
