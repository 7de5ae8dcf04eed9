// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/status.h"

namespace continuo::server {

// Ends a call at once, whatever it waits for. ServerContext::TryCancel() for threads that cannot
// know whether the call still is: it holds on to gRPC's call object. Thread-safe.
class CallCutter {
 public:
  // While the call is open.
  explicit CallCutter(grpc::CallbackServerContext& context);
  ~CallCutter();
  CallCutter(const CallCutter&) = delete;
  CallCutter& operator=(const CallCutter&) = delete;

  // What is queued is dropped; writes in flight end, the reactor gets OnCancel and has to finish.
  // The client gets code and message of `why`, past all flow control; no details, so the reason
  // stands before the message (MessageWithReason). Nothing happens where the call has ended. The
  // reactor's callbacks may run inside.
  void Cut(const absl::Status& why) const;

 private:
  grpc_call* const call_;
};

}  // namespace continuo::server
