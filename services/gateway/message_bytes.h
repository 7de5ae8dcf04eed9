// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages of calls that arrive and leave as bytes.

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/common/wire_check.h"

namespace continuo::gateway {

// A message out of the bytes of a call, with CountValues of it where asked for. INVALID_ARGUMENT
// where they are none, naming the field whose text is not UTF-8, or have more than kMaxValues.
template <typename Message>
absl::StatusOr<Message> ParseMessage(const grpc::ByteBuffer& bytes, int64_t* num_values = nullptr) {
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  {
    grpc::ProtoBufferReader reader(&copy);
    const int64_t count = CountValues(&reader, *Message::descriptor());
    RETURN_IF_ERROR(CheckNumValues(count));
    if (num_values != nullptr) *num_values = count;
  }
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
