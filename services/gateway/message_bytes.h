// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages of calls that arrive and leave as bytes.

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/check.h"
#include "services/common/wire_check.h"

namespace continuo::gateway {

// A message out of the bytes of a call. INVALID_ARGUMENT where they are none; it names the field
// whose text is not UTF-8.
template <typename Message>
absl::StatusOr<Message> ParseMessage(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    grpc::Slice all;
    if (!bytes.DumpToSingleSlice(&all).ok()) all = grpc::Slice();
    return ExplainParseFailure({reinterpret_cast<const char*>(all.begin()), all.size()},
                               *Message::descriptor());
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
