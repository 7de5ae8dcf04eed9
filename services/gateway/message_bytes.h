// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages of calls that arrive and leave as bytes.

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/check.h"

namespace continuo::gateway {

// A message out of the bytes of a call. INVALID_ARGUMENT where they are none.
template <typename Message>
absl::StatusOr<Message> ParseMessage(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    return absl::InvalidArgumentError(
        "the request does not parse: it is cut off, or has text that is not UTF-8");
  }
  return message;
}

template <typename Message>
void SerializeMessage(const Message& message, grpc::ByteBuffer* bytes) {
  bytes->Clear();
  bool own_buffer;
  CONTINUO_CHECK(grpc::SerializationTraits<Message>::Serialize(message, bytes, &own_buffer).ok());
}

}  // namespace continuo::gateway
