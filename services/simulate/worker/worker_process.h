// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "continuo/v1/worker.pb.h"
#include "services/gateway/relay/worker_call.h"
#include "services/simulate/worker/fairness_check.h"
#include "services/simulate/worker/worker_stream.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/rate_meter.h"
#include "services/worker/engine/requests/queue_quota.h"
#include "services/worker/engine/schedule/scheduler.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/profile/worker_profile.h"
#include "services/worker/server/lifetime/load_board.h"

namespace continuo::simulate {

// The work of one worker so far.
struct WorkerTotals {
  uint64_t steps = 0;
  absl::Duration busy;            // in steps
  double used_block_seconds = 0;  // KV blocks in use, by the time of the steps
  double running_seconds = 0;     // running sequences, the same way
  int64_t prompt_tokens = 0, sampled_tokens = 0;
  int64_t preemptions = 0;
};

// Tests look at a worker and change it by these. The functions, which may be null, break invariants
// on purpose.
struct TestHooks {
  bool checks = false;                                  // fairness is checked
  std::function<void(engine::Request&)> request;        // before it is queued
  std::function<void(v1::GenerateResponse&)> response;  // before it is sent
};

// Everything of a worker that ends with its process. Plain state of SimulatedWorker, which drives
// it.
struct WorkerProcess {
  // One call of Generate: what its next response says.
  struct Call {
    std::shared_ptr<WorkerStream> stream;
    uint64_t seed = 0;
    v1::Accepted accepted;
    bool accepted_sent = false;
    uint64_t next_sequence = 0;
    uint32_t prompt_tokens = 0, completion_tokens = 0;
    std::string tenant;
  };
  // A prompt whose answers are being computed. A stream that comes back while its last call is
  // still being ended has two.
  struct Prompt {
    int num_tokens = 0, num_calls = 0;
  };
  struct Submitted {
    engine::Request request;
    absl::Duration time;
  };
  struct StepInFlight {
    absl::Duration begin, end;
    model::StepResult result;
  };
  // A message on its way to a gateway.
  struct Sent {
    std::shared_ptr<WorkerStream> stream;
    std::optional<v1::GenerateResponse> response;
    absl::Status end;  // without a response
  };

  // Calibrates the scheduler. Everything passed outlives the process.
  WorkerProcess(const profile::WorkerProfile* worker_profile, uint64_t number,
                const TestHooks* test_hooks);

  // The request of a call, without its deadline, and the call without its stream. INVALID_ARGUMENT
  // if its continuation is none of the answer.
  absl::StatusOr<std::pair<engine::Request, Call>> Prepare(const v1::GenerateRequest& request,
                                                           const gateway::CallContext& context);
  // The result of a step with this plan.
  model::StepResult Sample(const model::StepPlan& plan) const;
  // The sink of a request: puts what the event brings into the outbox.
  void OnEvent(engine::RequestId id, engine::RequestEvent event);

  // Checks what must hold after every event. Internal says what does not.
  absl::Status CheckInvariants();
  // Checks what must hold when no request is open.
  absl::Status CheckAtRest() const;

  const profile::WorkerProfile& profile;
  const TestHooks& hooks;
  const std::string incarnation;
  engine::EngineMetrics metrics;
  engine::Scheduler scheduler;
  engine::QueueQuota quota;
  engine::RateMeter prefilled, decoded;
  // Commands for the next turn: submitted requests, then cancelled ones.
  std::vector<Submitted> inbox;
  std::vector<engine::RequestId> cancelled;
  bool ends_all = false;               // the grace of a drain is over
  std::deque<StepInFlight> in_flight;  // oldest first
  absl::Duration last_step_end;
  bool is_busy = false;                      // a turn or the end of a step is due
  absl::Duration hangs_until, frozen_until;  // by Elapsed
  absl::Duration progress;                   // when a step last ended or work came
  absl::Duration predicted;                  // of the step in flight
  bool is_healthy = true;
  FairnessCheck fairness;
  // Tenants with requests, and with requests in the queue, when the step began.
  std::set<std::string> live, waiting;
  absl::Status fault;    // the first broken invariant that only shows in passing
  bool is_dirty = true;  // something has happened since the last CheckInvariants

  engine::RequestId next_id = 1;
  absl::flat_hash_map<engine::RequestId, Call> calls;
  absl::flat_hash_map<const WorkerStream*, engine::RequestId> ids;
  absl::flat_hash_map<uint64_t, Prompt> prompts;  // by seed
  std::vector<Sent> outbox;

  v1::WorkerState state = v1::WORKER_STATE_SERVING;
  server::WatchPace pace;
  engine::EngineLoad load;  // as of the last step
  uint64_t load_changes = 0, state_changes = 0;
  absl::Duration report_due = absl::InfiniteDuration();
  WorkerTotals totals;
};

}  // namespace continuo::simulate
