// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/worker/engine/drafter.h"
#include "services/worker/engine/metrics.h"
#include "services/worker/engine/request.h"
#include "services/worker/engine/step_log.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

struct EngineOptions {
  int num_blocks = 0;  // of the KV cache
  int block_size = 16;
  int vocab_size = 0;
  int max_batch_tokens = 2048;  // rows a step
  int max_prefill_chunk = 512;  // rows of one prompt a step
  int max_running = 256;        // sequences a step
  // Prompt tokens waiting, at least one for each sequence; more is refused (see QueueQuota).
  int64_t max_queued_tokens = 262144;
  absl::Duration target_step = absl::Milliseconds(200);  // predicted cost that cuts a step
  int expected_answer_tokens = 512;  // of each sequence, as long as no answers have shown better
  std::array<uint64_t, 2> hash_key = {0, 0};  // keys the prefix hash; random in production
  std::shared_ptr<Drafter> drafter;           // none: one token of a sequence a step
  int max_drafts = 8;                         // rows of one sequence for that
  bool calibrate = true;  // Run() begins with a few small steps that measure the executor
};

// The load as WatchLoad reports it. Requests count once for each of their sequences.
struct EngineLoad {
  int running = 0, waiting = 0;
  int64_t pending_prompt_tokens = 0;
  int used_blocks = 0, cached_blocks = 0, total_blocks = 0;
  int block_size = 0, max_running = 0;
  uint64_t steps = 0;
  float prefill_tokens_per_second = 0, decode_tokens_per_second = 0;  // over the last second
};

// Owns every sequence and KV block id, and runs the loop: take in, schedule, run, hand out.
// Run() is the only thread that touches the scheduler; everything else may be called from any
// thread and returns at once.
class Engine {
 public:
  // `executor`, `clock` and `metrics` outlive the engine.
  Engine(const EngineOptions& options, model::Executor* executor, const Clock* clock,
         EngineMetrics* metrics);
  ~Engine();

  // ResourceExhausted (max_queued_tokens; not for moves, which may always queue),
  // InvalidArgument (can never fit the KV cache, with both numbers), Unavailable (draining or
  // stopped), DeadlineExceeded. After OK, `sink` gets events until one with `ended`, and is then
  // destroyed on the engine thread.
  absl::Status Submit(Request request, RequestSink sink);
  // Ends the request with `why` and frees its blocks within one step. Unknown ids are ignored.
  void Cancel(RequestId id, absl::Status why);
  // The edge met a stop string: ends one sequence quietly; no more deltas of it follow.
  void FinishSequence(RequestId id, int index);
  // From now on Submit refuses, with Unavailable.
  void BeginDrain();
  // Ends everything live with `why`, each after the events it already has.
  void EndAll(absl::Status why);

  EngineLoad Load() const;
  // Called on the engine thread after changes of the load, at most once a step. Set before Run().
  void SetLoadListener(absl::AnyInvocable<void(const EngineLoad&)> listener);
  // What the last steps ran. Lives as long as the engine.
  StepLog& step_log();
  // Requests run and no step ended for max(2 s, 10 × predicted); the first step is exempt
  // (exactness: hung-steps).
  bool Hung() const;

  // The engine thread: returns after Stop(), or with the executor's error.
  absl::Status Run();
  // Lets Run() return; what is live ends Unavailable.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace continuo::engine
