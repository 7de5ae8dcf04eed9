// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifecycle.h"

#include <algorithm>
#include <utility>

#include "services/common/error.h"

namespace continuo {

absl::Status DrainingError() {
  return WithReason(absl::UnavailableError("the worker drains; go on at another one"),
                    kReasonDraining);
}

Lifecycle::Lifecycle(RequestRegistry* registry, Hooks hooks)
    : registry_(registry), hooks_(std::move(hooks)) {}

void Lifecycle::StartServing() {
  bool draining = false;
  {
    absl::MutexLock lock(&mutex_);
    draining = state_ == v1::WORKER_STATE_DRAINING;
    if (!draining) state_ = v1::WORKER_STATE_SERVING;
  }
  if (draining) hooks_.begin_drain();  // it began while the model was loading
  UpdateHealth(false);
  hooks_.state_changed();
}

int Lifecycle::BeginDrain(absl::Time now, absl::Duration grace) {
  v1::WorkerState before;
  {
    absl::MutexLock lock(&mutex_);
    before = std::exchange(state_, v1::WORKER_STATE_DRAINING);
    if (!handing_over_) drain_end_ = now + grace;
  }
  if (before != v1::WORKER_STATE_DRAINING) {
    UpdateHealth(false);
    if (before == v1::WORKER_STATE_SERVING) hooks_.begin_drain();
    hooks_.state_changed();
  }
  return before == v1::WORKER_STATE_LOADING ? 0 : hooks_.running();
}

void Lifecycle::Tick(absl::Time now) {
  std::vector<std::shared_ptr<RequestControl>> ending;
  v1::WorkerState state;
  {
    absl::MutexLock lock(&mutex_);
    state = state_;
    if (state_ == v1::WORKER_STATE_DRAINING && now >= drain_end_) {
      if (!handing_over_) {
        handing_over_ = true;
        leaving_ = registry_->All();
      }
      const double part = absl::FDivDuration(now - drain_end_, kSpread);
      const size_t due = part >= 1
                             ? leaving_.size()
                             : static_cast<size_t>(part * static_cast<double>(leaving_.size())) + 1;
      while (num_left_ < std::min(due, leaving_.size())) {
        ending.push_back(std::move(leaving_[num_left_++]));
      }
    }
  }
  for (const auto& control : ending) control->End(DrainingError());
  if (state != v1::WORKER_STATE_LOADING) UpdateHealth(hooks_.hung());
}

void Lifecycle::UpdateHealth(bool hung) {
  absl::MutexLock health_lock(&health_mutex_);
  bool now_healthy = false;
  {
    absl::MutexLock lock(&mutex_);
    hung_ = hung;
    now_healthy = state_ == v1::WORKER_STATE_SERVING && !hung_;
  }
  if (now_healthy == told_healthy_) return;
  told_healthy_ = now_healthy;
  hooks_.set_health(now_healthy);
}

v1::WorkerState Lifecycle::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

bool Lifecycle::drained() const { return draining() && registry_->size() == 0; }

bool Lifecycle::healthy() const {
  absl::MutexLock lock(&mutex_);
  return state_ == v1::WORKER_STATE_SERVING && !hung_;
}

}  // namespace continuo
