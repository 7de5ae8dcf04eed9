// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "services/worker/server/grpc/wire.h"
#include "services/worker/server/grpc/worker_core.h"

namespace continuo::server {

// Largest request of a method that is answered on gRPC's own thread.
inline constexpr size_t kMaxShortRequestBytes = 64 << 10;
// What a call takes beside its request's bytes.
inline constexpr size_t kUnaryCallBytes = 4 << 10;

inline grpc::ServerUnaryReactor* RefuseUnary(grpc::CallbackServerContext* context,
                                             const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(common::ToGrpcStatus(status));
  return reactor;
}

// Parses the request and answers it.
template <typename RequestMessage, typename Function>
void FinishUnary(grpc::ServerUnaryReactor* reactor, const grpc::ByteBuffer& request,
                 grpc::ByteBuffer* response, Function& answer) {
  RequestMessage message;
  absl::Status status = ParseRequest(request, &message);
  if (status.ok()) {
    auto result = answer(message);
    status = result.status();
    if (status.ok()) *response = Serialize(*result);
  }
  reactor->Finish(common::ToGrpcStatus(status));
}

// A unary method as a function from request to response that returns at once.
template <typename RequestMessage, typename Function>
grpc::ServerUnaryReactor* AnswerUnary(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                      Function answer) {
  if (request->Length() > kMaxShortRequestBytes) {
    return RefuseUnary(context, absl::InvalidArgumentError(
                                    absl::StrCat("the request has ", request->Length(),
                                                 " bytes, the limit is ", kMaxShortRequestBytes)));
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishUnary<RequestMessage>(reactor, *request, response, answer);
  return reactor;
}

// Likewise one that takes time with the request's length: answered on the text pool,
// RESOURCE_EXHAUSTED (reason OVERLOADED) where the text budget has no room for it.
template <typename RequestMessage, typename Function>
grpc::ServerUnaryReactor* AnswerText(WorkerCore* core, grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                     Function answer) {
  const size_t size = request->Length();
  ByteBudget::Share share = core->text_budget().Take(static_cast<int64_t>(size + kUnaryCallBytes));
  if (!share) {
    return RefuseUnary(
        context, protocol::OverloadedError(absl::StrCat("over ", core->text_budget().limit(),
                                                        " bytes of such requests are worked on")));
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  core->text_pool().Post(
      [reactor, bytes = *request, response, share = std::move(share),
       answer = std::move(answer)]() mutable {
        const ByteBudget::Share held = std::move(share);
        FinishUnary<RequestMessage>(reactor, bytes, response, answer);
      },
      size);
  return reactor;
}

}  // namespace continuo::server
