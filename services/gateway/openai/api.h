// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/base/clock.h"
#include "services/gateway/adapters/adapter_updates.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/openai/adapters/adapters_api.h"
#include "services/gateway/openai/calls.h"
#include "services/gateway/openai/cors.h"
#include "services/gateway/openai/embeddings/embeddings_api.h"
#include "services/gateway/openai/generate_api.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/live/live_api.h"
#include "services/gateway/openai/rerank/rerank_api.h"
#include "services/gateway/openai/routes/routes.h"
#include "services/gateway/openai/steps/steps_api.h"
#include "services/gateway/openai/text_api.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/step_feed.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway::openai {

// The services behind the paths. All of it is thread-safe and outlives the Api.
struct ApiDependencies {
  GenerateService* service = nullptr;
  const Clock* clock = nullptr;
  // The models that the caller may use.
  std::function<std::vector<v1::Model>(const ClientCall&)> models;
  std::function<bool()> ready;           // true while a worker takes requests
  std::function<std::string()> metrics;  // in Prometheus' text format
  // The page of /metrics/load, which endpoint pickers read; the same format.
  std::function<std::string()> load_metrics;
  std::function<std::shared_ptr<const LoadSnapshot>()> fleet;
  TextService* text = nullptr;
  StepFeed* steps = nullptr;           // null: steps are not told
  AdapterUpdates* adapters = nullptr;  // null: adapters are not updated
  AdaptersApi::Check may_update_adapter = nullptr;
  int max_step_watchers = 32;
  const FleetSecret* secret = nullptr;
  bool event_ids = true;  // of a stream's events, where its request does not say it
  std::string version;    // of the program
  CorsPolicy cors;
};

// Serves the paths of routes.h. Thread-safe.
class Api : public HttpHandler {
 public:
  explicit Api(ApiDependencies dependencies);
  std::optional<HttpResponse> Reject(const HttpRequest& header) override;
  boost::asio::awaitable<void> Handle(HttpConnection& connection, HttpRequest request) override;
  HttpResponse Error(const HttpRequest& header, int status, std::string_view message) override;
  HttpHeaders CommonHeaders(const HttpRequest& header) override;

  // Ends what would go on as long as its client does: the watches of steps.
  void BeginDrain() { steps_.BeginDrain(); }

 private:
  boost::asio::awaitable<void> AnswerText(HttpConnection& connection, RouteId route,
                                          HttpRequest request);
  // Embeddings, rerankings and scores.
  boost::asio::awaitable<void> AnswerEmbeddings(HttpConnection& connection, RouteId route,
                                                HttpRequest request);
  boost::asio::awaitable<void> UpdateAdapter(HttpConnection& connection, RouteId route,
                                             HttpRequest request);
  boost::asio::awaitable<void> WatchSteps(HttpConnection& connection, HttpRequest request);
  boost::asio::awaitable<void> AnswerLive(HttpConnection& connection, RouteId route,
                                          HttpRequest request);
  // Returns whether a browser may have sent the call for a page that may not read the answer.
  bool IsOfAForeignPage(const HttpRequest& header) const;
  // The answer to OPTIONS for a path, or for the whole server if `route` is null.
  HttpResponse Options(const HttpRequest& header, const Route* route) const;
  // Describes models and the gateway by the Open Inference Protocol.
  HttpResponse Served(RouteId route, const HttpRequest& request);
  HttpResponse Get(const Route& route, const HttpRequest& request);
  // For probes: tells whether a worker takes requests.
  HttpResponse Ready() const;
  // The form of the errors of a request, with an id of its own where the form has one.
  ErrorForm FormOf(const HttpRequest& header) const;
  // An error of HTTP itself, with its code in OpenAI's form. `logged` has no word of the client's.
  HttpResponse ErrorOf(const HttpRequest& header, int status, std::string_view message,
                       std::string_view code, std::string_view logged);

  const ApiDependencies dependencies_;
  TextApi text_;
  EmbeddingsApi embeddings_;
  AdaptersApi adapters_;
  RerankApi rerank_;
  StepsApi steps_;
  GenerateApi generations_;
  LiveApi live_{&generations_.live()};
  const int64_t start_seconds_;  // Unix time of the server's start
};

}  // namespace continuo::gateway::openai
