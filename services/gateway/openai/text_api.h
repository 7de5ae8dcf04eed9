// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/gateway/openai/http/asked_calls.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/routes/routes.h"
#include "services/gateway/relay/text_service.h"

namespace continuo::gateway::openai {

// Serves /tokenize, /detokenize, /tokenizer_info and /v1/messages/count_tokens. Thread-safe.
class TextApi {
 public:
  struct Answer {
    absl::Status status;
    std::string body;
    HttpHeaders headers = {};
    std::vector<int> tool_places = {};  // for an error that names a tool of the request
    bool as_written = false;            // an error names a member of the body, and no field
  };

  // Both outlive the TextApi.
  TextApi(TextService* service, const Clock* clock)
      : service_(service), clock_(clock), calls_(clock) {}

  // The answer to a request for one of the four. The connection's coroutine.
  boost::asio::awaitable<Answer> Serve(HttpConnection& connection, RouteId route,
                                       HttpRequest request);

 private:
  // Makes a call, drops the request, and waits for the answer while the client is there.
  template <typename Response, typename Ask>
  boost::asio::awaitable<absl::StatusOr<Response>> Wait(HttpConnection& connection,
                                                        HttpRequest& request, Ask ask);

  TextService* const service_;
  const Clock* const clock_;
  AskedCalls calls_;
};

}  // namespace continuo::gateway::openai
