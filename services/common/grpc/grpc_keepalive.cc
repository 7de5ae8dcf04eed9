// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/grpc_keepalive.h"

#include <grpc/grpc.h>

namespace continuo::common {

void SetKeepalive(absl::Duration time, absl::Duration timeout, grpc::ChannelArguments& arguments) {
  const auto timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(time)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout_ms);
  arguments.SetInt(kPingTimeoutMsArgument, timeout_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace continuo::common
