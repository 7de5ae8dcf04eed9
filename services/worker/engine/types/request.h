// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/types/token_constraint.h"
#include "services/worker/model/step_plan.h"

namespace continuo::engine {

// Names a request while it lives. Unique in the process, made by the server.
using RequestId = uint64_t;

enum class FinishReason : uint8_t { kNone, kStop, kLength, kTimeLimit };

// Which of a prompt's final hidden states are reported as one: that behind the last token or behind
// the first one, or the mean of all, in doubles, in the order of the tokens.
enum class Pooling : uint8_t { kLast, kFirst, kMean };

// The part of one sequence that a continuation brings along.
struct ReceivedSequence {
  std::vector<int32_t> tokens;
  bool finished = false;  // nothing of it is left to compute
};

// One request as the engine sees it: validated, tokenised, with defaults filled in. A value, except
// that copies share their constraints: only one of them may be submitted.
struct Request {
  RequestId id = 0;
  std::string label;  // the client's request_id, for WatchSteps and logs
  std::string tenant;
  std::vector<int32_t> prompt;  // at least one token, at most the context
  // The part of the text that each token of the prompt counts to (StepPlan::token_types). Empty: 0
  // for all, and always so without EngineOptions::whole_prompts.
  std::vector<int32_t> token_types;
  // Empty, or one entry for each sequence. Received tokens count as computed input, for limits and
  // for penalties, and are not reported again.
  std::vector<ReceivedSequence> received;

  int num_sequences = 1;
  model::SamplingParams sampling;          // the engine sets sequence_index and masked
  std::vector<kernels::LogitBias> biases;  // ids ascending and distinct
  // The only ids that may be sampled, bit id % 32 of word id / 32. Empty: all.
  std::vector<uint32_t> allowed_mask;
  // The last id of each must not be sampled where the answer ends with those before it.
  std::vector<std::vector<int32_t>> barred;  // none empty
  // Ids that end a sequence (end of sequence unless ignore_eos, and the client's stop ids),
  // ascending. They are delivered. Before min_tokens they cannot be sampled.
  std::vector<int32_t> stop_ids;
  // Holds none, or one for each sequence, which has accepted its received tokens already. Where it
  // and the members above allow nothing together, the constraint alone counts.
  std::vector<std::shared_ptr<TokenConstraint>> constraints;
  // Limit for each sequence, counting received tokens; prompt + max_tokens ≤ context.
  int max_tokens = 0;
  int min_tokens = 0;
  int num_prompt_logprobs = -1;      // -1: none
  int prompt_logprobs_received = 0;  // the client has these; only the rest is reported
  // A final hidden state of the prompt is reported, the one that `pooling` says. Goes with one
  // sequence, a max_tokens of 0 and no prompt log-probabilities. Poolings but kLast go with
  // EngineOptions::whole_prompts.
  bool reads_state = false;
  Pooling pooling = Pooling::kLast;

  // AdapterLease::id of the adapter that computes the request, and what keeps it in memory. The
  // cache's salt differs from that of requests with another adapter.
  int32_t adapter = model::kNoAdapter;
  std::shared_ptr<const void> adapter_lease;

  int priority = 0;           // higher runs first
  bool is_migration = false;  // sent here by a gateway: admitted before new work, never rejected
  absl::Time deadline = absl::InfiniteFuture();    // DEADLINE_EXCEEDED, checked at every step
  absl::Time time_limit = absl::InfiniteFuture();  // finishes with kTimeLimit and status OK
  std::array<uint64_t, 2> cache_salt = {0, 0};     // prefixes are shared within one salt only
  bool cache_bypass = false;                       // neither reads nor fills the prefix cache
  bool want_progress = false;
};

// Returns whether the ids that may be sampled depend on those sampled before.
inline bool MaskNeedsAnswer(const Request& r) {
  return !r.constraints.empty() ||
         std::ranges::any_of(r.barred, [](const auto& ids) { return ids.size() > 1; });
}

// Returns the number of prompt and received tokens.
inline int64_t NumInputTokens(const Request& r) {
  auto tokens = static_cast<int64_t>(r.prompt.size());
  for (const ReceivedSequence& s : r.received) tokens += static_cast<int64_t>(s.tokens.size());
  return tokens;
}
// Returns what the request takes of max_queued_tokens: at least one token for each sequence.
inline int64_t QueueCost(const Request& r) {
  return std::max<int64_t>(NumInputTokens(r), r.num_sequences);
}

struct PromptProgress {
  int queue_position = 0;  // requests ahead in the queue; 0 once prefill has begun
  int prompt_tokens = 0;
  int prompt_tokens_done = 0;
  int cached_prompt_tokens = 0;
};

// New tokens of one sequence. The single token of a step needs no heap memory.
struct SequenceDelta {
  int index = 0;
  absl::InlinedVector<int32_t, 2> tokens;
  std::vector<model::TokenScore> scores;  // one per token if log-probabilities were requested
  // kStop: the last token is one of stop_ids, or the constraint must end after it.
  FinishReason finish = FinishReason::kNone;
};

struct RequestTimings {
  absl::Duration queue;    // from Submit until the first step with a token of its prompt
  absl::Duration prefill;  // from there until the first sampled token
  absl::Duration total;
  int num_preemptions = 0;  // of all its sequences
};

// The news of one request since its last event. Empty parts say nothing.
struct RequestEvent {
  bool started = false;  // the first token enters a step; reported once, before everything else
  std::optional<PromptProgress> progress;
  std::vector<model::TokenScore> prompt_scores;  // in order, from the second prompt token on
  absl::InlinedVector<SequenceDelta, 1> deltas;
  std::vector<float> state;  // of Request::reads_state, in one event, pooled
  // Set in the last event: OK when every sequence has finished, otherwise the error that ended it.
  std::optional<absl::Status> ended;
  int cached_prompt_tokens = 0;  // valid with `ended`
  RequestTimings timings;        // valid with `ended`
};

// Receives the events of one request, in order. Called on the engine thread; must not block.
using RequestSink = absl::AnyInvocable<void(RequestEvent)>;

}  // namespace continuo::engine
