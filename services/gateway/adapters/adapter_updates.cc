// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/adapters/adapter_updates.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

absl::Status NoWorker(const std::string& message) {
  return protocol::WithReason(absl::UnavailableError(message), protocol::kReasonNoWorker);
}

absl::StatusOr<std::string> BaseOf(const LoadSnapshot& snapshot, const AdapterUpdate& update) {
  const auto adapter = snapshot.adapters.find(update.name);
  if (update.base.empty()) {
    if (adapter != snapshot.adapters.end()) return adapter->second;
    std::vector<std::string> models = BaseModels(snapshot);
    if (models.size() > 1) {
      return protocol::FieldError(
          "model", absl::StrCat("is needed: ", models.size(), " models are served here"));
    }
    if (models.empty()) return NoWorker("no worker is there");
    return std::move(models.front());
  }
  if (snapshot.adapters.contains(update.base)) {
    return protocol::FieldError("model", "is an adapter itself");
  }
  if (!std::ranges::binary_search(snapshot.known_models, update.base)) {
    return absl::NotFoundError(absl::StrCat("model \"", update.base, "\" is not served here"));
  }
  return update.base;
}

}  // namespace

absl::StatusOr<std::vector<WorkerOutcome>> FindTargets(const LoadSnapshot& snapshot,
                                                       AdapterUpdate* update) {
  ASSIGN_OR_RETURN(update->base, BaseOf(snapshot, *update));
  std::vector<WorkerOutcome> targets;
  for (const auto& load : snapshot.workers) {
    if (load->model != update->base || !load->parent.empty()) continue;
    if (load->state == WorkerState::kDraining) continue;
    WorkerOutcome& target = targets.emplace_back();
    target.worker = load->worker;
    target.address = load->address;
    if (load->state != WorkerState::kServing) {
      target.status = absl::UnavailableError(
          absl::StrCat("the worker is ", std::string(WorkerStateName(load->state))));
    }
  }
  if (targets.empty()) {
    return NoWorker(absl::StrCat("no worker serves model \"", update->base, "\" now"));
  }
  std::ranges::sort(targets, {}, [](const WorkerOutcome& target) {
    return std::tie(target.worker, target.address);
  });
  return targets;
}

AdapterOutcome JoinOutcomes(const AdapterUpdate& update, std::vector<WorkerOutcome> workers) {
  AdapterOutcome outcome{.base = update.base, .workers = std::move(workers)};
  const auto was_absent = [&](const WorkerOutcome& worker) {
    return update.kind == AdapterUpdate::Kind::kUnload && absl::IsNotFound(worker.status);
  };
  if (!std::ranges::all_of(outcome.workers, was_absent)) {
    for (WorkerOutcome& worker : outcome.workers) {
      if (was_absent(worker)) worker.status = absl::OkStatus();
    }
  }
  size_t num_failed = 0;
  const WorkerOutcome* first = nullptr;
  bool is_one_code = true;
  for (const WorkerOutcome& worker : outcome.workers) {
    if (worker.status.ok()) continue;
    ++num_failed;
    if (first == nullptr) first = &worker;
    is_one_code &= worker.status.code() == first->status.code();
  }
  if (first == nullptr) return outcome;
  outcome.status = absl::Status(
      is_one_code ? first->status.code() : absl::StatusCode::kUnavailable,
      absl::StrCat(num_failed, " of ", outcome.workers.size(), " workers failed: worker \"",
                   first->worker, "\": ", first->status.message()));
  return outcome;
}

}  // namespace continuo::gateway
