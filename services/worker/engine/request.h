// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/model/step_plan.h"

namespace continuo::engine {

// Names a request while it lives. Unique in the process, made by the server.
using RequestId = uint64_t;

enum class FinishReason : uint8_t { kNone, kStop, kLength, kTimeLimit };

// What a continuation brings of one sequence.
struct ReceivedSequence {
  std::vector<int32_t> tokens;
  bool finished = false;  // nothing is left to compute of it
};

// One request as the engine sees it: validated, tokenised, defaults filled in. A value.
struct Request {
  RequestId id = 0;
  std::string label;  // the client's request_id, for WatchSteps and logs
  std::string tenant;
  std::vector<int32_t> prompt;  // at least one token, at most the context
  // Empty, or one entry per sequence. Received tokens are part of what is computed, of the limits
  // and of the penalties, and are not reported again.
  std::vector<ReceivedSequence> received;

  int num_sequences = 1;
  model::SamplingParams sampling;          // sequence_index and masked are the engine's to set
  std::vector<kernels::LogitBias> biases;  // ids ascending and distinct
  // Ids that end a sequence (end of sequence unless ignore_eos, and stop ids); ascending. They are
  // delivered. Before min_tokens they cannot be picked.
  std::vector<int32_t> stop_ids;
  int max_tokens = 0;  // of each sequence, received ones included; prompt + max_tokens ≤ context
  int min_tokens = 0;
  int num_prompt_logprobs = -1;      // -1: none
  int prompt_logprobs_received = 0;  // how many the client has; the rest is reported

  int priority = 0;      // higher runs first
  bool is_move = false;  // a gateway's move: admitted before new work, never shed
  absl::Time deadline = absl::InfiniteFuture();    // DEADLINE_EXCEEDED, at every step
  absl::Time time_limit = absl::InfiniteFuture();  // kTimeLimit, in good order
  std::array<uint64_t, 2> cache_salt = {0, 0};     // prefixes are shared within one salt only
  bool cache_bypass = false;                       // neither use nor fill the prefix cache
  bool want_progress = false;
};

// Of prompt and received tokens.
inline int64_t TokensToRead(const Request& r) {
  auto tokens = static_cast<int64_t>(r.prompt.size());
  for (const ReceivedSequence& s : r.received) tokens += static_cast<int64_t>(s.tokens.size());
  return tokens;
}
// In max_queued_tokens: every sequence takes room, however short the prompt.
inline int64_t QueueCost(const Request& r) {
  return std::max<int64_t>(TokensToRead(r), r.num_sequences);
}

struct PromptProgress {
  int queue_position = 0;  // requests ahead; 0 once the prompt is being read
  int prompt_tokens = 0;
  int prompt_tokens_done = 0;
  int cached_prompt_tokens = 0;
};

// New tokens of one sequence. A step's one token needs no memory of its own.
struct SequenceDelta {
  int index = 0;
  absl::InlinedVector<int32_t, 2> tokens;
  std::vector<model::TokenScore> scores;  // one per token where log-probabilities were asked for
  FinishReason finish = FinishReason::kNone;  // kStop: the last token is one of stop_ids
};

struct RequestTimings {
  absl::Duration queue;    // until the first of the prompt was computed
  absl::Duration prefill;  // from there until the first token
  absl::Duration total;
  int num_preemptions = 0;  // times that a sequence had to give its place up
};

// What a step did for one request. Parts that are empty say nothing.
struct RequestEvent {
  bool started = false;  // the first row enters a step; reported once, before everything else
  std::optional<PromptProgress> progress;
  std::vector<model::TokenScore> prompt_scores;  // in order, from the second prompt token on
  absl::InlinedVector<SequenceDelta, 1> deltas;
  // Set in the last event: OK when every sequence has finished, else why it ended early.
  std::optional<absl::Status> ended;
  int cached_prompt_tokens = 0;  // with `ended`
  RequestTimings timings;        // with `ended`
};

// Gets the events of one request, in order. Called on the engine thread; must not block.
using RequestSink = absl::AnyInvocable<void(RequestEvent)>;

}  // namespace continuo::engine
