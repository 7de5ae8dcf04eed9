// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/error.h"
#include "services/worker/server/grpc/wire.h"
#include "services/worker/server/session/work_pool.h"

namespace continuo::server {

// Largest request of a method that is answered on gRPC's own thread.
inline constexpr size_t kMaxShortRequestBytes = 64 << 10;
// Memory that a call takes beside its request's bytes.
inline constexpr size_t kUnaryCallBytes = 4 << 10;

// Parses the request and answers it.
template <typename RequestMessage, typename Function>
void FinishUnary(grpc::ServerUnaryReactor* reactor, const grpc::ByteBuffer& request,
                 grpc::ByteBuffer* response, Function& answer) {
  RequestMessage message;
  absl::Status status = ParseRequest(request, &message);
  if (status.ok()) {
    auto result = answer(message);
    status = result.status();
    if (status.ok()) common::SerializeMessage(*result, response);
  }
  reactor->Finish(common::ToGrpcStatus(status));
}

// Answers a unary method with a function from request to response that returns at once.
template <typename RequestMessage, typename Function>
grpc::ServerUnaryReactor* AnswerUnary(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                      Function answer) {
  if (request->Length() > kMaxShortRequestBytes) {
    return common::EndUnary(context, absl::InvalidArgumentError(absl::StrCat(
                                         "the request has ", request->Length(),
                                         " bytes, the limit is ", kMaxShortRequestBytes)));
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishUnary<RequestMessage>(reactor, *request, response, answer);
  return reactor;
}

// Answers a unary method with a function that takes time with the request's length: on `pool`, or
// RESOURCE_EXHAUSTED (reason OVERLOADED) where `budget` has no room for the request.
template <typename RequestMessage, typename Function>
grpc::ServerUnaryReactor* AnswerText(WorkPool& pool, ByteBudget& budget,
                                     grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                     Function answer) {
  const size_t size = request->Length();
  ByteBudget::Share share = budget.Take(static_cast<int64_t>(size + kUnaryCallBytes));
  if (!share) {
    return common::EndUnary(
        context, protocol::OverloadedError(absl::StrCat("over ", budget.limit(),
                                                        " bytes of such requests are worked on")));
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  pool.Post(
      [reactor, bytes = *request, response, share = std::move(share),
       answer = std::move(answer)]() mutable {
        const ByteBudget::Share held = std::move(share);
        FinishUnary<RequestMessage>(reactor, bytes, response, answer);
      },
      size);
  return reactor;
}

}  // namespace continuo::server
