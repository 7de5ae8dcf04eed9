// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/live/live_responses.h"
#include "services/gateway/openai/stream/tenant_places.h"

namespace continuo::gateway::openai {

// Serves the paths below /v1/responses/{response}, of responses that this gateway generates now.
// Thread-safe.
class LiveApi {
 public:
  enum class Action { kGet, kCancel, kDelete };
  struct Asked {
    Action action = Action::kGet;
    std::string tenant;
    std::string response;                // as the path has it
    std::optional<int64_t> first_event;  // a stream from here on; else one body
  };

  // The responses outlive it.
  explicit LiveApi(LiveResponses* responses) : responses_(responses) {}

  // What a GET asks for. INVALID_ARGUMENT names a value of the query that is none.
  static absl::StatusOr<std::optional<int64_t>> FirstEventOf(std::string_view query);

  // Answers, or returns an error that is to be the answer: NOT_FOUND says how the same answer is
  // had again, RESOURCE_EXHAUSTED that the tenant has kMaxReaders or that there is no room. The
  // connection's coroutine.
  boost::asio::awaitable<absl::Status> Serve(HttpConnection& connection, const Asked& asked);

 private:
  // One tenant may have so many readers at this gateway.
  static constexpr int kMaxReaders = 64;

  LiveResponses* const responses_;
  TenantPlaces readers_{"readers of responses of this tenant are there"};
};

}  // namespace continuo::gateway::openai
