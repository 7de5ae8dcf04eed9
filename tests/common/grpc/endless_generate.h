// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include "continuo/v1/inference.pb.h"

namespace continuo::common {

// A call of Generate that goes on until it is cancelled. Owns itself until gRPC is done with it.
struct EndlessGenerate : grpc::ServerWriteReactor<v1::GenerateResponse> {
  EndlessGenerate() { StartSendInitialMetadata(); }
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }
};

}  // namespace continuo::common
