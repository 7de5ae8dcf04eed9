// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace continuo::server {

// Parses a received message. The services take bytes and parse them here, so that bytes which are
// no message get INVALID_ARGUMENT with the field's name, and a message of more than kMaxValues
// values is rejected before it is parsed.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// Parses a client's request. It is served as a whole or rejected, so unknown fields are rejected by
// name.
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request);

grpc::ByteBuffer Serialize(const google::protobuf::Message& response);

}  // namespace continuo::server
