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

namespace continuo::gateway {

// Of one gateway: with three gateways a tenant may have three times as much. 0 is no limit.
struct TenantLimits {
  int64_t max_open_requests = 0;
  double requests_per_second = 0;
  double prompt_tokens_per_second = 0;
  // What may be used at once after a pause, in seconds of the rates.
  double burst_seconds = 10;
};

struct AdmissionLimits {
  int64_t max_open_requests = 20000;
  // Memory that open requests may take together, in bytes of the wire format.
  int64_t max_open_bytes = int64_t{1} << 30;
  // Prompt tokens, estimated, of requests that have not begun to answer. Requests of negative
  // priority are taken up to half of it. One tenant may queue four times what is still free: alone
  // it stops at four fifths, and who comes beside it finds room.
  int64_t max_queued_tokens = int64_t{1} << 22;
  TenantLimits tenant;
};

// What admission looks at.
struct AdmissionRequest {
  int64_t bytes = 0;
  int64_t tokens = 0;  // of the prompt, estimated
  std::string tenant;
  int32_t priority = 0;
  absl::Duration time_left = absl::InfiniteDuration();  // until its deadline
};

// Which requests may be open, decided at once and before any work. Thread-safe; outlives its
// tickets.
class Admission {
 public:
  // One admitted request; gives everything back when destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }
    // The answer has begun: the prompt is no longer queued. Further calls do nothing.
    void MarkStarted();

   private:
    friend class Admission;
    Ticket(Admission* admission, const AdmissionRequest& request, absl::Duration time,
           int64_t tokens_ahead)
        : admission_(admission),
          tenant_(request.tenant),
          bytes_(request.bytes),
          queued_tokens_(request.tokens),
          time_(time),
          tokens_ahead_(tokens_ahead) {}
    void Release();
    // The admission's lock is held.
    void LeaveQueue();

    Admission* admission_ = nullptr;
    std::string tenant_;
    int64_t bytes_ = 0;
    int64_t queued_tokens_ = 0;
    absl::Duration time_;       // of admission
    int64_t tokens_ahead_ = 0;  // that were queued then
    bool queued_ = true;
  };

  struct Counts {
    int64_t open_requests = 0, open_bytes = 0, queued_requests = 0, queued_tokens = 0;
  };

  // `clock` outlives the admission; none: the system's.
  explicit Admission(const AdmissionLimits& limits, const Clock* clock = nullptr)
      : limits_(limits), clock_(clock != nullptr ? clock : &system_clock_) {}

  // RESOURCE_EXHAUSTED with RetryInfo, naming the limit. Reason RATE_LIMITED: a limit of the
  // tenant. OVERLOADED: one of all, or the deadline would pass in the queue: what began lately
  // waited longer than that behind no more than is queued now. A request larger than
  // max_queued_tokens is taken where nothing else is queued.
  absl::StatusOr<Ticket> Admit(const AdmissionRequest& request);
  absl::StatusOr<Ticket> Admit(int64_t bytes, int64_t tokens) {
    return Admit({.bytes = bytes, .tokens = tokens});
  }
  Counts counts() const;
  // Tenants that something is kept of.
  size_t num_tenants() const;

 private:
  struct Tenant {
    int64_t open_requests = 0, queued_tokens = 0;
    // What it may use now; both filled up to `time`.
    double requests = 0, prompt_tokens = 0;
    absl::Duration time;
  };
  // How long requests waited that began to answer lately; recent ones count more.
  struct Waits {
    double seconds = 0;
    double tokens_ahead = 0;
    absl::Duration time;  // of the latest
  };

  absl::Status CheckAll(const AdmissionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckQueue(const AdmissionRequest& request, const Tenant& tenant,
                          absl::Duration now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTenant(const Tenant& tenant) const;
  // The tenant with its rates filled up to now.
  Tenant& FindTenant(const std::string& name, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing is open and nothing was used lately: it is as if it had never been there.
  bool IsFresh(const Tenant& tenant, absl::Duration now) const;

  const AdmissionLimits limits_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  size_t prune_at_ ABSL_GUARDED_BY(mutex_) = 64;
  std::optional<Waits> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
