// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway {

// The call as the transport-independent code sees it. The context outlives the result.
ClientCall CallOf(const grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes);

}  // namespace continuo::gateway
