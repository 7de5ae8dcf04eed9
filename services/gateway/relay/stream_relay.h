// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/base/clock.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/attempt.h"
#include "services/gateway/relay/client_outbox.h"
#include "services/gateway/relay/event_queue.h"
#include "services/gateway/relay/relay_client.h"
#include "services/gateway/relay/relay_observer.h"
#include "services/gateway/relay/relay_stats.h"
#include "services/gateway/relay/retry_budget.h"
#include "services/gateway/relay/retry_policy.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/relay/worker_call.h"
#include "services/gateway/relay/worker_end.h"
#include "services/gateway/routing/router.h"
#include "services/protocol/continuation.h"

namespace continuo::gateway {

struct RelayOptions {
  RetryOptions retry;
  ClientOutboxOptions outbox;
};

// The objects that all relays share and that outlive them.
struct RelayEnvironment {
  Router* router = nullptr;
  WorkerTransport* transport = nullptr;
  Timer* timer = nullptr;
  const Clock* clock = nullptr;
  RelayObserver* observer = nullptr;
  RetryBudget* budget = nullptr;  // null: retries have no bound
  RelayOptions options;
};

// One call of a client, admitted and checked.
struct RelayRequest {
  v1::GenerateRequest request;
  CallContext context;
  int64_t prompt_tokens = 0;                   // estimate, for routing
  uint64_t prefix_hash = 0, session_hash = 0;  // for routing, see RouteKey
  uint64_t seed = 0;                           // of the back-offs' jitter
  Admission::Ticket ticket;
};

// Joins one client stream to one worker stream at a time; the core of the gateway, without gRPC.
// Keeps what was delivered. When the worker is lost or drains, the relay sends the request with
// that to another worker, so the client sees a pause and then exactly what it would have seen
// (exactness: relay-edits-nothing, migrations-first, same-fingerprint, query-of-death).
//
// Events may come from any thread. They are queued and handled one at a time (EventQueue), so all
// state but the queue belongs to the thread that handles. It also makes the calls out, without a
// lock: an event that such a call causes is handled after the current one. Transports, time and
// random bits are passed in, so the same code runs in a simulation.
class StreamRelay : public std::enable_shared_from_this<StreamRelay> {
 public:
  // `client` is not used after its Finish, which is always called in the end.
  StreamRelay(const RelayEnvironment& environment, RelayRequest request, RelayClient* client);
  StreamRelay(const StreamRelay&) = delete;
  StreamRelay& operator=(const StreamRelay&) = delete;

  // Called before Start: this relay goes on with the generation of `other`, which ends with ABORTED
  // first, so that no two workers compute it at a time.
  void Replace(StreamRelay& other);
  // Events that arrive earlier are handled here; until then the client is not called.
  void Start();

  // Events of the client.
  void OnWritten(bool ok) { Post(ClientWrote{ok}); }
  void OnCancelled() { Post(ClientCancelled{}); }
  // Events of the worker. `attempt` is the number that WorkerTransport::Start got.
  // The worker has accepted the request; with output.collect, Accepted itself comes only in the one
  // response.
  void OnAccepted(int attempt) { Post(WorkerAccepted{attempt}); }
  void OnResponse(int attempt, v1::GenerateResponse response) {
    Post(WorkerResponded{attempt, std::move(response)});
  }
  void OnWorkerEnd(int attempt, absl::Status status) {
    Post(WorkerEnded{attempt, std::move(status)});
  }
  // The client gets what has been received, then `status`. `then` is called once neither this relay
  // nor one that it replaces has a call at a worker any more, or will have one.
  void End(absl::Status status, std::function<void()> then = nullptr) {
    Post(GatewayEnds{std::move(status), std::move(then)});
  }
  // The gateway no longer waits for the client to read the end.
  void GiveUp() { Post(ClientGivenUp{}); }

 private:
  enum class State {
    kNew,               // Start has not been handled, or the relay that this one replaces goes on
    kBackingOff,        // without a call; the next one follows a delay
    kWaitingForWorker,  // without a call; the next one follows a change of the workers
    kCalling,           // a call to a worker is open
    kConcluded,         // the status is known; the client still gets responses
    kFinished,          // the client has its status
  };

  struct Started {};
  struct ClientWrote {
    bool ok;
  };
  struct ClientCancelled {};
  struct WorkerAccepted {
    int attempt;
  };
  struct WorkerResponded {
    int attempt;
    v1::GenerateResponse response;
  };
  struct WorkerEnded {
    int attempt;
    absl::Status status;
  };
  struct WorkerLost {  // the router's verdict
    int attempt;
  };
  struct WaitOver {  // the back-off has passed, or the workers have changed
    int64_t wait;
  };
  struct WaitTimedOut {  // a limit of waiting for a worker is reached
    absl::Duration due;
  };
  struct GatewayEnds {
    absl::Status status;
    std::function<void()> then;
  };
  struct ReplacedEnded {};  // the relay that this one replaces
  struct ClientGivenUp {};
  using Event = std::variant<Started, ClientWrote, ClientCancelled, WorkerAccepted, WorkerResponded,
                             WorkerEnded, WorkerLost, WaitOver, WaitTimedOut, GatewayEnds,
                             ReplacedEnded, ClientGivenUp>;

  void Post(Event event) {
    if (events_.Push(std::move(event))) HandleEvents();
  }
  void HandleEvents();
  // A callback that posts the event, unless the relay is gone by then.
  std::function<void()> Later(Event event);
  void Handle(Started&) {
    is_started_ = true;
    if (state_ == State::kNew && !awaits_replaced_) TryNext();
  }
  void Handle(ClientWrote& event);
  void Handle(ClientCancelled&);
  void Handle(WorkerAccepted& event);
  void Handle(WorkerResponded& event);
  void Handle(WorkerEnded& event);
  void Handle(WorkerLost& event);
  void Handle(WaitOver& event);
  void Handle(WaitTimedOut& event);
  void Handle(GatewayEnds& event);
  void Handle(ReplacedEnded&);
  void Handle(ClientGivenUp&) {
    if (state_ == State::kConcluded) client_->OnGivenUp(conclusion_, Report());
  }
  // Follows each event: writes to the client, ends its stream, reads from the worker.
  void Pump();

  // Makes the next call if that is possible now, else waits or concludes.
  void TryNext();
  absl::StatusOr<Lease> Pick(absl::Duration now);
  void StartAttempt(Lease lease);
  // The current worker cannot go on. `has_ended`: its stream has.
  void LeaveWorker(WorkerEnd end, const absl::Status& status, bool has_ended);
  void EndAttempt(std::string_view reason, bool migrates, absl::Duration now);
  void Follow(const RetryDecision& decision);
  // Waits for a change of the workers, which WaitForChange has been asked for, and for `delay` at
  // most.
  void WaitForWorker(absl::Duration delay);
  void Conclude(absl::Status status);

  // True if the event is of the open call; else it is late.
  bool IsCurrent(int attempt) const {
    return attempt_.has_value() && attempt_->number() == attempt;
  }
  bool IsDeadlineOver() const { return env_.clock->Now() >= call_.context.deadline; }
  const RelayReport& Report();

  const RelayEnvironment env_;
  RelayClient* const client_;
  EventQueue<Event> events_;

  // All below belongs to the thread that handles events. Times are those of Clock::Elapsed; only
  // the deadline is wall time.
  RelayRequest call_;  // of the client
  protocol::ReceivedResponses received_;

  State state_ = State::kNew;
  bool is_started_ = false;
  bool awaits_replaced_ = false;
  std::vector<std::function<void()>> on_end_;  // of End, while awaits_replaced_
  int num_attempts_ = 0;
  std::optional<Attempt> attempt_;  // kCalling
  int64_t wait_ = 0;                // number of the current wait; WaitOver of another one is late
  // The timer of WaitForWorker goes off at this time. It is kept over changes of the workers, which
  // come more often.
  absl::Duration wait_timer_due_ = absl::InfiniteDuration();
  absl::Status conclusion_;  // kConcluded and kFinished

  RetryPolicy retry_;
  ClientOutbox outbox_;
  RelayStats stats_;
};

}  // namespace continuo::gateway
