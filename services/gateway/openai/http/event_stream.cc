// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/event_stream.h"

#include <utility>

namespace continuo::gateway::openai {

boost::asio::awaitable<void> BeginEvents(HttpConnection& connection, HttpHeaders headers,
                                         bool has_ids) {
  headers.emplace_back("Cache-Control", "no-cache");
  // Without it nginx would keep events back.
  headers.emplace_back("X-Accel-Buffering", "no");
  co_await connection.BeginStream("text/event-stream; charset=utf-8", std::move(headers),
                                  has_ids ? ": keep-alive\n" : ": keep-alive\n\n");
}

}  // namespace continuo::gateway::openai
