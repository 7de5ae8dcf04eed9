// SPDX-License-Identifier: Apache-2.0
#pragma once

// Keepalive pings, which find connections that broke without a FIN or RST.

#include <grpcpp/support/channel_arguments.h>

#include "absl/time/time.h"

namespace continuo::common {

// The channel argument for how long the answer to a ping may take, in milliseconds. Newer gRPC,
// such as 1.68, uses it (a minute unless set) and ignores GRPC_ARG_KEEPALIVE_TIMEOUT_MS
// (github.com/grpc/grpc/pull/39239); gRPC 1.51 does not know it.
inline constexpr char kPingTimeoutMsArgument[] = "grpc.http2.ping_timeout_ms";

// Makes a channel ping after `time` without data, and close the connection when no answer arrives
// within `timeout`. Newer gRPC applies the timeout to its pings for other purposes, too, which it
// sends at any time. The channel goes on pinging while calls only receive; gRPC's default is to
// stop after two pings.
void SetKeepalive(absl::Duration time, absl::Duration timeout, grpc::ChannelArguments& arguments);

}  // namespace continuo::common
