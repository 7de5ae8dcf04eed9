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

// Limits of each tenant at one gateway; with three gateways a tenant may have three times as much.
// 0 means no limit.
struct TenantLimits {
  int64_t max_open_requests = 0;
  // Requests that wait for a cold model (AdmissionRequest::is_cold).
  int64_t max_cold_requests = 256;
  double requests_per_second = 0;
  double prompt_tokens_per_second = 0;
  // The amount that may be used at once after a pause, in seconds of the rates.
  double burst_seconds = 10;
  // The debt that continuations may take beyond that, in seconds of the rates. New requests wait
  // until it is paid off. It is as long as streams live, so that everything a tenant may have begun
  // at a gateway that died can go on here. It is bounded, since a client can call anything a
  // continuation.
  double debt_seconds = 600;
};

// Limits of all tenants together. A tenant may use at most 80 % of the capacity that other tenants
// leave free, so a newcomer always finds room. A tenant's first request needs only free capacity.
struct AdmissionLimits {
  int64_t max_open_requests = 20000;
  // The memory of all open requests, in bytes of the wire format.
  int64_t max_open_bytes = int64_t{1} << 30;
  // The estimated prompt tokens of all requests that have not begun to answer. Requests of negative
  // priority are admitted up to half of it.
  int64_t max_queued_tokens = int64_t{1} << 22;
  TenantLimits tenant;
};

// The part of a request that admission looks at.
struct AdmissionRequest {
  int64_t bytes = 0;
  int64_t tokens = 0;  // of the prompt, estimated
  std::string tenant;
  std::string model;
  int32_t priority = 0;
  std::optional<int64_t> max_tokens;                    // of one sequence of the answer
  absl::Duration time_left = absl::InfiniteDuration();  // until its deadline
  // A worker would begin it at once, although others wait.
  bool has_free_worker = false;
  // Its model has no worker, so it may wait for minutes. All such requests together have half of
  // each limit of all, so that other models' requests find room.
  bool is_cold = false;
  // It continues a stream that a gateway has begun; rejecting it would lose the stream. It is
  // charged like any request, but bound only by the limits of all, by 90 % instead of 80 % of what
  // other tenants leave, by twice its tenant's max_open_requests, and by debt_seconds.
  bool is_continuation = false;
};

// Decides which requests may be open, at once and before any work. Thread-safe; outlives its
// tickets.
class Admission {
 public:
  // One admitted request. It gives everything back when it is destroyed. Used by one thread at a
  // time.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }
    // True: a worker has the request and will report the begin of its prefill; the request does not
    // count as cold any more. False: the request has no worker.
    void SetSent(bool sent);
    // A worker has begun the prompt.
    void MarkRead();
    // The answer has begun: the prompt is no longer queued. Further calls do nothing.
    void MarkStarted();
    // The answer is complete. See AnswerTime::Record for the arguments.
    void MarkAnswered(absl::Duration first, absl::Duration rest, int64_t tokens);

   private:
    friend class Admission;
    struct Claim {
      std::string tenant;
      std::pair<std::string, int32_t> queue;  // key in queues_
      int64_t bytes = 0, tokens = 0, work_tokens = 0;
      QueueWait* wait = nullptr;  // until prefill begins
      bool cold = false;          // until a worker has it
      bool sent = false;
      bool queued = true;
    };
    Ticket(Admission* admission, Claim claim) : admission_(admission), claim_(std::move(claim)) {}
    void Release();
    // These are called with the admission's lock held.
    void LeaveCold();
    void LeaveWait();
    void LeaveQueue();

    Admission* admission_ = nullptr;
    Claim claim_;
  };

  struct Counts {
    int64_t open_requests = 0, open_bytes = 0, queued_requests = 0, queued_tokens = 0;
    int64_t cold_requests = 0, cold_bytes = 0, cold_tokens = 0;
    // The largest ratio of use to limit, of the limits that all tenants share; above 1 where one
    // request exceeds a limit.
    double SaturationOf(const AdmissionLimits& limits) const;
  };

  // `clock` outlives the admission; null means the system's clock.
  explicit Admission(const AdmissionLimits& limits, const Clock* clock = nullptr)
      : limits_(limits), clock_(clock != nullptr ? clock : &system_clock_) {}

  // Errors: RESOURCE_EXHAUSTED with RetryInfo, naming the limit; the reason is RATE_LIMITED for a
  // limit of the tenant and OVERLOADED for one of all. DEADLINE_EXCEEDED if no time is left.
  //
  // OVERLOADED is also a request whose deadline would pass in the queue of its model and priority
  // (QueueWait) or before the end of its answer (AnswerTime). A fifth of the time is kept in
  // reserve for the errors of both forecasts. A request that waits for at most a tenth of its time,
  // or finds a free worker, is admitted however long answers take. A request larger than
  // max_queued_tokens is admitted if nothing else is queued.
  absl::StatusOr<Ticket> Admit(const AdmissionRequest& request);
  Counts counts() const;
  const AdmissionLimits& limits() const { return limits_; }
  // The counts of one requested model.
  struct ModelCounts {
    int64_t open_requests = 0, queued_tokens = 0;
    bool operator==(const ModelCounts&) const = default;
  };
  // By model as the clients wrote it; those with open requests.
  std::map<std::string, ModelCounts> counts_by_model() const;
  // The number of tenants that are remembered. For tests.
  size_t num_tenants() const;

 private:
  struct Tenant {
    int64_t open_requests = 0, open_bytes = 0, queued_tokens = 0, cold_requests = 0;
    // The amounts that it may use now, below 0 in debt. Both are filled up to `time`.
    double requests = 0, prompt_tokens = 0;
    absl::Duration time;
  };
  absl::Status CheckAll(const AdmissionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckCold(const AdmissionRequest& request, const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckShare(const AdmissionRequest& request, const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckQueue(const AdmissionRequest& request, const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The measurements of the requests of one model and priority.
  struct Queue {
    QueueWait wait;
    // By tenant: the length of one tenant's answers says nothing of another's.
    std::map<std::string, AnswerTime> answers;
  };
  // The forecast of a request, from its tenant's answers.
  struct Forecast {
    absl::Duration answer;
    int64_t work_tokens;  // the tokens of prompt and answer that a worker has to compute
  };
  static Forecast Predict(const AdmissionRequest& request, const Queue& queue);
  absl::Status CheckDeadline(const AdmissionRequest& request, const Queue& queue,
                             const Forecast& forecast, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTenant(const AdmissionRequest& request, const Tenant& tenant) const;
  // Returns the tenant with its rates filled up to now.
  Tenant& FindTenant(const std::string& name, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Queue& FindQueue(const AdmissionRequest& request, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if nothing is open and nothing was used lately, so the tenant need not be remembered.
  bool IsFresh(const Tenant& tenant, absl::Duration now) const;

  const AdmissionLimits limits_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  // Has the models with open requests.
  std::map<std::string, ModelCounts> by_model_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  // By model and priority.
  std::map<std::pair<std::string, int32_t>, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  // Tenants and queues that need not be remembered are dropped when there are this many.
  size_t prune_tenants_at_ ABSL_GUARDED_BY(mutex_) = 64;
  size_t prune_queues_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace continuo::gateway
