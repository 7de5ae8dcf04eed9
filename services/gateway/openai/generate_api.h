// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/base/clock.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/openai/answer/answer.h"
#include "services/gateway/openai/calls.h"
#include "services/gateway/openai/generation_queue.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/live/live_responses.h"
#include "services/gateway/openai/stream/call_start.h"
#include "services/gateway/openai/stream/tenant_places.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::openai {

// GenerateApi calls these. They are thread-safe and outlive it.
struct GenerateOptions {
  GenerateService* service = nullptr;
  const Clock* clock = nullptr;
  const FleetSecret* secret = nullptr;
  bool event_ids = true;  // of a stream's events, where its request does not say it
  // The models that the caller may use.
  std::function<std::vector<v1::Model>(const ClientCall&)> models;
};

// Serves the APIs that generate (calls.h), in one piece and as streams. Thread-safe.
class GenerateApi {
 public:
  explicit GenerateApi(const GenerateOptions& options) : options_(options) {}
  // Waits until every call has ended; all have been cancelled or ended before.
  ~GenerateApi();

  // The connection's coroutine. `errors` names the API.
  boost::asio::awaitable<void> Serve(HttpConnection& connection, ErrorForm errors,
                                     HttpRequest request);

  // Lists the running responses of the API whose responses others may ask for.
  LiveResponses& live() { return live_; }

 private:
  // A call whose generations run.
  struct Running {
    Answer& answer;
    ErrorForm errors;
    size_t num_prompts;
    absl::Time deadline;
    HttpHeaders headers;
    int num_sequences;  // of each prompt
    CallStart start;
    TenantPlaces::Place replay;
    bool told_fingerprint = false;
    // Set where others may ask for the answer.
    std::unique_ptr<LiveResponses::Entry> live = nullptr;
    std::shared_ptr<bool> is_cancelled = std::make_shared<bool>(false);  // by its id
  };

  // An id that no other request has.
  std::string MakeId(const ErrorForm& form) const;
  // For a call with an idempotency key, tells the worker's fingerprint in a header and leaves out
  // of the response what a second run does not repeat.
  static void Prepare(Running& call, v1::GenerateResponse* response);
  // Lists the call, if its answer is one that others may ask for.
  void List(HttpConnection& connection, const std::string& tenant, const std::string& id,
            Running* call);
  boost::asio::awaitable<void> Collect(HttpConnection& connection, GenerationQueue& queue,
                                       Running call);
  boost::asio::awaitable<void> Stream(HttpConnection& connection, GenerationQueue& queue,
                                      Running call);
  // A queue whose responses wake the connection.
  std::shared_ptr<GenerationQueue> MakeQueue(HttpConnection& connection);

  const GenerateOptions options_;
  TenantPlaces replays_{"streams of this tenant are generated again"};
  LiveResponses live_;
  absl::Mutex mutex_;
  int num_queues_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway::openai
