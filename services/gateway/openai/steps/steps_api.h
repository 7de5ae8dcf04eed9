// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/steps/step_json.h"
#include "services/gateway/openai/steps/step_watchers.h"
#include "services/gateway/relay/step_feed.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway::openai {

// Serves GET /v1/steps: what the steps of one worker run, as server-sent events, without any text.
// First comes `worker` with what does not change, then `steps` about ten times a second while there
// are steps, and where the watch ends before its client does, `error`. Thread-safe.
class StepsApi {
 public:
  // A watch ends after this time, so that keys that were taken back are noticed.
  static constexpr absl::Duration kLongestWatch = absl::Hours(1);

  // Both outlive the StepsApi. A null feed: there is none.
  StepsApi(StepFeed* feed, const Clock* clock, int max_watchers)
      : feed_(feed), clock_(clock), watchers_(max_watchers) {}

  // A request.
  struct Asked {
    std::string tenant;
    std::string worker;  // by name; empty: the first one that serves
    std::function<std::shared_ptr<const LoadSnapshot>()> fleet;
    std::function<bool(const std::string& model)> may_use;
    absl::Time deadline = absl::InfiniteFuture();
    bool is_head = false;  // nothing is watched
  };
  // Serves until the client leaves or the watch ends. An error means that nothing was sent yet. The
  // connection's coroutine.
  boost::asio::awaitable<absl::Status> Serve(HttpConnection& connection, Asked asked);

  // Ends all watches, so that their clients go elsewhere, and takes no more.
  void BeginDrain();

 private:
  StepFeed* const feed_;
  const Clock* const clock_;
  const std::shared_ptr<const StepIds> ids_ = std::make_shared<const StepIds>();
  StepWatchers watchers_;
};

// The worker that is meant, with a model that the caller may use. NOT_FOUND where there is none.
absl::StatusOr<std::shared_ptr<const WorkerLoad>> FindWatched(const StepsApi::Asked& asked);

}  // namespace continuo::gateway::openai
