// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/call_cutter.h"

#include <grpc/grpc.h>

#include "services/protocol/error.h"

namespace continuo::server {

CallCutter::CallCutter(grpc::CallbackServerContext& context) : call_(context.c_call()) {
  grpc_call_ref(call_);
}

CallCutter::~CallCutter() { grpc_call_unref(call_); }

void CallCutter::Cut(const absl::Status& why) const {
  grpc_call_cancel_with_status(call_, static_cast<grpc_status_code>(why.code()),
                               protocol::MessageWithReason(why).c_str(), nullptr);
}

}  // namespace continuo::server
