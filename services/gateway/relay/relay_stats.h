// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/relay_observer.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/relay/worker_call.h"
#include "services/gateway/routing/load_view.h"
#include "services/protocol/continuation.h"

namespace continuo::gateway {

// Builds the report of one stream from its events and passes them to the observer of all streams.
// Times are those of Clock::Elapsed. Belongs to the thread that handles the relay's events.
class RelayStats {
 public:
  // The stream starts `now`, without a call. `requested_model` is empty if the request names none;
  // then the model is that of `received`, which the client brought along, else that of the first
  // worker.
  RelayStats(std::string requested_model, const protocol::ReceivedResponses& received,
             RelayObserver* observer, absl::Duration now);

  void OnCallStarted(const WorkerLoad& load, bool is_migration, absl::Duration now);
  // A worker has accepted the request.
  void OnAccepted(absl::Duration now);
  // A response that goes to the client.
  void OnResponse(const v1::GenerateResponse& response, absl::Duration now);
  // `reason` is that of RelayAttempt. If the stream migrates, it stalls until the next response.
  void OnCallEnded(std::string_view reason, bool migrates, absl::Duration now);
  // No call follows.
  void OnConcluded(absl::Duration now);

  // The report as of now. `received` is everything that client and workers have received.
  const RelayReport& Complete(const CallContext& context, int64_t estimated_prompt_tokens,
                              const protocol::ReceivedResponses& received, absl::Duration now);

  // The requested model, else the one that serves the stream. Empty while neither is known.
  std::string_view model() const;
  // True if one worker has generated all of the answer so far.
  bool is_whole_answer() const { return report_.migrations == 0 && tokens_before_ == 0; }

 private:
  void OnTokens(int tokens, absl::Duration now);
  RelayLabels Labels() const { return {.model = model(), .pool = report_.pool}; }

  const std::string requested_model_;
  RelayObserver* const observer_;
  const absl::Duration start_time_;
  const int64_t tokens_before_;  // that the client brought along

  RelayReport report_;
  int num_calls_ = 0;
  std::string_view last_reason_;  // why the last call was left
  std::optional<absl::Duration> without_call_since_;
  std::optional<absl::Duration> stall_start_;
  std::optional<absl::Duration> accepted_time_;  // the first one
  std::optional<absl::Duration> last_token_time_;
};

}  // namespace continuo::gateway
