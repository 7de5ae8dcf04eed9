// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "services/common/trust/peer_check.h"
#include "services/worker/server/session/convert.h"

namespace continuo::server {

// Tells who may call a worker. Outlives the services.
struct PeerPolicy {
  common::PeerCheck* check;
  // Strangers may call InferenceService, too, as the tenant "default".
  bool open_inference = false;
};

// An error where this peer may not call InferenceService, or WatchLoad: names or tokens are
// configured, and it has none of them.
absl::Status CheckInferencePeer(const grpc::CallbackServerContext& context,
                                const PeerPolicy& peers);
absl::Status CheckLoadPeer(const grpc::CallbackServerContext& context, const PeerPolicy& peers);
// True if CheckLoadPeer finds no error. A peer that may not is not counted as refused.
bool MayReadLoad(const grpc::CallbackServerContext& context, const PeerPolicy& peers);

// Reads a call's tenant, request id, deadline, and whether it is a migration. Only a peer of the
// fleet is believed about the tenant, the migration, the time and the body (exactness:
// migrations-first); calls of others belong to the tenant "default". Errors are those of
// CheckInferencePeer; INVALID_ARGUMENT names the metadata key. The caller sets `now` and `random`.
absl::StatusOr<CallInfo> ReadCallInfo(const grpc::CallbackServerContext& context,
                                      const PeerPolicy& peers);

// The header `traceparent` as it was sent; "" if there is none.
std::string TraceparentOf(const grpc::CallbackServerContext& context);

}  // namespace continuo::server
