// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/statusor.h"
#include "services/common/grpc_status.h"
#include "services/worker/server/wire.h"
#include "services/worker/server/work_pool.h"

namespace continuo {

// A unary method as a function from request to response, which may block. Runs on `pool`, or at
// once where that is null.
template <typename RequestMessage, typename Function>
grpc::ServerUnaryReactor* AnswerUnary(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                      WorkPool* pool, Function answer) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  auto run = [reactor, bytes = *request, response, answer = std::move(answer)]() mutable {
    RequestMessage message;
    absl::Status status = ParseRequest(bytes, &message);
    if (status.ok()) {
      auto result = answer(message);
      status = result.status();
      if (status.ok()) *response = Serialize(*result);
    }
    reactor->Finish(ToGrpcStatus(status));
  };
  if (pool == nullptr) {
    run();
  } else {
    const size_t size = request->Length();
    pool->Post(std::move(run), size);
  }
  return reactor;
}

}  // namespace continuo
