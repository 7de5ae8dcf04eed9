// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "services/worker/server/session/convert.h"

namespace continuo::server {

// True if this peer may speak for others: it has a certificate of the configured CA, or TLS is off.
bool IsTrustedPeer(const grpc::CallbackServerContext& context, bool tls);

// Reads a call's tenant, request id, deadline, and whether it is a migration. Only a trusted peer
// is believed about the tenant and the migration (exactness: migrations-first); calls of others
// belong to the tenant "default". INVALID_ARGUMENT names the metadata key. The caller sets `now`
// and `random`.
absl::StatusOr<CallInfo> ReadCallInfo(const grpc::CallbackServerContext& context, bool tls);

// The header `traceparent` as it was sent; "" if there is none.
std::string TraceparentOf(const grpc::CallbackServerContext& context);

}  // namespace continuo::server
