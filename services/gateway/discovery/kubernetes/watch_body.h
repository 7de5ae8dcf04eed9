// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/discovery/kubernetes/endpoint_slices.h"

namespace continuo::gateway {

// The body of a watch of EndpointSlices as it comes: each line is an event. Not thread-safe.
class WatchBody {
 public:
  static constexpr size_t kMaxEventBytes = size_t{4} << 20;

  // `slices` outlives it and takes the events.
  explicit WatchBody(EndpointSlices* slices, size_t max_event_bytes = kMaxEventBytes)
      : slices_(slices), max_event_bytes_(max_event_bytes) {}

  // Takes the next bytes. The errors are those of EndpointSlices::TakeEvent, and UNAVAILABLE for an
  // event that is too large; events before the one that fails have been taken.
  absl::Status Take(std::string_view part);

  // The resource version that the last event led to; empty before the first one.
  const std::string& version() const { return version_; }

 private:
  EndpointSlices* const slices_;
  const size_t max_event_bytes_;
  std::string line_;  // As far as it has come.
  std::string version_;
};

}  // namespace continuo::gateway
