// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway {

// One call to a worker. Times count from the relay's start.
struct RelayAttempt {
  std::string worker;
  absl::Duration begin, end;
  // The reason why another call followed: "rejected" if the worker rejected the new request, else a
  // reason of RelayObserver::OnMigration. Empty if the call was the last one.
  std::string_view reason;
};

// The report on one call of a client, for the log, the metrics and the spans.
struct RelayReport {
  std::string request_id, tenant, model, worker;
  std::string correlation_id;               // ClientCall::correlation_id
  int pool = -1;                            // that of the last worker; -1 without one
  std::string fingerprint;                  // that of the last worker
  std::vector<std::string> finish_reasons;  // of sequences that ended: "stop", "length", …
  int migrations = 0;  // calls after the first one, except those after a rejection
  // From the summary. Without one: the estimate, if a worker had accepted the request, else 0.
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // that workers generated in this call
  // The client has had these of them before. They were generated again to find its place.
  int64_t replayed_tokens = 0;
  std::optional<v1::Usage> usage;                                 // from the summary
  absl::Duration time_to_first_token = absl::InfiniteDuration();  // infinite without a token
  absl::Duration duration;

  // The time without an open call to any worker: waiting for a worker, and back-offs.
  absl::Duration without_worker;
  // The time with a call until the first Accepted, which a worker sends when its first step with
  // the prompt begins. Infinite if that did not happen.
  absl::Duration queue = absl::InfiniteDuration();
  // The time from the first Accepted to the first token. Infinite without a token.
  absl::Duration prefill = absl::InfiniteDuration();
  // The time between losses of workers and the first responses of the next ones, in total.
  absl::Duration stall;
  // The longest time between two responses with tokens, migrations included.
  absl::Duration longest_gap;

  static constexpr size_t kMaxAttempts = 16;
  std::vector<RelayAttempt> attempts;  // the first kMaxAttempts calls
};

}  // namespace continuo::gateway
