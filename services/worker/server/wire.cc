// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/wire.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <string>
#include <vector>

#include "services/base/check.h"
#include "services/worker/server/validate.h"
#include "services/worker/server/wire_check.h"

namespace continuo {

absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request) {
  grpc::ByteBuffer consumed = bytes;  // shares the bytes
  const grpc::Status status =
      grpc::SerializationTraits<google::protobuf::Message>::Deserialize(&consumed, request);
  if (status.ok()) return RefuseUnknownFields(*request);
  std::vector<grpc::Slice> slices;
  std::string joined;
  if (bytes.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      joined.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  return ExplainParseFailure(joined, *request->GetDescriptor());
}

grpc::ByteBuffer Serialize(const google::protobuf::Message& response) {
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status =
      grpc::SerializationTraits<google::protobuf::Message>::Serialize(response, &bytes, &own);
  CONTINUO_CHECK(status.ok());
  return bytes;
}

}  // namespace continuo
