// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/adapters/adapter_updates.h"
#include "services/gateway/openai/http/asked_calls.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::openai {

// Serves /v1/load_lora_adapter and /v1/unload_lora_adapter. Thread-safe.
class AdaptersApi {
 public:
  // Workers are waited for at most so long.
  static constexpr absl::Duration kLongestUpdate = absl::Minutes(5);
  // Returns why the caller may not update the adapter of a name; OK where it may.
  using Check = std::function<absl::Status(const ClientCall& call, const std::string& adapter)>;

  struct Answer {
    absl::Status status;
    std::string body;     // where the status is OK
    std::string workers;  // WorkersMember, where workers were asked
  };

  // Both outlive the AdaptersApi. Null updates: there are none.
  AdaptersApi(AdapterUpdates* updates, const Clock* clock, Check check)
      : updates_(updates), clock_(clock), check_(std::move(check)), calls_(clock) {}

  // The connection's coroutine. `call` is that of the request, whose header outlives the answer;
  // its body is dropped.
  boost::asio::awaitable<Answer> Serve(HttpConnection& connection, HttpRequest& request,
                                       AdapterUpdate::Kind kind, ClientCall call);

 private:
  AdapterUpdates* const updates_;
  const Clock* const clock_;
  const Check check_;
  AskedCalls calls_;
};

}  // namespace continuo::gateway::openai
