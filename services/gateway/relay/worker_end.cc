// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/worker_end.h"

#include <string>

#include "services/protocol/error.h"

namespace continuo::gateway {

WorkerEnd ClassifyWorkerEnd(const absl::Status& status, bool has_summary) {
  if (has_summary) return WorkerEnd::kComplete;
  const bool has_reason = !protocol::ReasonOf(status).empty();
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
      return WorkerEnd::kLost;
    case absl::StatusCode::kUnavailable:
      return has_reason ? WorkerEnd::kDrained : WorkerEnd::kLost;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return has_reason ? WorkerEnd::kFinal : WorkerEnd::kFault;
    case absl::StatusCode::kResourceExhausted:
      // The next worker would only compute what the client does not read there either.
      return protocol::ReasonOf(status) == protocol::kReasonSlowReader ? WorkerEnd::kFinal
                                                                       : WorkerEnd::kOverloaded;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied: {
      const std::string reason = protocol::ReasonOf(status);
      return reason == protocol::kReasonPeerToken || reason == protocol::kReasonPeerName
                 ? WorkerEnd::kDrained
                 : WorkerEnd::kFinal;
    }
    default:
      return WorkerEnd::kFinal;
  }
}

}  // namespace continuo::gateway
