// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/router.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/routing/indexed_choices.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

bool IsKnown(const LoadSnapshot& snapshot, std::string_view model) {
  return std::ranges::binary_search(snapshot.known_models, model);
}

// True if the process that `load` describes is not known to be lost or hung.
bool IsThere(const LoadSnapshot& snapshot, const WorkerLoad& load) {
  return std::ranges::any_of(snapshot.table->AtAddress(load.address), [&](uint32_t i) {
    const WorkerLoad& now = *snapshot.workers[i];
    return now.incarnation == load.incarnation && now.state != WorkerState::kLost &&
           now.state != WorkerState::kHung;
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

// True if a worker of the model says that it serves.
bool IsServed(const LoadSnapshot& snapshot, std::string_view model) {
  return std::ranges::any_of(snapshot.table->GroupsOf(model), [&](const RouteGroup& group) {
    return !snapshot.group_loads[group.number].serving.empty();
  });
}

// The name of the requested model, which a request may leave out if there is only one.
absl::StatusOr<std::string> ModelOf(const LoadSnapshot& snapshot, std::string_view model) {
  if (model.empty()) {
    std::vector<std::string> models = BaseModels(snapshot);
    if (models.size() > 1) {
      return protocol::FieldError(
          "model", absl::StrCat("is needed: ", models.size(), " models are served here"));
    }
    if (models.empty()) return NoWorker("no worker is there");
    return std::move(models.front());
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
    : policy_(policy),
      choice_policy_(FindChoicePolicy(policy)),
      view_(view),
      clock_(clock),
      options_(options),
      random_(random) {}

bool Router::IsServing(const WorkerLoad& load, absl::Duration now) const {
  return load.state == WorkerState::kServing && now - load.report_time <= options_.max_report_age;
}

Candidate Router::CandidateOf(const WorkerLoad& load) {
  Candidate candidate = {.load = &load};
  const auto record = in_flight_.find(load.address);
  if (record == in_flight_.end()) return candidate;
  DropReported(record->second, load.report_time);
  candidate.unreported_requests = record->second.unreported_requests;
  candidate.unreported_prompt_tokens = record->second.unreported_prompt_tokens;
  candidate.in_flight_requests = static_cast<int64_t>(record->second.open.size());
  return candidate;
}

bool Router::HasFree(const RouteKey& key) {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::StatusOr<std::string> model = ModelOf(*snapshot, key.model);
  if (!model.ok()) return false;
  const absl::Duration now = clock_->Elapsed();
  absl::MutexLock lock(&mutex_);
  return std::ranges::any_of(snapshot->table->GroupsOf(*model), [&](const RouteGroup& group) {
    return std::ranges::any_of(snapshot->group_loads[group.number].free, [&](uint32_t i) {
      const WorkerLoad& load = *snapshot->workers[i];
      mutex_.AssertHeld();
      return IsServing(load, now) && IsFree(key, CandidateOf(load));
    });
  });
}

Router::Load Router::ChooseByTable(const LoadSnapshot& snapshot, std::string_view model,
                                   const RouteKey& key, absl::Duration now) {
  if (choice_policy_ == nullptr) return nullptr;
  const auto find = [&](uint32_t i) -> std::optional<Candidate> {
    const WorkerLoad& load = *snapshot.workers[i];
    mutex_.AssertHeld();
    if (!IsServing(load, now)) return std::nullopt;
    return CandidateOf(load);
  };
  const IndexedChoices choices(snapshot, model, key, find, random_);
  std::optional<size_t> choice = choices.LastWorker();
  if (!choice.has_value()) choice = choice_policy_(key, choices, random_);
  return choice.has_value() ? snapshot.workers[*choice] : nullptr;
}

Router::Load Router::ChooseOfAll(const LoadSnapshot& snapshot, std::string_view model,
                                 const RouteKey& key, absl::Duration now) {
  std::vector<Candidate> candidates;
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < snapshot.workers.size(); ++i) {
    const WorkerLoad& load = *snapshot.workers[i];
    if (load.model != model || !IsServing(load, now)) continue;
    candidates.push_back(CandidateOf(load));
    numbers.push_back(i);
  }
  std::optional<size_t> choice = FindLastWorker(key, candidates);
  if (!choice.has_value()) choice = policy_(key, candidates, random_);
  return choice.has_value() ? snapshot.workers[numbers[*choice]] : nullptr;
}

bool Router::HasOther(const Lease& lease, std::span<const Failure> failures) const {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::Duration now = clock_->Elapsed();
  return std::ranges::any_of(snapshot->workers, [&](const auto& load) {
    return load->model == lease.load().model && load->address != lease.address() &&
           IsServing(*load, now) &&
           std::ranges::find(failures, load->address, &Failure::address) == failures.end();
  });
}

bool Router::IsCold(std::string_view model) const {
  if (options_.declared_models.empty()) return false;
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::StatusOr<std::string> name = ModelOf(*snapshot, model);
  if (!name.ok()) return false;
  const absl::Duration now = clock_->Elapsed();
  const auto is_served = [&](std::string_view served) {
    return std::ranges::any_of(snapshot->table->GroupsOf(served), [&](const RouteGroup& group) {
      return std::ranges::any_of(snapshot->group_loads[group.number].serving,
                                 [&](uint32_t i) { return IsServing(*snapshot->workers[i], now); });
    });
  };
  // An adapter is as cold as the pool of its model.
  const auto adapter = snapshot->adapters.find(*name);
  const std::string& of_pool = adapter == snapshot->adapters.end() ? *name : adapter->second;
  return options_.declared_models.contains(of_pool) && !is_served(*name) && !is_served(of_pool);
}

absl::StatusOr<Lease> Router::Pick(const RouteKey& key, std::function<void()> on_lost) {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  const absl::Duration now = clock_->Elapsed();
  ASSIGN_OR_RETURN(const std::string model, ModelOf(*snapshot, key.model));
  const auto no_worker = [&] {
    return NoWorker(absl::StrCat("no worker serves model \"", model, "\" now"));
  };
  if (!IsServed(*snapshot, model)) return no_worker();

  std::optional<Lease> lease;
  std::function<void()> lost;
  {
    absl::MutexLock lock(&mutex_);
    Load pick = ChooseByTable(*snapshot, model, key, now);
    if (pick == nullptr) pick = ChooseOfAll(*snapshot, model, key, now);
    const bool continued = IsContinued(key);
    if (pick == nullptr || !IsExact(key, pick->fingerprint)) {
      const auto is_serving = [&](const auto& load) {
        return load->model == model && IsServing(*load, now);
      };
      if (pick == nullptr && std::ranges::none_of(snapshot->workers, is_serving)) {
        return no_worker();
      }
      const bool exact_lost = (continued || !key.preferred_fingerprint.empty()) &&
                              std::ranges::any_of(snapshot->workers, [&](const auto& load) {
                                return load->model == model && IsExact(key, load->fingerprint) &&
                                       load->state != WorkerState::kDraining &&
                                       !IsServing(*load, now);
                              });
      if (exact_lost && !key.allow_inexact) {
        return NoWorker("the workers that can go on exactly are lost for the moment");
      }
    }
    if (pick == nullptr) {
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
    InFlightRecord& record = in_flight_[pick->address];
    record.open.emplace(id, Open{.prompt_tokens = key.prompt_tokens,
                                 .unreported = true,
                                 .incarnation = pick->incarnation,
                                 .on_lost = std::move(on_lost)});
    record.unreported.emplace_back(now, id);
    record.unreported_requests += 1;
    record.unreported_prompt_tokens += key.prompt_tokens;
    // The worker may have been lost since the snapshot was taken, and WorkerLost called before this
    // lease was recorded. The writer sets the view before it calls WorkerLost, so the loss is seen
    // here or reported there.
    const std::shared_ptr<const LoadSnapshot> latest = view_->Get();
    if (latest != snapshot && !IsThere(*latest, *pick)) {
      lost = std::exchange(record.open[id].on_lost, nullptr);
    }
    lease = Lease(this, std::move(pick), id);
  }
  if (lost) lost();
  return *std::move(lease);
}

void Router::DropReported(InFlightRecord& record, absl::Duration report_time) {
  auto at = record.unreported.begin();
  for (; at != record.unreported.end() && at->first + options_.report_lag < report_time; ++at) {
    const auto open = record.open.find(at->second);
    if (open == record.open.end() || !open->second.unreported) continue;
    open->second.unreported = false;
    record.unreported_requests -= 1;
    record.unreported_prompt_tokens -= open->second.prompt_tokens;
  }
  record.unreported.erase(record.unreported.begin(), at);
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
  for (const uint32_t i : snapshot->table->AtAddress(address)) {
    const auto& load = snapshot->workers[i];
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
