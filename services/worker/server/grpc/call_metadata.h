// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "services/worker/server/session/convert.h"

namespace continuo::server {

// Whether this peer may speak for others: it proved to be of the configured CA, or TLS is off.
bool IsTrustedPeer(const grpc::CallbackServerContext& context, bool tls);

// Tenant, request id, move and deadline of a call. Peers are believed what they say of tenant and
// move where they proved to be of the configured CA, or where TLS is off (exactness:
// migrations-first); others belong to the tenant "default". INVALID_ARGUMENT names the metadata
// key. `now` and `random` are the caller's to set.
absl::StatusOr<CallInfo> ReadCallInfo(const grpc::CallbackServerContext& context, bool tls);

// `traceparent` as it was sent, "" for none.
std::string TraceparentOf(const grpc::CallbackServerContext& context);

}  // namespace continuo::server
