// SPDX-License-Identifier: Apache-2.0
#pragma once

// One client stream joined to one worker stream at a time; the core of the gateway, without gRPC.
// Transports, time and random bits are passed in, so that the same code runs in a simulation.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/base/clock.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/received.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/relay/retry_budget.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/relay/worker_end.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

class StreamRelay;

// The client's side. The relay makes one call at a time and waits for OnWritten in between; it
// makes no call after Finish.
class RelayClient {
 public:
  virtual ~RelayClient() = default;
  // StreamRelay::OnWritten follows. The response is not needed after the return.
  virtual void Write(const v1::GenerateResponse& response) = 0;
  virtual void Finish(const absl::Status& status, const RelayReport& report) = 0;
  // It does not read, and the process ends: what Finish would be told. Finish may follow.
  virtual void OnGivenUp(const absl::Status& /*status*/, const RelayReport& /*report*/) {}
};

// One call to a worker. StartRead is followed by one StreamRelay::OnResponse, or by OnWorkerEnd,
// after which there is nothing more. A call that is given up is cancelled and reports nothing that
// the relay would listen to.
class WorkerCall {
 public:
  virtual ~WorkerCall() = default;
  virtual void StartRead() = 0;
  virtual void Abandon() = 0;
};

// What a call to a worker carries beside the request.
struct CallContext {
  std::string request_id, tenant;
  // Names the client's call among all: a worker knows by it that a move is of the very call that it
  // has. Empty where nothing moves.
  std::string call_id;
  // traceparent, tracestate, x-session-id, as the client sent them.
  std::vector<std::pair<std::string, std::string>> forwarded;
  absl::Time deadline = absl::InfiniteFuture();
};

class WorkerTransport {
 public:
  virtual ~WorkerTransport() = default;
  // Begins a call; no event reaches the relay before StartRead. `attempt` goes with each of its
  // events. The request is not needed after the return.
  virtual std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                            const Lease& lease, const v1::GenerateRequest& request,
                                            const CallContext& context, bool is_move) = 0;
};

// Told what happens while it happens; shared by all relays. Thread-safe.
class RelayObserver {
 public:
  virtual ~RelayObserver() = default;
  virtual void OnFirstToken(std::string_view model, absl::Duration since_start) = 0;
  // Between two responses with tokens, `tokens` in the second; moves are not left out.
  virtual void OnTokens(std::string_view model, absl::Duration since_last, int tokens) = 0;
  // `reason`: "drained", "lost", "silent", "fault" or "overloaded".
  virtual void OnMove(std::string_view model, std::string_view reason) = 0;
  // From the loss to the first response of the next worker.
  virtual void OnStall(std::string_view model, absl::Duration stall) = 0;
};

struct RelayOptions {
  // How long a stream may be without any worker, in all, until it makes progress again.
  absl::Duration no_worker_wait = absl::Seconds(30);
  // Before the n-th move without progress: uniform in [1/2, 1] of base · 2^(n-1), at most max.
  absl::Duration backoff_base = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(1);
  // How long to hope for a worker of the same fingerprint whose connection is down, before going
  // on inexactly.
  absl::Duration exact_wait = absl::Milliseconds(500);
  // Worker processes that one request may take with it.
  int max_deaths = 3;
  // How long after its loss a worker that is not heard of may still turn out to have died; then it
  // is taken to have been cut off.
  absl::Duration fate_wait = absl::Seconds(5);
  // Ends that may be the worker's own defect, without progress, before the client gets them.
  int max_suspects = 3;
  // Workers that may refuse a new request before the client is refused.
  int max_refusals = 3;
  // What may wait for a slow reader before the worker's stream is read no further.
  size_t max_buffered_bytes = 64 << 10;
  size_t max_buffered_responses = 16;
};

// What all relays share. All of it outlives them.
struct RelayEnvironment {
  Router* router = nullptr;
  WorkerTransport* transport = nullptr;
  Timer* timer = nullptr;
  const Clock* clock = nullptr;
  RelayObserver* observer = nullptr;
  RetryBudget* budget = nullptr;  // none: there is no bound
  RelayOptions options;
};

// One call, admitted and checked.
struct RelayRequest {
  v1::GenerateRequest request;
  CallContext context;
  int64_t prompt_tokens = 0;                   // estimate, for routing
  uint64_t prefix_hash = 0, session_hash = 0;  // for routing, see RouteKey
  uint64_t seed = 0;                           // of the jitter
  Admission::Ticket ticket;
};

// Keeps what was delivered, and when its worker is lost or drains sends the request with it to
// another one: the client sees a pause and then exactly what it would have seen (exactness:
// relay-edits-nothing, replay, migrations-first, same-fingerprint, query-of-death).
//
// Events may come from any thread; they are put in a queue and handled one at a time, so that all
// state but the queue belongs to whoever drains it. Calls out are made from there too, without a
// lock: an event that they cause is handled after the current one.
class StreamRelay : public std::enable_shared_from_this<StreamRelay> {
 public:
  // `client` is not used after its Finish, which is always called in the end.
  StreamRelay(const RelayEnvironment& environment, RelayRequest request, RelayClient* client);
  StreamRelay(const StreamRelay&) = delete;
  StreamRelay& operator=(const StreamRelay&) = delete;

  // What else is called before has its effect here; until then the client is not called.
  void Start();

  // From the client's side.
  void OnWritten(bool ok);
  void OnCancelled();
  // From the worker's side.
  // The request has started there, though Accepted may come only in its one response.
  void OnAccepted(int attempt);
  void OnResponse(int attempt, v1::GenerateResponse response);
  void OnWorkerEnd(int attempt, absl::Status status);
  // From the gateway that ends: what is delivered stays delivered, then `status`.
  void End(absl::Status status);
  // Nobody waits any longer for the client to read that.
  void GiveUp();

 private:
  struct Event {
    enum class Kind {
      kStart,
      kWritten,
      kCancelled,
      kAccepted,
      kResponse,
      kWorkerEnd,
      kWorkerLost,
      kRetry,
      kLook,
      kEnd,
      kGiveUp
    };
    Kind kind;
    int64_t id = 0;  // attempt, wait or look, to tell late events; for kWritten: ok
    v1::GenerateResponse response;
    absl::Status status;
  };
  // A worker process that perhaps died of this request.
  struct Death {
    std::string address, incarnation;
    absl::Duration time;  // when it was last known to be there
  };

  void Post(Event event);
  void Handle(Event& event);

  void TryNext();
  // True where the request has ended as many processes as it may; false: go on. nullopt: not known
  // yet, ask again.
  std::optional<bool> IsPoison();
  // Whether the next call may be made now: the first, and the first move since the last progress,
  // always; more only as the budget of all streams has it.
  bool MayTry();
  absl::StatusOr<Lease> Pick();
  void StartCall(Lease lease);
  void HandleAccepted(absl::Duration now);
  void HandleResponse(v1::GenerateResponse response);
  void NoteAnswerTime(const v1::Timings& timings);
  void HandleWorkerEnd(const absl::Status& status);
  // The current worker cannot go on: another one after a back-off.
  void Move(std::string_view reason, const absl::Status& status);
  // `reason` of RelayAttempt.
  void DropCall(bool abandon, std::string_view reason = "");
  void RetryAfter(absl::Duration delay);
  // Waits for a change of the workers, and looks again at the latest then.
  void AwaitChange(absl::Duration delay);
  void Pump();
  // What is known only at the end.
  void CompleteReport();
  void Conclude(absl::Status status);

  absl::Duration Backoff();
  std::string_view model() const;

  const RelayEnvironment env_;
  const RelayOptions& options_ = env_.options;
  RelayClient* const client_;

  absl::Mutex mutex_;
  std::vector<Event> inbox_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;

  // All below belongs to whoever drains the inbox.
  v1::GenerateRequest request_;
  CallContext context_;
  int64_t prompt_tokens_;
  const uint64_t prefix_hash_, session_hash_;
  uint64_t random_state_;
  Admission::Ticket ticket_;
  Received received_;
  // Moments are as Clock::Elapsed tells them; only the deadline is wall time.
  const absl::Duration start_time_;

  int attempt_ = 0;        // of the current call; events of others are late
  bool admitted_ = false;  // a worker may have taken the request: from here on calls are moves
  std::shared_ptr<WorkerCall> call_;
  std::optional<Lease> lease_;
  absl::Duration call_time_;
  bool reading_ = false;
  bool accepted_here_ = false;  // by the current worker
  bool progress_here_ = false;  // something new from the current worker

  int64_t wait_ = 0;      // the current retry; earlier ones are late
  bool waiting_ = true;   // no call is open
  bool looking_ = false;  // where waiting_: for a change of the workers
  // The timer that looks again; changes come more often than it goes off, so it is kept.
  int64_t look_ = 0;
  absl::Duration look_time_ = absl::InfiniteDuration();
  absl::Duration wait_begin_;
  absl::Duration waited_;  // without a call, since the last progress
  int fruitless_ = 0;      // moves since the last progress
  bool may_try_ = false;   // the budget has allowed the next call
  int suspects_ = 0;
  std::vector<Failure> failures_;
  std::vector<std::string> refused_;
  std::vector<Death> deaths_;
  std::string_view move_reason_;
  absl::Status last_error_;
  std::optional<absl::Duration> lost_at_;

  std::deque<v1::GenerateResponse> to_client_;
  size_t to_client_bytes_ = 0;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<absl::Status> conclusion_;  // sent when everything is written

  RelayReport report_;
  int64_t tokens_before_ = 0;                    // that the client brought
  std::optional<absl::Duration> accepted_time_;  // the first one
  std::optional<absl::Duration> last_token_time_;
};

}  // namespace continuo::gateway
