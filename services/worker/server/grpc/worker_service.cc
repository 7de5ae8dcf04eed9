// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/worker_service.h"

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/common/grpc/refused_stream.h"
#include "services/protocol/limits.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/grpc/unary_call.h"
#include "services/worker/server/grpc/watch_steps_call.h"
#include "services/worker/server/grpc/wire.h"
#include "services/worker/server/load/watch_load.h"
#include "services/worker/server/runtime/load_report.h"

namespace continuo::server {

grpc::ServerWriteReactor<grpc::ByteBuffer>* WorkerService::WatchLoad(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (const absl::Status peer = CheckLoadPeer(*context, worker_.peers); !peer.ok()) {
    return new common::RefusedStream<grpc::ByteBuffer>(peer);
  }
  return StartWatchLoad(*request, worker_.load_board);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* WorkerService::WatchSteps(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (const absl::Status peer = worker_.peers.check->Require(*context); !peer.ok()) {
    return new common::RefusedStream<grpc::ByteBuffer>(peer);
  }
  return WatchStepsCall::Start(*request, worker_.serving, worker_.lifecycle);
}

grpc::ServerUnaryReactor* WorkerService::Drain(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  if (const absl::Status peer = worker_.peers.check->Require(*context); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<v1::DrainRequest>(
      context, request, response,
      [this](const v1::DrainRequest& r) -> absl::StatusOr<v1::DrainResponse> {
        absl::Duration grace = worker_.drain_grace;
        if (r.has_grace()) {
          ASSIGN_OR_RETURN(grace,
                           protocol::ReadDuration("grace", r.grace(), protocol::kMaxDrainGrace));
        }
        v1::DrainResponse answer;
        answer.set_running_requests(
            static_cast<uint32_t>(worker_.lifecycle->BeginDrain(worker_.clock->Elapsed(), grace)));
        return answer;
      });
}

grpc::ServerUnaryReactor* WorkerService::Abort(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  if (const absl::Status peer = worker_.peers.check->Require(*context); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  absl::StatusOr<CallInfo> info = ReadCallInfo(*context, worker_.peers);
  return AnswerUnary<v1::AbortRequest>(
      context, request, response,
      [this, info](const v1::AbortRequest& r) -> absl::StatusOr<v1::AbortResponse> {
        RETURN_IF_ERROR(info.status());
        RETURN_IF_ERROR(protocol::ValidateId("request_id", r.request_id()));
        v1::AbortResponse answer;
        answer.set_aborted(worker_.registry->Abort(info->tenant, r.request_id()));
        return answer;
      });
}

grpc::ServerUnaryReactor* WorkerService::LoadAdapter(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  v1::LoadAdapterRequest message;
  absl::Status status = worker_.peers.check->Require(*context);
  if (status.ok() && request->Length() > kMaxShortRequestBytes) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "the request has ", request->Length(), " bytes, the limit is ", kMaxShortRequestBytes));
  }
  if (status.ok()) status = ParseRequest(*request, &message);
  if (status.ok()) status = worker_.lifecycle->CheckServing();
  if (!status.ok()) return common::EndUnary(context, status);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  worker_.serving->get()->adapters->Load(
      message.name(), message.path(),
      [reactor, response](const absl::StatusOr<ServedAdapters::Offer>& offer) {
        if (offer.ok()) {
          v1::LoadAdapterResponse answer;
          *answer.mutable_adapter() = ToProto(*offer);
          common::SerializeMessage(answer, response);
        }
        reactor->Finish(common::ToGrpcStatus(offer.status()));
      });
  return reactor;
}

grpc::ServerUnaryReactor* WorkerService::UnloadAdapter(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  if (const absl::Status peer = worker_.peers.check->Require(*context); !peer.ok()) {
    return common::EndUnary(context, peer);
  }
  return AnswerUnary<v1::UnloadAdapterRequest>(
      context, request, response,
      [this](const v1::UnloadAdapterRequest& r) -> absl::StatusOr<v1::UnloadAdapterResponse> {
        const Serving* const serving = worker_.serving->get();
        if (serving == nullptr) return worker_.lifecycle->CheckServing();
        RETURN_IF_ERROR(serving->adapters->Unload(r.name()));
        return v1::UnloadAdapterResponse();
      });
}

}  // namespace continuo::server
