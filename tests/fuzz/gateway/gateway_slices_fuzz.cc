// SPDX-License-Identifier: Apache-2.0
// Any text as a page of a list and as an event of a watch of EndpointSlices is an error, or gives
// addresses in order, each once, that are the same when it comes again.
//
// Lines are pages (those that begin with '!' are the first of a list) and events in turn.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/gateway/discovery/kubernetes/endpoint_slices.h"

namespace continuo::gateway {
namespace {

bool IsExpected(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kOutOfRange ||
         code == absl::StatusCode::kUnavailable;
}

void CheckAddresses(const EndpointSlices& slices, std::string_view port) {
  const std::vector<std::string> addresses = slices.Addresses();
  CONTINUO_CHECK(std::ranges::is_sorted(addresses) &&
                 std::ranges::adjacent_find(addresses) == addresses.end());
  for (const std::string& address : addresses) CONTINUO_CHECK(address.ends_with(port));
}

std::vector<std::string> Take(std::string_view text, const std::string& port) {
  EndpointSlices slices(port);
  for (bool is_event = false; !text.empty(); is_event = !is_event) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::vector<std::string> before = slices.Addresses();
    const bool is_first = line.starts_with('!');
    if (is_first) line.remove_prefix(1);
    absl::Status status;
    if (is_event && !is_first) {
      const auto version = slices.TakeEvent(line);
      CONTINUO_CHECK(!version.ok() || !version->empty());
      status = version.status();
    } else {
      const auto page = slices.TakePage(line, is_first);
      CONTINUO_CHECK(!page.ok() || !page->resource_version.empty());
      status = page.status();
    }
    // What is refused changes nothing.
    if (!status.ok()) CONTINUO_CHECK(IsExpected(status.code()) && slices.Addresses() == before);
    CheckAddresses(slices, port == "grpc" ? "" : ":50051");
  }
  return slices.Addresses();
}

}  // namespace
}  // namespace continuo::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* const port : {"50051", "grpc"}) {
    CONTINUO_CHECK(continuo::gateway::Take(text, port) == continuo::gateway::Take(text, port));
  }
  return 0;
}
