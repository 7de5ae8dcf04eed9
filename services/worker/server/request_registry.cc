// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/request_registry.h"

#include "services/common/error.h"

namespace continuo {

void RequestControl::End(absl::Status why) {
  {
    absl::MutexLock lock(&mutex_);
    if (why_.has_value()) return;
    why_ = why;
    if (!submitted_) return;
  }
  cancel_(std::move(why));
}

void RequestControl::Submitted() {
  absl::Status why;
  {
    absl::MutexLock lock(&mutex_);
    submitted_ = true;
    if (!why_.has_value()) return;
    why = *why_;
  }
  cancel_(std::move(why));
}

std::optional<absl::Status> RequestControl::reason() const {
  absl::MutexLock lock(&mutex_);
  return why_;
}

absl::Status RequestRegistry::Add(const std::string& tenant, const std::string& id,
                                  ArrivalKind kind, std::shared_ptr<RequestControl> control) {
  std::shared_ptr<RequestControl> replaced;
  {
    absl::MutexLock lock(&mutex_);
    Entry& entry = live_[{tenant, id}];
    if (entry.control != nullptr) {
      if (kind == ArrivalKind::kNew) {
        return absl::AlreadyExistsError("a request of this request_id is live");
      }
      if (kind == ArrivalKind::kMove && entry.client_continuation) {
        return WithReason(absl::AbortedError("the client has gone on with this request itself"),
                          kReasonAborted);
      }
      replaced = std::move(entry.control);
    }
    entry = {std::move(control), kind == ArrivalKind::kClientContinuation};
  }
  if (replaced != nullptr) {
    replaced->End(WithReason(
        absl::AbortedError("replaced by a continuation of the same request_id"), kReasonAborted));
  }
  return absl::OkStatus();
}

void RequestRegistry::Remove(const std::string& tenant, const std::string& id,
                             const RequestControl* control) {
  absl::MutexLock lock(&mutex_);
  const auto it = live_.find({tenant, id});
  if (it != live_.end() && it->second.control.get() == control) live_.erase(it);
}

bool RequestRegistry::Abort(const std::string& tenant, const std::string& id) {
  std::shared_ptr<RequestControl> control;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = live_.find({tenant, id});
    if (it == live_.end()) return false;
    control = it->second.control;
  }
  control->End(WithReason(absl::AbortedError("aborted by an operator"), kReasonAborted));
  return true;
}

size_t RequestRegistry::size() const {
  absl::MutexLock lock(&mutex_);
  return live_.size();
}

std::vector<std::shared_ptr<RequestControl>> RequestRegistry::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<RequestControl>> all;
  all.reserve(live_.size());
  for (const auto& [key, entry] : live_) all.push_back(entry.control);
  return all;
}

}  // namespace continuo
