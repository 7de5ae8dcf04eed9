// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/block_pool.h"
#include "services/worker/engine/request.h"

namespace continuo::engine {

struct LiveRequest;
struct Tenant;

enum class SequenceState : uint8_t {
  kPending,   // a sibling reads the prompt that this one will share
  kWaiting,   // in the waiting queue, holds no block
  kRunning,   // holds blocks, takes part in steps
  kFinished,  // nothing is left to compute
};

// One generation in progress. Plain state, touched only by the engine thread.
struct Sequence {
  model::SequenceId id = 0;
  LiveRequest* request = nullptr;
  int index = 0;  // which of num_sequences
  SequenceState state = SequenceState::kPending;
  FinishReason finish = FinishReason::kNone;

  std::vector<int32_t> answer;  // received, then generated here
  // Tokens that follow the answer and are drawn by steps that have not been committed; the last of
  // them by that sample of its step.
  int num_presumed = 0;
  int32_t presumed_by = -1;
  // Of what was presumed: samples that were planned before the last time it proved wrong have
  // another one.
  uint32_t generation = 0;
  // So many of its next draws no step is to be planned ahead of.
  int draws_awaited = 0;
  std::vector<kernels::SeenToken> seen;  // what penalties see; only where a penalty is set
  bool seen_is_built = false;

  // Only while running:
  std::vector<BlockId> blocks;
  int num_computed = 0;   // leading tokens whose keys and values are in `blocks`
  int num_shared = 0;     // leading blocks that were found rather than computed
  int num_published = 0;  // leading blocks that the pool can find
  bool publishes = true;  // false from the first block on that the pool did not take
  uint64_t admitted_in = 0;
  uint64_t finished_after = 0;  // the last step committed by then
  uint64_t last_turn = 0;       // when it was last in a step, for turns among decodes

  // Scratch of one decision: whether its blocks may be taken.
  bool may_yield = false;
  // Has given its blocks back once: it is admitted again only with all that it may ever need.
  bool guaranteed = false;
  absl::Duration last_token;  // when it was reported, by Clock::Elapsed

  // Drafts that were right, and all that were checked, lately.
  float draft_hits = 0, draft_tries = 0;
};

// One request from Submit to its last event. Owned by the scheduler.
struct LiveRequest {
  Request request;
  RequestSink sink;
  Tenant* tenant = nullptr;                          // whose it is, while it lives
  uint64_t order = 0;                                // of arrival
  absl::Duration submitted, first_row, first_token;  // by Clock::Elapsed
  bool started = false, has_token = false, admitted = false, prompt_counted = false;
  bool has_ended = false;

  std::vector<Sequence> sequences;  // by index; never resized
  int num_unfinished = 0;
  int64_t queue_cost = 0;
  // Reads the prompt for all; null while no running or waiting sequence has to for others.
  Sequence* reader = nullptr;
  int num_scored = 0;  // leading prompt log-probabilities that need no computing
  int cached_prompt_tokens = 0;
  int num_preemptions = 0;
  int queue_position = -1;  // as last reported
  uint64_t last_step = 0;   // that it is part of

  RequestEvent event;  // since the last delivery
  bool has_event = false;

  int prompt_tokens() const { return static_cast<int>(request.prompt.size()); }
  // Prompt log-probabilities are still to be computed, so no row of the prompt may be skipped.
  bool scores_prompt() const {
    return request.num_prompt_logprobs >= 0 && num_scored < prompt_tokens() - 1;
  }
};

// What is presumed counts.
inline int NumAnswered(const Sequence& s) {
  return static_cast<int>(s.answer.size()) + s.num_presumed;
}
inline int NumTokens(const Sequence& s) { return s.request->prompt_tokens() + NumAnswered(s); }
inline int NumRemaining(const Sequence& s) { return NumTokens(s) - s.num_computed; }
// All that are known.
inline TokenRange TokensOf(const Sequence& s) { return {s.request->request.prompt, s.answer}; }
// Nothing is left to compute once the steps under way have been committed.
inline bool IsEnding(const Sequence& s) {
  return NumRemaining(s) == 0 ||
         (s.num_presumed > 0 && NumAnswered(s) >= s.request->request.max_tokens);
}

// The last token generated is reported but never computed.
inline int64_t MostTokens(const Request& r) {
  return static_cast<int64_t>(r.prompt.size()) + (r.max_tokens > 0 ? r.max_tokens - 1 : 0);
}
inline int BlocksFor(int64_t tokens, int block_size) {
  return static_cast<int>((tokens + block_size - 1) / block_size);
}

// Whether `answer` is complete by itself. A stop id counts only after min_tokens others.
FinishReason WhyFinished(const Request& request, const std::vector<int32_t>& answer);

// Brings `seen` up to date with the prompt and the answer; builds it where there is none.
void BuildSeen(Sequence& s);

}  // namespace continuo::engine
