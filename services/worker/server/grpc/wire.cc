// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/wire.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/validate_request.h"
#include "services/protocol/wire_check.h"

namespace continuo::server {

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  grpc::ByteBuffer consumed = bytes;  // shares the bytes
  {
    grpc::ProtoBufferReader reader(&consumed);
    RETURN_IF_ERROR(
        protocol::CheckNumValues(protocol::CountOnWire(&reader, *message->GetDescriptor()).values));
  }
  const grpc::Status status =
      grpc::SerializationTraits<google::protobuf::Message>::Deserialize(&consumed, message);
  if (status.ok()) return absl::OkStatus();
  grpc::Slice all;
  if (!bytes.DumpToSingleSlice(&all).ok()) all = grpc::Slice();
  return protocol::ExplainParseFailure({reinterpret_cast<const char*>(all.begin()), all.size()},
                                       *message->GetDescriptor());
}

absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request) {
  RETURN_IF_ERROR(ParseMessage(bytes, request));
  return protocol::RejectUnknownFields(*request);
}

grpc::ByteBuffer Serialize(const google::protobuf::Message& response) {
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status =
      grpc::SerializationTraits<google::protobuf::Message>::Serialize(response, &bytes, &own);
  CONTINUO_CHECK(status.ok());
  return bytes;
}

}  // namespace continuo::server
