// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/message_bytes.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "services/base/check.h"
#include "services/protocol/wire_check.h"

namespace continuo::common {
namespace {

using Traits = grpc::SerializationTraits<google::protobuf::Message>;

}  // namespace

absl::StatusOr<int64_t> MemoryOf(const grpc::ByteBuffer& bytes,
                                 const google::protobuf::Descriptor& type) {
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  grpc::ProtoBufferReader reader(&copy);
  const protocol::WireCounts counts = protocol::CountOnWire(&reader, type);
  RETURN_IF_ERROR(protocol::CheckNumValues(counts.values));
  return protocol::MemoryOf(static_cast<int64_t>(bytes.Length()), counts);
}

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message,
                          int64_t* memory) {
  ASSIGN_OR_RETURN(const int64_t num_bytes, MemoryOf(bytes, *message->GetDescriptor()));
  if (memory != nullptr) *memory = num_bytes;
  grpc::ByteBuffer copy(bytes);  // shares the bytes
  if (Traits::Deserialize(&copy, message).ok()) return absl::OkStatus();
  grpc::Slice all;
  if (!bytes.DumpToSingleSlice(&all).ok()) all = grpc::Slice();
  return protocol::ExplainParseFailure({reinterpret_cast<const char*>(all.begin()), all.size()},
                                       *message->GetDescriptor());
}

void SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  bytes->Clear();
  bool own_buffer = false;
  CONTINUO_CHECK(Traits::Serialize(message, bytes, &own_buffer).ok());
}

}  // namespace continuo::common
