// SPDX-License-Identifier: Apache-2.0
#pragma once

// absl::Status to grpc::Status and back, payloads and google.rpc details included.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace continuo::common {

// The same code and message; payloads become a google.rpc.Status in error_details. Trailers have
// to stay below 8 KiB, above which stock clients drop the call: a message over 1 KiB is cut at a
// character, details over 3 KiB are left out.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The other way. Details that do not parse are ignored; where there are none, a reason may stand
// before the message (protocol::MessageWithReason). A code outside the known ones is UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace continuo::common
