// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace continuo::server {

// A received message. The services take bytes and parse them here, so that a request which is no
// message gets INVALID_ARGUMENT with the field's name, and one of more than kMaxValues before it is
// parsed.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// The same of what a client asks for: it is done as a whole or refused, so unknown fields are
// refused by name.
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request);

grpc::ByteBuffer Serialize(const google::protobuf::Message& response);

}  // namespace continuo::server
