// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace continuo::gateway {

// One call to a worker. Moments are since the relay's start.
struct RelayAttempt {
  std::string worker;
  absl::Duration begin, end;
  // Why another one followed: "refused" or as for RelayObserver::OnMove; empty where none did.
  std::string_view reason;
};

// How one call of a client went, for log, metrics and spans.
struct RelayReport {
  std::string request_id, tenant, model, worker;
  int moves = 0;  // calls after the first, refused ones not counted
  // As the summary says; of a call that ended before, as estimated, once a worker had accepted it.
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;                                  // delivered in this call
  absl::Duration time_to_first_token = absl::InfiniteDuration();  // infinite: there was none
  absl::Duration duration;

  // Where it went. Without a call to any worker: waiting for one, and back-offs.
  absl::Duration without_worker;
  // With a call, until a worker's first Accepted, which comes when its first step with the prompt
  // begins; and from there to the first token. Infinite where it did not come so far.
  absl::Duration queue = absl::InfiniteDuration();
  absl::Duration prefill = absl::InfiniteDuration();
  // Between losses and the first responses of the next workers.
  absl::Duration stall;
  // Between two responses with tokens, moves included.
  absl::Duration longest_gap;

  static constexpr size_t kMaxAttempts = 16;
  std::vector<RelayAttempt> attempts;  // the first ones
};

}  // namespace continuo::gateway
