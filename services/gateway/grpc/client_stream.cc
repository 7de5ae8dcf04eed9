// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/client_stream.h"

#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"

namespace continuo::gateway {

void ClientStream::Start(std::shared_ptr<StreamRelay> relay) {
  relay_ = std::move(relay);
  relay_->Start();
}

void ClientStream::Write(const v1::GenerateResponse& response) {
  common::SerializeMessage(response, &buffer_);
  StartWrite(&buffer_);
}

void ClientStream::Finish(const absl::Status& status, const RelayReport& /*report*/) {
  ServerWriteReactor::Finish(common::ToGrpcStatus(status));
}

void ClientStream::WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                             const RelayReport& /*report*/) {
  common::SerializeMessage(response, &buffer_);
  StartWriteAndFinish(&buffer_, grpc::WriteOptions(), common::ToGrpcStatus(status));
}

RejectedStream::RejectedStream(OpenCalls* open, const absl::Status& status) : open_(open) {
  Finish(common::ToGrpcStatus(status));
}

}  // namespace continuo::gateway
