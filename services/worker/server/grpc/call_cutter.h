// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/status.h"

namespace continuo::server {

// Ends a call at once, whatever it waits for: ServerContext::TryCancel() for threads that cannot
// know whether the call still exists. Keeps gRPC's call object alive. Thread-safe.
class CallCutter {
 public:
  // Called while the call is open.
  explicit CallCutter(grpc::CallbackServerContext& context);
  ~CallCutter();
  CallCutter(const CallCutter&) = delete;
  CallCutter& operator=(const CallCutter&) = delete;

  // Drops queued messages and ends writes in flight; the reactor gets OnCancel and has to finish.
  // The client gets the code and message of `why`, past all flow control. Details cannot travel
  // here, so the reason stands before the message (MessageWithReason). Does nothing if the call has
  // ended. The reactor's callbacks may run inside.
  void Cut(const absl::Status& why) const;

 private:
  grpc_call* const call_;
};

}  // namespace continuo::server
