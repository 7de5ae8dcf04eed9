// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/worker_service.h"

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/grpc/unary_call.h"
#include "services/worker/server/grpc/watch_load_call.h"
#include "services/worker/server/grpc/watch_steps_call.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {
namespace {

absl::StatusOr<absl::Duration> ReadGrace(const v1::DrainRequest& request,
                                         absl::Duration otherwise) {
  if (!request.has_grace()) return otherwise;
  const auto& d = request.grace();
  if (d.seconds() < 0 || d.nanos() < 0 || d.nanos() > 999'999'999) {
    return protocol::FieldError("grace", "is negative or no valid Duration");
  }
  const absl::Duration grace = absl::Seconds(d.seconds()) + absl::Nanoseconds(d.nanos());
  if (grace > kMaxDrainGrace) {
    return protocol::FieldError("grace",
                                absl::StrCat(absl::FormatDuration(grace), " is above the limit of ",
                                             absl::FormatDuration(kMaxDrainGrace)));
  }
  return grace;
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* WorkerService::WatchLoad(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  return WatchLoadCall::Start(*request, &core_->load_board());
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* WorkerService::WatchSteps(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  return WatchStepsCall::Start(*request, core_);
}

grpc::ServerUnaryReactor* WorkerService::Drain(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  const bool trusted = IsTrustedPeer(*context, core_->identity().tls);
  return AnswerUnary<v1::DrainRequest>(
      context, request, response,
      [this, trusted](const v1::DrainRequest& r) -> absl::StatusOr<v1::DrainResponse> {
        if (!trusted) {
          return absl::PermissionDeniedError("a certificate of the worker's CA is needed to drain");
        }
        ASSIGN_OR_RETURN(const absl::Duration grace, ReadGrace(r, core_->identity().drain_grace));
        v1::DrainResponse answer;
        answer.set_running_requests(
            static_cast<uint32_t>(core_->lifecycle().BeginDrain(core_->clock().Elapsed(), grace)));
        return answer;
      });
}

grpc::ServerUnaryReactor* WorkerService::Abort(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  absl::StatusOr<CallInfo> info = ReadCallInfo(*context, core_->identity().tls);
  return AnswerUnary<v1::AbortRequest>(
      context, request, response,
      [this, info](const v1::AbortRequest& r) -> absl::StatusOr<v1::AbortResponse> {
        RETURN_IF_ERROR(info.status());
        RETURN_IF_ERROR(ValidateId(r.request_id(), "request_id"));
        v1::AbortResponse answer;
        answer.set_aborted(core_->registry().Abort(info->tenant, r.request_id()));
        return answer;
      });
}

}  // namespace continuo::server
