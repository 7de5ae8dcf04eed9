// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts the messages of calls that arrive and leave as bytes.

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/wire_check.h"

namespace continuo::gateway {

// About how much memory a message and its bytes take. INVALID_ARGUMENT if they have more than
// kMaxValues, whether or not they are a message.
template <typename Message>
absl::StatusOr<int64_t> MemoryOf(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  grpc::ProtoBufferReader reader(&copy);
  const protocol::WireCounts counts = protocol::CountOnWire(&reader, *Message::descriptor());
  RETURN_IF_ERROR(protocol::CheckNumValues(counts.values));
  return protocol::MemoryOf(static_cast<int64_t>(bytes.Length()), counts);
}

// Parses the bytes of a call. INVALID_ARGUMENT if they are no message, naming a field whose text is
// not UTF-8, or if MemoryOf rejects them. `memory`, if given, gets the result of MemoryOf.
template <typename Message>
absl::StatusOr<Message> ParseMessage(const grpc::ByteBuffer& bytes, int64_t* memory = nullptr) {
  ASSIGN_OR_RETURN(const int64_t num_bytes, MemoryOf<Message>(bytes));
  if (memory != nullptr) *memory = num_bytes;
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    grpc::Slice all;
    if (!bytes.DumpToSingleSlice(&all).ok()) all = grpc::Slice();
    return protocol::ExplainParseFailure({reinterpret_cast<const char*>(all.begin()), all.size()},
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
