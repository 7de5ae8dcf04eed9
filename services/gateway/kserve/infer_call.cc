// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/infer_call.h"

#include <utility>

#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/grpc/keyed_call.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

absl::StatusOr<InferCall> Parse(const grpc::ByteBuffer& bytes, GenerateService* service,
                                ClientCall* call) {
  inference::ModelInferRequest request;
  RETURN_IF_ERROR(common::ParseMessage(bytes, &request, &call->num_bytes));
  ASSIGN_OR_RETURN(InferCall infer, ReadInferRequest(request));
  RETURN_IF_ERROR(TakeIdentity(*service, call, &infer.request));
  return infer;
}

}  // namespace

absl::StatusOr<InferCall> ParseInferCall(const grpc::ByteBuffer& bytes, GenerateService* service,
                                         ClientCall* call) {
  absl::StatusOr<InferCall> infer = Parse(bytes, service, call);
  if (!infer.ok()) service->OnRejected("", "", infer.status());
  return infer;
}

grpc::ServerUnaryReactor* InferUnary::Start(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer& bytes,
                                            grpc::ByteBuffer* response, GenerateService* service,
                                            OpenCalls* open_calls) {
  auto* const call = new InferUnary(response, open_calls);
  if (const absl::Status status = call->Open(context, bytes, service); !status.ok()) {
    call->End(status);
  } else {
    call->relay_->Start();
  }
  return call;
}

absl::Status InferUnary::Open(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
                              GenerateService* service) {
  ClientCall call = CallOf(*context, bytes);
  // Bytes without a valid key are not parsed.
  if (const auto tenant = service->Authenticate(call); !tenant.ok()) {
    service->OnRejected("", "", tenant.status());
    return tenant.status();
  }
  ASSIGN_OR_RETURN(call_, ParseInferCall(bytes, service, &call));
  if (call_.stream) {
    const absl::Status status =
        protocol::FieldError(kStream,
                             "gives several responses, and ModelInfer has one; there is "
                             "ModelStreamInfer");
    service->OnRejected(call_.request.model(), "", status);
    return status;
  }
  absl::StatusOr<std::shared_ptr<StreamRelay>> relay =
      service->Open(call, std::exchange(call_.request, {}), this);
  if (!relay.ok()) return WithClientsName(call_, relay.status());
  answer_.emplace(call_);
  relay_ = *std::move(relay);
  return absl::OkStatus();
}

void InferUnary::Write(const v1::GenerateResponse& response) {
  // It is one, since it is collected.
  if (const auto answer = answer_->Add(response); answer.has_value()) {
    common::SerializeMessage(*answer, response_);
    has_answer_ = true;
  }
  relay_->OnWritten(true);
}

void InferUnary::Finish(const absl::Status& status, const RelayReport& /*report*/) {
  End(status.ok() && !has_answer_ ? absl::InternalError("the answer is missing")
                                  : WithClientsName(call_, status));
}

void InferUnary::End(const absl::Status& status) {
  ServerUnaryReactor::Finish(common::ToGrpcStatus(status));
}

void InferUnary::OnCancel() {
  if (relay_ != nullptr) relay_->OnCancelled();
}

}  // namespace continuo::gateway::kserve
