// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/router.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

bool IsKnown(const LoadSnapshot& snapshot, std::string_view model) {
  return std::ranges::find(snapshot.known_models, model) != snapshot.known_models.end();
}

// True if the process that `load` describes is not known to be lost or hung.
bool IsThere(const LoadSnapshot& snapshot, const WorkerLoad& load) {
  return std::ranges::any_of(snapshot.workers, [&](const auto& now) {
    return now->address == load.address && now->incarnation == load.incarnation &&
           now->state != WorkerState::kLost && now->state != WorkerState::kHung;
  });
}

// True if a worker of the model, or one that has not reported its model yet, takes nothing now and
// may do so again.
bool MayComeBack(const LoadSnapshot& snapshot, std::string_view model) {
  return !snapshot.discovery_complete ||
         std::ranges::any_of(snapshot.workers, [&](const auto& load) {
           return (load->model == model || load->model.empty()) &&
                  (load->state == WorkerState::kLoading || load->state == WorkerState::kLost ||
                   load->state == WorkerState::kHung);
         });
}

absl::Status NoWorker(const std::string& message) {
  return protocol::WithReason(absl::UnavailableError(message), protocol::kReasonNoWorker);
}

// The name of the requested model, which a request may leave out if there is only one.
absl::StatusOr<std::string> ModelOf(const LoadSnapshot& snapshot, std::string_view model) {
  if (model.empty()) {
    if (snapshot.known_models.size() > 1) {
      return protocol::FieldError("model", absl::StrCat("is needed: ", snapshot.known_models.size(),
                                                        " models are served here"));
    }
    if (snapshot.known_models.empty()) return NoWorker("no worker is there");
    return snapshot.known_models.front();
  }
  if (IsKnown(snapshot, model)) return std::string(model);
  if (snapshot.discovery_complete && !snapshot.known_models.empty()) {
    return absl::NotFoundError(
        absl::StrCat("model \"", std::string(model), "\" is not served here"));
  }
  return NoWorker("no worker is there");
}

}  // namespace

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    Release();
    router_ = std::exchange(other.router_, nullptr);
    load_ = std::move(other.load_);
    id_ = other.id_;
  }
  return *this;
}

void Lease::Release() {
  if (Router* router = std::exchange(router_, nullptr)) router->Release(load_->address, id_);
}

Router::Router(Policy policy, const LoadView* view, const Clock* clock, absl::BitGenRef random,
               const RouterOptions& options)
    : policy_(policy), view_(view), clock_(clock), options_(options), random_(random) {}

bool Router::IsServing(const WorkerLoad& load, absl::Duration now) const {
  return load.state == WorkerState::kServing && now - load.report_time <= options_.max_report_age;
}

Router::Loads Router::Serving(const LoadSnapshot& snapshot, std::string_view model,
                              absl::Duration now) const {
  Loads loads;
  std::ranges::copy_if(snapshot.workers, std::back_inserter(loads), [&](const auto& load) {
    return load->model == model && IsServing(*load, now);
  });
  return loads;
}

std::vector<Candidate> Router::Candidates(const Loads& loads) {
  std::vector<Candidate> candidates;
  candidates.reserve(loads.size());
  for (const auto& load : loads) {
    Candidate& candidate = candidates.emplace_back(Candidate{.load = load.get()});
    const auto record = in_flight_.find(load->address);
    if (record == in_flight_.end()) continue;
    DropReported(record->second, load->report_time);
    candidate.unreported_requests = record->second.unreported_requests;
    candidate.unreported_prompt_tokens = record->second.unreported_prompt_tokens;
    candidate.in_flight_requests = static_cast<int64_t>(record->second.open.size());
  }
  return candidates;
}

bool Router::HasFree(const RouteKey& key) {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::StatusOr<std::string> model = ModelOf(*snapshot, key.model);
  if (!model.ok()) return false;
  const Loads loads = Serving(*snapshot, *model, clock_->Elapsed());
  absl::MutexLock lock(&mutex_);
  return std::ranges::any_of(Candidates(loads),
                             [&](const Candidate& candidate) { return IsFree(key, candidate); });
}

bool Router::IsCold(std::string_view model) const {
  if (options_.declared_models.empty()) return false;
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::StatusOr<std::string> name = ModelOf(*snapshot, model);
  if (!name.ok() || !options_.declared_models.contains(*name)) return false;
  const absl::Duration now = clock_->Elapsed();
  return std::ranges::none_of(snapshot->workers, [&](const auto& load) {
    return load->model == *name && IsServing(*load, now);
  });
}

absl::StatusOr<Lease> Router::Pick(const RouteKey& key, std::function<void()> on_lost) {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::Duration now = clock_->Elapsed();
  ASSIGN_OR_RETURN(const std::string model, ModelOf(*snapshot, key.model));
  const Loads loads = Serving(*snapshot, model, now);
  if (loads.empty()) {
    return NoWorker(absl::StrCat("no worker serves model \"", model, "\" now"));
  }
  const bool same_fingerprint_lost =
      !key.fingerprint.empty() && std::ranges::any_of(snapshot->workers, [&](const auto& load) {
        return load->model == model && load->fingerprint == key.fingerprint &&
               load->state != WorkerState::kDraining && !IsServing(*load, now);
      });

  std::optional<Lease> lease;
  std::function<void()> lost;
  {
    absl::MutexLock lock(&mutex_);
    const std::vector<Candidate> candidates = Candidates(loads);
    std::optional<size_t> pick = FindLastWorker(key, candidates);
    if (!pick.has_value()) pick = policy_(key, candidates, random_);
    const bool continued = !key.fingerprint.empty() || !key.tokenizer_fingerprint.empty();
    const bool exact =
        pick.has_value() &&
        (!continued || (!key.fingerprint.empty() && loads[*pick]->fingerprint == key.fingerprint));
    if (!exact && continued && !key.allow_inexact && same_fingerprint_lost) {
      return NoWorker("the workers that can go on exactly are lost for the moment");
    }
    if (!pick.has_value()) {
      if (continued && !key.exact_only && key.rejected_by.empty() &&
          !MayComeBack(*snapshot, model)) {
        return protocol::WithReason(
            absl::FailedPreconditionError(absl::StrCat(
                "model \"", model, "\" now has another tokenizer; the generation cannot go on")),
            protocol::kReasonModelChanged);
      }
      return NoWorker(key.exact_only && continued
                          ? "no worker is left that can go on exactly"
                          : absl::StrCat("no other worker serves model \"", model, "\" now"));
    }

    const uint64_t id = next_id_++;
    InFlightRecord& record = in_flight_[loads[*pick]->address];
    record.open.emplace(id, Open{.prompt_tokens = key.prompt_tokens,
                                 .unreported = true,
                                 .incarnation = loads[*pick]->incarnation,
                                 .on_lost = std::move(on_lost)});
    record.unreported.emplace_back(now, id);
    record.unreported_requests += 1;
    record.unreported_prompt_tokens += key.prompt_tokens;
    lease = Lease(this, loads[*pick], id);
    // The worker may have been lost since the snapshot was taken, and WorkerLost called before this
    // lease was recorded. The writer sets the view before it calls WorkerLost, so the loss is seen
    // here or reported there.
    if (!IsThere(*view_->Get(), *loads[*pick]))
      lost = std::exchange(record.open[id].on_lost, nullptr);
  }
  if (lost) lost();
  return *std::move(lease);
}

void Router::DropReported(InFlightRecord& record, absl::Duration report_time) {
  while (!record.unreported.empty() &&
         record.unreported.front().first + options_.report_lag < report_time) {
    const auto open = record.open.find(record.unreported.front().second);
    if (open != record.open.end() && open->second.unreported) {
      open->second.unreported = false;
      record.unreported_requests -= 1;
      record.unreported_prompt_tokens -= open->second.prompt_tokens;
    }
    record.unreported.pop_front();
  }
}

void Router::Release(const std::string& address, uint64_t id) {
  std::function<void()> on_lost;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto record = in_flight_.find(address);
  const auto open = record->second.open.find(id);
  if (open->second.unreported) {
    record->second.unreported_requests -= 1;
    record->second.unreported_prompt_tokens -= open->second.prompt_tokens;
  }
  on_lost = std::move(open->second.on_lost);
  record->second.open.erase(open);
  if (record->second.open.empty()) in_flight_.erase(record);
}

void Router::WaitForChange(std::weak_ptr<const void> owner, std::function<void()> on_change) {
  absl::MutexLock lock(&mutex_);
  if (waiters_.size() >= prune_at_) {
    std::erase_if(waiters_, [](const Waiter& waiter) { return waiter.owner.expired(); });
    prune_at_ = std::max<size_t>(64, 2 * waiters_.size());
  }
  waiters_.push_back({std::move(owner), std::move(on_change)});
}

void Router::ViewChanged() {
  std::vector<Waiter> waiters;
  {
    absl::MutexLock lock(&mutex_);
    waiters.swap(waiters_);
  }
  for (const Waiter& waiter : waiters) waiter.on_change();
}

void Router::WorkerLost(std::string_view address, std::string_view alive_incarnation) {
  std::vector<std::function<void()>> lost;
  {
    absl::MutexLock lock(&mutex_);
    const auto record = in_flight_.find(std::string(address));
    if (record == in_flight_.end()) return;
    for (auto& [id, open] : record->second.open) {
      if (open.on_lost && (alive_incarnation.empty() || open.incarnation != alive_incarnation)) {
        lost.push_back(std::exchange(open.on_lost, nullptr));
      }
    }
  }
  for (const auto& on_lost : lost) on_lost();
}

ProcessState Router::CheckProcess(std::string_view address, std::string_view incarnation,
                                  absl::Duration since) const {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  for (const auto& load : snapshot->workers) {
    if (load->address != address) continue;
    if (load->incarnation != incarnation || load->refused) return ProcessState::kExited;
    if (load->state == WorkerState::kHung) return ProcessState::kHung;
    return load->state != WorkerState::kLost && load->report_time > since ? ProcessState::kAlive
                                                                          : ProcessState::kUnknown;
  }
  return ProcessState::kExited;
}

int64_t Router::InFlight(std::string_view address) const {
  absl::MutexLock lock(&mutex_);
  const auto record = in_flight_.find(std::string(address));
  return record == in_flight_.end() ? 0 : static_cast<int64_t>(record->second.open.size());
}

}  // namespace continuo::gateway
