// SPDX-License-Identifier: Apache-2.0
// Any bytes that an API server answers to a watch, in any pieces, end in a status, and lead to the
// same addresses, version and status when they come in one piece.
//
// The first byte: how many bytes a read gets (0: all). The next one: an event has at most 16 times
// as many bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/gateway/discovery/kubernetes/watch_body.h"
#include "tests/gateway/discovery/kubernetes/exchange_in_memory.h"

namespace continuo::gateway {
namespace {

struct Watched {
  absl::StatusCode code;
  std::vector<std::string> addresses;
  std::string version;
  bool operator==(const Watched&) const = default;
};

Watched Watch(std::string_view answer, size_t piece_bytes, size_t max_event_bytes) {
  EndpointSlices slices("1");
  WatchBody body(&slices, max_event_bytes);
  const absl::Status status = ExchangeInMemory(
      answer, piece_bytes, [&body](std::string_view part) { return body.Take(part); });
  CONTINUO_CHECK(status.message().size() < 8192);
  return {status.code(), slices.Addresses(), body.version()};
}

}  // namespace
}  // namespace continuo::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t max_event_bytes = size_t{16} * data[1];
  const continuo::gateway::Watched whole =
      continuo::gateway::Watch(answer, answer.size() + 1, max_event_bytes);
  if (data[0] == 0) return 0;
  CONTINUO_CHECK(continuo::gateway::Watch(answer, data[0], max_event_bytes) == whole);
  return 0;
}
