// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
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

// One request's claim on one worker. It counts as in flight there until it is destroyed. Movable.
// The router outlives its leases.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }

  // The worker's state and load when it was picked.
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

// The state of a worker's process, as far as this gateway knows.
enum class ProcessState {
  kAlive,    // it has reported since
  kExited,   // it refused a connection, another incarnation answers, or the worker left DNS
  kHung,     // it is there and computes nothing
  kUnknown,  // it has not been heard of since
};

struct RouterOptions {
  // A worker whose last report is older gets no new request.
  absl::Duration max_report_age = absl::Seconds(2);
  // A report may miss a request that was sent this long before it arrived.
  absl::Duration report_lag = absl::Milliseconds(50);
  // The models of --models, without adapters: their workers may all be stopped, and start for a
  // request.
  std::set<std::string, std::less<>> declared_models;
};

// Picks workers with the policy and the current snapshot, and calls back the holders of leases when
// their worker is lost. Thread-safe; callbacks run on the thread that calls the method which causes
// them, without a lock.
class Router {
 public:
  // All arguments outlive the router. `random` is used under a lock.
  Router(Policy policy, const LoadView* view, const Clock* clock, absl::BitGenRef random,
         const RouterOptions& options = {});

  // Errors: UNAVAILABLE, reason NO_WORKER: no worker may take the request now, one may appear.
  // NOT_FOUND: the model is unknown. INVALID_ARGUMENT: no model is named and there are several.
  // FAILED_PRECONDITION, reason MODEL_CHANGED: only workers with another tokenizer are left, and
  // none is lost or loading. `on_lost`, if given, is called at most once, while the lease lives or
  // shortly after, when the worker's process has exited, is silent or hangs; from within Pick if
  // that has just happened.
  absl::StatusOr<Lease> Pick(const RouteKey& key, std::function<void()> on_lost = nullptr);

  // True if a worker would begin the request at once (IsFree). False if Pick would fail.
  bool HasFree(const RouteKey& key);

  // True if a worker takes requests for the lease's model besides its own and those of `failures`.
  bool HasOther(const Lease& lease, std::span<const Failure> failures) const;

  // True if the model is declared and no worker takes requests for it now, so that one may have to
  // be started. `model` may be empty if only one model is served.
  bool IsCold(std::string_view model) const;

  // Calls back once, at the next change of the set of workers that take requests; perhaps not at
  // all once `owner` is gone.
  void WaitForChange(std::weak_ptr<const void> owner, std::function<void()> on_change);

  // The state of the process that served at the address as `incarnation` and was last heard of at
  // `since`, by Clock::Elapsed.
  ProcessState CheckProcess(std::string_view address, std::string_view incarnation,
                            absl::Duration since) const;

  // Returns the number of this gateway's requests that are open at the address.
  int64_t InFlight(std::string_view address) const;

  // Called by the writer of the view after the set of workers that take requests has changed.
  void ViewChanged();
  // Called by the writer of the view: no process at the address is alive except
  // `alive_incarnation`, which is empty if none is.
  void WorkerLost(std::string_view address, std::string_view alive_incarnation);

 private:
  friend class Lease;
  struct Open {
    int64_t prompt_tokens;
    bool unreported;
    std::string incarnation;
    std::function<void()> on_lost;
  };
  // The requests that this gateway has open at one address.
  struct InFlightRecord {
    absl::flat_hash_map<uint64_t, Open> open;
    std::vector<std::pair<absl::Duration, uint64_t>> unreported;  // oldest first; ended ones too
    int64_t unreported_requests = 0;
    int64_t unreported_prompt_tokens = 0;
  };

  // A worker that was picked; null where none was.
  using Load = std::shared_ptr<const WorkerLoad>;

  // True if the worker takes requests. `now` is that of Clock::Elapsed.
  bool IsServing(const WorkerLoad& load, absl::Duration now) const;
  // The worker with the requests that this gateway has sent there.
  Candidate CandidateOf(const WorkerLoad& load) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By the snapshot's table, without a look at each worker. It may miss a worker that ChooseOfAll
  // finds.
  Load ChooseByTable(const LoadSnapshot& snapshot, std::string_view model, const RouteKey& key,
                     absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From a list of all workers of the model that take requests.
  Load ChooseOfAll(const LoadSnapshot& snapshot, std::string_view model, const RouteKey& key,
                   absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const std::string& address, uint64_t id);
  // Stops counting requests beside the report that the report must show.
  void DropReported(InFlightRecord& record, absl::Duration report_time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Policy policy_;
  const ChoicePolicy choice_policy_;  // null for a policy that needs a list
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
  // Waiters whose owners are gone are dropped when there are this many, so at most twice as many
  // are kept as wait.
  size_t prune_at_ ABSL_GUARDED_BY(mutex_) = 64;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace continuo::gateway
