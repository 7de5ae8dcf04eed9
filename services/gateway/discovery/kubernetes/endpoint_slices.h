// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace continuo::gateway {

// The EndpointSlices of one Service, as the API of Kubernetes lists and watches them
// (discovery.k8s.io/v1), and the addresses in them. Not thread-safe.
class EndpointSlices {
 public:
  // `port` is the number that each address gets, or the name of one of the Service's ports.
  explicit EndpointSlices(std::string port);

  // A page tells where its list and the watch after it go on.
  struct Page {
    std::string resource_version;  // Where a watch goes on.
    std::string next;              // The token of the next page; empty after the last one.
  };
  // Takes one page of a list; the first one drops what was known. Any text may be passed:
  // INVALID_ARGUMENT says what it lacks.
  absl::StatusOr<Page> TakePage(std::string_view text, bool first);

  // Takes one event of a watch and returns the resource version that it leads to. OUT_OF_RANGE
  // tells that the watch is too old, so that a list is needed; UNAVAILABLE is another error of the
  // server's. Any text may be passed: INVALID_ARGUMENT says what it lacks.
  absl::StatusOr<std::string> TakeEvent(std::string_view text);

  // The addresses (host:port, sorted, each once) of the endpoints that are ready. Those of IPv6
  // count only where there are none of IPv4.
  std::vector<std::string> Addresses() const;

 private:
  struct Slice {
    bool v6 = false;
    std::vector<std::string> addresses;
  };
  void Take(const nlohmann::json& slice, bool deleted);

  const std::string port_;
  std::map<std::string, Slice, std::less<>> slices_;  // By their names.
};

}  // namespace continuo::gateway
