// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/random/bit_gen_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/policy.h"

namespace continuo::gateway {

class Router;

// One request's claim on one worker; counts as in flight there until destroyed. Movable. The
// router outlives its leases.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }

  // The worker as it was when it was picked.
  const WorkerLoad& load() const { return *load_; }
  const std::string& address() const { return load_->address; }
  const std::string& incarnation() const { return load_->incarnation; }

 private:
  friend class Router;
  Lease(Router* router, std::shared_ptr<const WorkerLoad> load, uint64_t id)
      : router_(router), load_(std::move(load)), id_(id) {}
  void Release();

  Router* router_ = nullptr;
  std::shared_ptr<const WorkerLoad> load_;
  uint64_t id_ = 0;
};

// What became of the process that a worker was.
enum class Fate {
  kAlive,    // it has reported since
  kGone,     // refused, replaced by another incarnation, or not there any more
  kHung,     // it is there and computes nothing
  kUnknown,  // nothing heard since
};

struct RouterOptions {
  // A worker whose last report is older takes nothing new.
  absl::Duration max_report_age = absl::Seconds(2);
  // A report may miss a request that was sent this long before it arrived.
  absl::Duration report_lag = absl::Milliseconds(50);
};

// Picks workers with the policy and the current snapshot, and tells those who hold a lease when
// their worker is lost. Thread-safe; callbacks run on the caller of the method that causes them,
// without a lock held.
class Router {
 public:
  // Everything passed outlives the router. `random` is used under a lock.
  Router(Policy policy, const LoadView* view, const Clock* clock, absl::BitGenRef random,
         const RouterOptions& options = {});

  // UNAVAILABLE, reason NO_WORKER: none may take it now, one may appear. NOT_FOUND: the model is
  // unknown. INVALID_ARGUMENT: no model is named and there are several. FAILED_PRECONDITION, reason
  // MODEL_CHANGED: only workers with another tokenizer are left, and none is lost or loading.
  // `on_lost`, where given, is called at most once, while the lease lives or shortly after, when
  // the worker's process is gone, silent or hung; from within Pick, where that has just happened.
  absl::StatusOr<Lease> Pick(const RouteKey& key, std::function<void()> on_lost = nullptr);

  // Whether a worker would begin the request at once (IsFree). False where Pick would fail.
  bool HasFree(const RouteKey& key);

  // Calls back once, at the next change of which workers take requests; perhaps not at all once
  // `owner` is gone.
  void WaitForChange(std::weak_ptr<const void> owner, std::function<void()> on_change);

  // `since`: when it was last heard of, as Clock::Elapsed tells it.
  Fate FateOf(std::string_view address, std::string_view incarnation, absl::Duration since) const;

  // Requests of ours that are open at the address.
  int64_t InFlight(std::string_view address) const;

  // For the writer of the view. The set of workers that take requests has changed:
  void ViewChanged();
  // No process at the address is alive except the incarnation (none where it is empty):
  void WorkerLost(std::string_view address, std::string_view alive_incarnation);

 private:
  friend class Lease;
  struct Open {
    int64_t prompt_tokens;
    bool unreported;
    std::string incarnation;
    std::function<void()> on_lost;
  };
  // What this gateway has open at one address.
  struct InFlightRecord {
    absl::flat_hash_map<uint64_t, Open> open;
    std::deque<std::pair<absl::Duration, uint64_t>> unreported;  // oldest first; ended ones too
    int64_t unreported_requests = 0;
    int64_t unreported_prompt_tokens = 0;
  };

  using Loads = std::vector<std::shared_ptr<const WorkerLoad>>;
  // It takes requests; `now`: as Clock::Elapsed tells it.
  bool IsServing(const WorkerLoad& load, absl::Duration now) const;
  // The workers of the model that do.
  Loads Serving(const LoadSnapshot& snapshot, std::string_view model, absl::Duration now) const;
  // With what this gateway has sent there; in the order of `loads`, which outlive them.
  std::vector<Candidate> Candidates(const Loads& loads) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const std::string& address, uint64_t id);
  // Requests that the report must show are no longer counted beside it.
  void Settle(InFlightRecord& record, absl::Duration report_time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Policy policy_;
  const LoadView* const view_;
  const Clock* const clock_;
  const RouterOptions options_;

  mutable absl::Mutex mutex_;
  absl::BitGenRef random_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, InFlightRecord> in_flight_ ABSL_GUARDED_BY(mutex_);
  struct Waiter {
    std::weak_ptr<const void> owner;
    std::function<void()> on_change;
  };
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  // Waiters whose owners are gone are dropped when there are this many: at most twice as many are
  // kept as wait.
  size_t prune_at_ ABSL_GUARDED_BY(mutex_) = 64;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace continuo::gateway
