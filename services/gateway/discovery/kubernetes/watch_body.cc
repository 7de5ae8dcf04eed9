// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes/watch_body.h"

#include "services/base/status_macros.h"

namespace continuo::gateway {

absl::Status WatchBody::Take(std::string_view part) {
  while (!part.empty()) {
    const size_t end = part.find('\n');
    const std::string_view piece = part.substr(0, end);
    if (piece.size() > max_event_bytes_ - line_.size()) {
      return absl::UnavailableError("an event of EndpointSlices is too large");
    }
    line_.append(piece);
    if (end == std::string_view::npos) break;
    part.remove_prefix(end + 1);
    ASSIGN_OR_RETURN(version_, slices_->TakeEvent(line_));
    line_.clear();
  }
  return absl::OkStatus();
}

}  // namespace continuo::gateway
