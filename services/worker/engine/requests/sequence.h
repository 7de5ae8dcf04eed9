// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/kv/state_pool.h"
#include "services/worker/engine/types/request.h"

namespace continuo::engine {

struct LiveRequest;
struct Tenant;

enum class SequenceState : uint8_t {
  kPending,   // waits until a sibling has prefilled the prompt that they share
  kWaiting,   // is in the waiting queue and holds no KV block
  kRunning,   // holds KV blocks and takes part in steps
  kFinished,  // has nothing left to compute
};

// The slot of the state behind the first `position` tokens of a sequence.
struct PlacedState {
  int position = 0;
  StateSlot slot = kNoState;
};

// One generation in progress. Plain state, touched only by the engine thread.
struct Sequence {
  model::SequenceId id = 0;
  LiveRequest* request = nullptr;
  int index = 0;  // in [0, num_sequences)
  SequenceState state = SequenceState::kPending;
  FinishReason finish = FinishReason::kNone;

  std::vector<int32_t> answer;  // received tokens, then those generated here
  // Has accepted the answer, but for a stop id that ends it. Null where nothing is constrained.
  TokenConstraint* constraint = nullptr;
  // Tokens after the answer that steps in flight sample. The last of them is sample
  // `in_flight_sample` of its step.
  int num_in_flight = 0;
  int32_t in_flight_sample = -1;
  // Counts rollbacks. Samples that were planned in an earlier epoch are void.
  uint32_t epoch = 0;
  // Number of upcoming samples for which overlapped scheduling is disabled.
  int num_synchronous_samples = 0;
  std::vector<kernels::SeenToken> seen;  // input of penalties; kept only if a penalty is set
  bool seen_is_built = false;

  // These fields are set only while the sequence runs:
  std::vector<BlockId> blocks;
  int num_computed = 0;   // leading tokens whose keys and values are in `blocks`
  int num_shared = 0;     // leading blocks that were found, not computed
  int num_published = 0;  // leading blocks that the pool can find
  bool publishes = true;  // false once the pool has not taken a block
  // The states that it holds a reference to, by ascending position. Between steps that is the one
  // behind num_computed tokens, or none where that is 0; a step in flight adds those that it
  // writes. It stays empty where the model has no states.
  std::vector<PlacedState> states;
  int branch_at = 0;            // tokens of cached blocks that were of no use for want of a state
  int num_answer_blocks = 0;    // leading blocks behind which is the answer's last snapshot
  uint64_t admitted_in = 0;     // number of the step
  uint64_t finished_after = 0;  // number of the last step that was committed before the end
  uint64_t last_turn = 0;       // grows each time it is scheduled, for round robin among decodes

  uint64_t queue_ticket = 0;  // new each time it enters the waiting queue; 0: never yet
  bool may_yield = false;     // scratch of one preemption decision: its blocks may be taken
  // It has been preempted once: it is admitted again only with all blocks it may ever need.
  bool guaranteed = false;
  absl::Duration last_token;  // when it was reported, by Clock::Elapsed

  // Recent drafts that were right, and all that were verified; both decay.
  float draft_hits = 0, draft_tries = 0;
};

// One request from Submit to its last event. Owned by LiveRequests.
struct LiveRequest {
  Request request;
  RequestSink sink;
  Tenant* tenant = nullptr;                           // valid while the request lives
  uint64_t order = 0;                                 // of arrival
  absl::Duration submitted, first_step, first_token;  // by Clock::Elapsed
  bool started = false, has_token = false, admitted = false, prompt_counted = false;
  bool has_ended = false;

  std::vector<Sequence> sequences;  // by index; never resized
  int num_unfinished = 0;
  int64_t queue_cost = 0;
  // Prefills the prompt for all siblings. Null if no running or waiting sequence has to.
  Sequence* prefill_leader = nullptr;
  KeptState prompt_state;         // behind the prompt, for siblings that wait
  int num_scored = 0;             // leading prompt log-probabilities that need no computing
  std::vector<double> state_sum;  // of the states that Pooling::kMean has had
  int num_states = 0;             // of them
  int cached_prompt_tokens = 0;
  int num_preemptions = 0;
  int queue_position = -1;  // as last reported
  uint64_t last_step = 0;   // number of the last step that has it

  RequestEvent event;  // collects news until the next delivery
  bool has_event = false;

  int prompt_tokens() const { return static_cast<int>(request.prompt.size()); }
  // Prompt log-probabilities are still missing, so no token of the prompt may be skipped.
  bool scores_prompt() const {
    return request.num_prompt_logprobs >= 0 && num_scored < prompt_tokens() - 1;
  }
};

// These counts include the tokens in flight.
inline int NumAnswered(const Sequence& s) {
  return static_cast<int>(s.answer.size()) + s.num_in_flight;
}
inline int NumTokens(const Sequence& s) { return s.request->prompt_tokens() + NumAnswered(s); }
inline int NumRemaining(const Sequence& s) { return NumTokens(s) - s.num_computed; }
// Returns all known tokens, without those in flight.
inline TokenRange TokensOf(const Sequence& s) { return {s.request->request.prompt, s.answer}; }
// Nothing is left to compute once the steps in flight have been committed.
inline bool IsEnding(const Sequence& s) {
  return NumRemaining(s) == 0 ||
         (s.num_in_flight > 0 && NumAnswered(s) >= s.request->request.max_tokens);
}

// Returns the most tokens that a sequence has in the cache: the last one is never computed.
inline int64_t MostTokens(const Request& r) {
  return static_cast<int64_t>(r.prompt.size()) + (r.max_tokens > 0 ? r.max_tokens - 1 : 0);
}

// Returns whether the answer ends with a stop id that counts: after min_tokens others, or where a
// constraint restricts, which lets stop ids come only where the answer may end.
bool EndsByStopId(const Sequence& s);
// Returns why the answer is complete, or kNone.
FinishReason WhyFinished(const Sequence& s);

// Builds `seen` from the prompt and the answer, unless it has been built already.
void BuildSeen(Sequence& s);

}  // namespace continuo::engine
