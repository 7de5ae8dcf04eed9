// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/admission/answer_time.h"
#include "services/gateway/admission/queue_wait.h"

namespace continuo::gateway {

// Of one gateway: with three gateways a tenant may have three times as much. 0 is no limit.
struct TenantLimits {
  int64_t max_open_requests = 0;
  double requests_per_second = 0;
  double prompt_tokens_per_second = 0;
  // What may be used at once after a pause, in seconds of the rates.
  double burst_seconds = 10;
  // What generations that go on here may take beyond that, in seconds of the rates. New requests
  // wait until it is paid off. As long as streams live, so that all that a tenant may have begun on
  // a gateway that died can go on here; and a bound, since a client can call anything a
  // continuation.
  double debt_seconds = 600;
};

// Of each limit of all, one tenant may have four fifths of what others leave: alone it leaves a
// fifth, and who comes beside it finds room. A tenant's first request needs only what is free.
struct AdmissionLimits {
  int64_t max_open_requests = 20000;
  // Memory that open requests may take together, in bytes of the wire format.
  int64_t max_open_bytes = int64_t{1} << 30;
  // Prompt tokens, estimated, of requests that have not begun to answer. Requests of negative
  // priority are taken up to half of it.
  int64_t max_queued_tokens = int64_t{1} << 22;
  TenantLimits tenant;
};

// What admission looks at.
struct AdmissionRequest {
  int64_t bytes = 0;
  int64_t tokens = 0;  // of the prompt, estimated
  std::string tenant;
  std::string model;
  int32_t priority = 0;
  std::optional<int64_t> max_tokens;                    // of one sequence of the answer
  absl::Duration time_left = absl::InfiniteDuration();  // until its deadline
  // A worker would begin it at once, whatever waits for others.
  bool has_free_worker = false;
  // It goes on with what a gateway has begun; refusing it would lose a stream. It is charged as any
  // other, but only bound by the limits of all, nine tenths of what others leave of them instead of
  // four fifths, twice max_open_requests of its tenant, and debt_seconds.
  bool is_continuation = false;
};

// Which requests may be open, decided at once and before any work. Thread-safe; outlives its
// tickets.
class Admission {
 public:
  // One admitted request; gives everything back when destroyed. One thread at a time.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }
    // A worker has it and will tell when it reads the prompt, or it has no worker any more.
    void SetSent(bool sent);
    // A worker reads the prompt.
    void MarkRead();
    // The answer has begun: the prompt is no longer queued. Further calls do nothing.
    void MarkStarted();
    // The answer is whole; for the arguments see AnswerTime::Record.
    void MarkAnswered(absl::Duration first, absl::Duration rest, int64_t tokens);

   private:
    friend class Admission;
    struct Claim {
      std::string tenant;
      std::pair<std::string, int32_t> queue;  // which of queues_
      int64_t bytes = 0, tokens = 0, rows = 0;
      QueueWait* wait = nullptr;  // until it is read
      bool sent = false;
      bool queued = true;
    };
    Ticket(Admission* admission, Claim claim) : admission_(admission), claim_(std::move(claim)) {}
    void Release();
    // The admission's lock is held.
    void LeaveWait();
    void LeaveQueue();

    Admission* admission_ = nullptr;
    Claim claim_;
  };

  struct Counts {
    int64_t open_requests = 0, open_bytes = 0, queued_requests = 0, queued_tokens = 0;
  };

  // `clock` outlives the admission; none: the system's.
  explicit Admission(const AdmissionLimits& limits, const Clock* clock = nullptr)
      : limits_(limits), clock_(clock != nullptr ? clock : &system_clock_) {}

  // RESOURCE_EXHAUSTED with RetryInfo, naming the limit. Reason RATE_LIMITED: a limit of the
  // tenant. OVERLOADED: one of all, or the deadline would pass in the queue of its model and
  // priority or before the answer's end, as QueueWait and AnswerTime tell, with a fifth of the time
  // kept for what they do not know; what waits for a tenth of it at most, or not at all because a
  // worker is free, is taken, however long answers take. A request larger than max_queued_tokens is
  // taken where nothing else is queued. DEADLINE_EXCEEDED where no time is left.
  absl::StatusOr<Ticket> Admit(const AdmissionRequest& request);
  Counts counts() const;
  // Counts::queued_tokens by the model that was asked for, as the clients wrote it.
  std::map<std::string, int64_t> queued_tokens_by_model() const;
  // Tenants that something is kept of.
  size_t num_tenants() const;

 private:
  struct Tenant {
    int64_t open_requests = 0, open_bytes = 0, queued_tokens = 0;
    // What it may use now; both filled up to `time`.
    double requests = 0, prompt_tokens = 0;
    absl::Duration time;
  };
  absl::Status CheckAll(const AdmissionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckShare(const AdmissionRequest& request, const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckQueue(const AdmissionRequest& request, const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is measured of the requests of one model and priority.
  struct Queue {
    QueueWait wait;
    // By tenant: how long one's answers are says nothing of another's.
    std::map<std::string, AnswerTime> answers;
  };
  // What is expected of a request, from its tenant's answers.
  struct Forecast {
    absl::Duration answer;
    int64_t rows;  // what a worker has to compute: prompt and answer, in tokens
  };
  static Forecast Predict(const AdmissionRequest& request, const Queue& queue);
  absl::Status CheckDeadline(const AdmissionRequest& request, const Queue& queue,
                             const Forecast& forecast, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTenant(const AdmissionRequest& request, const Tenant& tenant) const;
  // The tenant with its rates filled up to now.
  Tenant& FindTenant(const std::string& name, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Queue& FindQueue(const AdmissionRequest& request, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing is open and nothing was used lately: it is as if it had never been there.
  bool IsFresh(const Tenant& tenant, absl::Duration now) const;

  const AdmissionLimits limits_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> queued_by_model_ ABSL_GUARDED_BY(mutex_);  // none is 0
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  // By model and priority.
  std::map<std::pair<std::string, int32_t>, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  // Tenants and queues that nothing is to be kept of are dropped when there are so many.
  size_t prune_tenants_at_ ABSL_GUARDED_BY(mutex_) = 64;
  size_t prune_queues_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace continuo::gateway
