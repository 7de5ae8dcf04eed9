// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/worker/engine/kv_event_log.h"
#include "services/worker/engine/step_log.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/engine/types/options.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

// The load as WatchLoad reports it. A request counts once for each of its sequences.
struct EngineLoad {
  int running = 0, waiting = 0;
  int64_t pending_prompt_tokens = 0;
  int used_blocks = 0, cached_blocks = 0, total_blocks = 0;
  int used_states = 0, cached_states = 0, total_states = 0;  // slots
  int block_size = 0, max_running = 0;
  uint64_t steps = 0;
  float prefill_tokens_per_second = 0, decode_tokens_per_second = 0;  // over the last second
};

// Owns every sequence and KV block id, and runs the loop: take requests in, schedule a step, run
// it, deliver its events. The thread in Run() is the only one that touches the scheduler;
// everything else may be called from any thread and returns at once.
class Engine {
 public:
  // `executor`, `clock` and `metrics` outlive the engine.
  Engine(const EngineOptions& options, model::Executor* executor, const Clock* clock,
         EngineMetrics* metrics);
  ~Engine();

  // Queues the request. After OK, `sink` gets events until one with `ended`, and is then destroyed
  // on the engine thread. Errors: ResourceExhausted (max_queued_tokens; migrations may always
  // queue), InvalidArgument (it can never fit the KV cache; the message has both numbers),
  // Unavailable (draining or stopped), DeadlineExceeded.
  absl::Status Submit(Request request, RequestSink sink);
  // Queues several requests of one tenant, or none of them: they wait as one of all their tokens
  // would. Errors as Submit; InvalidArgument also where several have more than max_queued_tokens.
  absl::Status SubmitAll(std::vector<std::pair<Request, RequestSink>> requests);
  // Ends the request with `why` and frees its blocks within one step. Unknown ids are ignored.
  void Cancel(RequestId id, absl::Status why);
  // Ends one sequence, in which the server has found a stop string. No delta of it follows.
  void FinishSequence(RequestId id, int index);
  // From now on Submit returns Unavailable.
  void BeginDrain();
  // Ends every live request with `why`, after the events that it already has.
  void EndAll(absl::Status why);

  EngineLoad Load() const;
  // Sets what is called on the engine thread when the load has changed, at most once a step. Must
  // be called before Run().
  void SetLoadListener(absl::AnyInvocable<void(const EngineLoad&)> listener);
  // Returns the records of the last steps. Lives as long as the engine.
  StepLog& step_log();
  // Begins to watch the prefix cache: with a snapshot of the blocks of one salt, which comes once
  // the engine thread has made it, before its next step. The events are those of all salts.
  absl::StatusOr<std::unique_ptr<KvEventLog::Watch>> WatchKvEvents(const CacheSalt& salt);
  // Returns the events of the prefix cache, for those who go on. Lives as long as the engine.
  KvEventLog& kv_event_log();
  // Returns whether there are requests and no step has ended for max(2 s, 10 × predicted); false
  // until the first step has ended (exactness: hung-steps).
  bool Hung() const;

  // Runs the engine on the calling thread until Stop(), or returns the executor's error.
  absl::Status Run();
  // Lets Run() return. Live requests end with Unavailable.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace continuo::engine
