// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// The client's side of one Generate call over gRPC. Owns itself until gRPC is done with it.
class ClientStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public RelayClient {
 public:
  explicit ClientStream(OpenCalls* open) : open_(open) {}

  // Starts the relay. gRPC may call back from now on.
  void Start(std::shared_ptr<StreamRelay> relay);

  void Write(const v1::GenerateResponse& response) override;
  void Finish(const absl::Status& status, const RelayReport& report) override;
  void WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                 const RelayReport& report) override;

  void OnWriteDone(bool ok) override { relay_->OnWritten(ok); }
  void OnCancel() override { relay_->OnCancelled(); }
  void OnDone() override { delete this; }

 private:
  const OpenCalls::Call open_;
  std::shared_ptr<StreamRelay> relay_;
  grpc::ByteBuffer buffer_;  // The message of the write in flight.
};

// Ends a Generate call that was rejected before a relay was made. Owns itself.
class RejectedStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  RejectedStream(OpenCalls* open, const absl::Status& status);
  void OnDone() override { delete this; }

 private:
  const OpenCalls::Call open_;
};

}  // namespace continuo::gateway
