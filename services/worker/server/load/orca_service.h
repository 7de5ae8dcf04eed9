// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "services/worker/server/lifetime/load_board.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace continuo::server {

// The out-of-band reports of ORCA (gRFC A51): the load board's, as MakeOrcaReport tells them.
class OrcaService
    : public xds::service::orca::v3::OpenRcaService::WithRawCallbackMethod_StreamCoreMetrics<
          xds::service::orca::v3::OpenRcaService::Service> {
 public:
  using CheckPeer = std::function<absl::Status(const grpc::CallbackServerContext&)>;

  // `check` is an error where a peer may not read the load. `board` outlives the service.
  OrcaService(CheckPeer check, LoadBoard* board) : check_(std::move(check)), board_(board) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamCoreMetrics(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

 private:
  const CheckPeer check_;
  LoadBoard* const board_;
};

}  // namespace continuo::server
