// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/base/byte_budget.h"
#include "services/base/clock.h"
#include "services/gateway/openai/http/asked_calls.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/relay/text_service.h"

namespace continuo::gateway::openai {

// Serves /v1/embeddings. A request that one call of Embed cannot answer becomes several, one after
// the other, so that it counts as one request at a time. Thread-safe.
class EmbeddingsApi {
 public:
  // The models that the caller may use.
  using Models = std::function<std::vector<v1::Model>(const ClientCall&)>;
  struct Answer {
    absl::Status status;     // an error names members of the body
    bool is_logged = false;  // the service has logged the error
    std::string body;
    ByteBudget::Share room;  // of the body among all answers
  };

  // Both outlive the EmbeddingsApi.
  EmbeddingsApi(TextService* service, const Clock* clock, Models models)
      : service_(service), models_(std::move(models)), calls_(clock) {}

  // The connection's coroutine. `call` is that of the request, whose header outlives the answer;
  // its body is dropped.
  boost::asio::awaitable<Answer> Serve(HttpConnection& connection, HttpRequest& request,
                                       ClientCall call);

 private:
  TextService* const service_;
  const Models models_;
  AskedCalls calls_;
};

}  // namespace continuo::gateway::openai
