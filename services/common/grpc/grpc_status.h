// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts absl::Status to grpc::Status and back, including payloads as google.rpc details.

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace continuo::common {

// Keeps code and message; payloads become a google.rpc.Status in error_details. Stock clients drop
// a call whose trailers are over 8 KiB, so a message over 1 KiB is cut at a character, and details
// over 3 KiB are left out.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The status's message as ToGrpcStatus has it, for protocols that tell errors in their own
// messages.
std::string MessageOnWire(const absl::Status& status);

// Does the inverse. Details that do not parse are ignored; where there are none, the reason is read
// from the front of the message (protocol::MessageWithReason). An unknown code becomes UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace continuo::common
