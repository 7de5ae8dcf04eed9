// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pings that find a connection that broke without a word.

#include <grpcpp/support/channel_arguments.h>

#include "absl/time/time.h"

namespace continuo::common {

// How long the answer to a ping may take, in milliseconds. In newer gRPC, such as 1.68,
// GRPC_ARG_KEEPALIVE_TIMEOUT_MS has no effect of its own and this, a minute unless set, decides
// (github.com/grpc/grpc/pull/39239). 1.51 does not know it.
inline constexpr char kPingTimeoutMsArgument[] = "grpc.http2.ping_timeout_ms";

// A channel that heard nothing for `time` pings; without an answer within `timeout` its connection
// has ended. In newer gRPC that is so for its pings of other purposes, too, which it sends at any
// time. It goes on pinging while calls only receive, where gRPC's default is to stop after two.
void SetKeepalive(absl::Duration time, absl::Duration timeout, grpc::ChannelArguments& arguments);

}  // namespace continuo::common
