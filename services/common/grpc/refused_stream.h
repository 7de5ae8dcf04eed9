// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo::common {

// The stream of a caller that may not have it: it ends at once. Owns itself until gRPC is done
// with it.
template <typename Response>
class RefusedStream : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }

 private:
  ~RefusedStream() override = default;
};

}  // namespace continuo::common
