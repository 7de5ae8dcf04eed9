// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/wire.h"

#include "services/base/status_macros.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/validate_request.h"

namespace continuo::server {

absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request) {
  RETURN_IF_ERROR(common::ParseMessage(bytes, request));
  return protocol::RejectUnknownFields(*request);
}

}  // namespace continuo::server
