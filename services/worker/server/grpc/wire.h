// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace continuo::server {

// Parses a client's request. It is served as a whole or rejected, so unknown fields are rejected by
// name.
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request);

}  // namespace continuo::server
