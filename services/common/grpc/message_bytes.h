// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/status_macros.h"

// Converts the messages of calls that arrive and leave as bytes. Services take bytes and parse them
// here, so that bytes which are no message get INVALID_ARGUMENT with the field's name, and a
// message of more than kMaxValues values is rejected before it is parsed.
namespace continuo::common {

// Returns about how much memory a message of this type and its bytes take. INVALID_ARGUMENT if they
// have more than kMaxValues values, whether or not they are a message.
absl::StatusOr<int64_t> MemoryOf(const grpc::ByteBuffer& bytes,
                                 const google::protobuf::Descriptor& type);

// Parses the bytes of a call. INVALID_ARGUMENT if they are no message, naming a field whose text is
// not UTF-8, or if MemoryOf rejects them. `memory`, if given, gets the result of MemoryOf.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message,
                          int64_t* memory = nullptr);

template <typename Message>
absl::StatusOr<Message> ParseMessage(const grpc::ByteBuffer& bytes, int64_t* memory = nullptr) {
  Message message;
  RETURN_IF_ERROR(ParseMessage(bytes, &message, memory));
  return message;
}

// Replaces the contents of `bytes`.
void SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes);

}  // namespace continuo::common
