// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/base/clock.h"
#include "services/gateway/openai/embeddings/embeddings_api.h"
#include "services/gateway/openai/http/asked_calls.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/rerank/rerank_request.h"
#include "services/gateway/relay/text_service.h"

namespace continuo::gateway::openai {

// Serves rerankings and scores. A request with more pairs than one call of Embed should have
// becomes several, one after the other, so that it counts as one request at a time. Thread-safe.
class RerankApi {
 public:
  using Models = EmbeddingsApi::Models;
  using Answer = EmbeddingsApi::Answer;

  // Both outlive the RerankApi.
  RerankApi(TextService* service, const Clock* clock, Models models)
      : service_(service), clock_(clock), models_(std::move(models)), calls_(clock) {}

  // The connection's coroutine. `call` is that of the request, whose header outlives the answer;
  // its body is dropped. `id` names the request at workers and in the answer; the header
  // x-request-id is no name of it (ClientCall::correlation_id).
  boost::asio::awaitable<Answer> Serve(HttpConnection& connection, ScoreForm form,
                                       HttpRequest& request, ClientCall call, std::string id);

 private:
  TextService* const service_;
  const Clock* const clock_;
  const Models models_;
  AskedCalls calls_;
};

}  // namespace continuo::gateway::openai
