// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/event_queue.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/relay/retry_policy.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/worker_call.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

// One call with one answer that a worker computes, admitted and checked.
struct UnaryWork {
  CallContext context;
  std::string model;          // as the client wrote it; empty where one is served
  std::string fingerprint;    // that the worker has to have; empty: any will do
  int64_t prompt_tokens = 0;  // estimate, for routing
  uint64_t seed = 0;          // of the back-offs' jitter
  Admission::Ticket ticket;
};

// Sends a call whose answer depends on its request alone to one worker at a time, until one has
// answered: a worker that is lost, drains or rejects is followed by another one, and while there is
// none the call waits, by the same rules as a stream (RetryPolicy). Knows no messages and no gRPC.
//
// Events may come from any thread; they are handled one at a time (EventQueue).
class UnaryRelay : public std::enable_shared_from_this<UnaryRelay> {
 public:
  // Begins a call to the lease's worker, a migration where an earlier one may still run at some
  // worker. `done` is called once, perhaps before this returns; with OK the answer is there. The
  // result ends the call early.
  using StartCall = std::function<std::function<void()>(
      const Lease& lease, const CallContext& context, bool is_migration,
      std::function<void(absl::Status)> done)>;
  // The call's end. The report's prompt tokens are the estimate, if a worker had the call.
  using Finish = std::function<void(const absl::Status& status, const RelayReport& report)>;

  UnaryRelay(const RelayEnvironment& environment, UnaryWork work, StartCall start, Finish finish);
  UnaryRelay(const UnaryRelay&) = delete;
  UnaryRelay& operator=(const UnaryRelay&) = delete;

  // `finish` is called once behind this.
  void Start();
  // Ends the call with an error: the client is gone, or the gateway ends.
  void End(absl::Status why) { Post(Ended{std::move(why)}); }

 private:
  struct Started {};
  struct CallEnded {
    int attempt;
    absl::Status status;
  };
  struct WorkerLost {  // the router's verdict
    int attempt;
  };
  struct WaitOver {  // a back-off has passed, or the workers have changed
    int64_t wait;
  };
  struct WaitTimedOut {  // a limit of waiting for a worker is reached
    absl::Duration due;
  };
  struct Ended {
    absl::Status why;
  };
  using Event = std::variant<Started, CallEnded, WorkerLost, WaitOver, WaitTimedOut, Ended>;

  void Post(Event event) {
    if (events_.Push(std::move(event))) HandleEvents();
  }
  void HandleEvents();
  std::function<void()> Later(Event event);
  void Handle(Started&) { TryNext(); }
  void Handle(CallEnded& event);
  void Handle(WorkerLost& event);
  void Handle(WaitOver& event);
  void Handle(WaitTimedOut& event);
  void Handle(Ended& event);

  void TryNext();
  absl::StatusOr<Lease> Pick();
  void StartAttempt(Lease lease);
  void LeaveWorker(WorkerEnd end, const absl::Status& status);
  void Follow(const RetryDecision& decision);
  // Waits for a change of the workers, which WaitForChange has been asked for, and for `delay` at
  // most.
  void WaitForWorker(absl::Duration delay);
  void Conclude(const absl::Status& status);
  bool IsCurrent(int attempt) const { return lease_.has_value() && attempt == num_attempts_; }
  // The requested model, else that of the first worker.
  std::string_view model() const { return work_.model.empty() ? report_.model : work_.model; }

  const RelayEnvironment env_;
  const StartCall start_;
  Finish finish_;  // null once called
  EventQueue<Event> events_;

  // All below belongs to the thread that handles events. Times are those of Clock::Elapsed.
  UnaryWork work_;
  const absl::Duration start_time_;
  RetryPolicy retry_;
  int num_attempts_ = 0;
  std::optional<Lease> lease_;  // of the open call
  std::function<void()> cancel_;
  int64_t wait_ = 0;  // number of the current wait
  bool waits_for_worker_ = false;
  // The timer of WaitForWorker goes off at this time. It is kept over changes of the workers, which
  // come more often.
  absl::Duration wait_timer_due_ = absl::InfiniteDuration();
  absl::Duration without_call_since_;
  RelayReport report_;
};

}  // namespace continuo::gateway
