// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/lifecycle.h"

#include <algorithm>
#include <utility>

#include "services/protocol/error.h"

namespace continuo::server {

absl::Status DrainingError() {
  return protocol::WithReason(absl::UnavailableError("the worker drains; go on at another one"),
                              protocol::kReasonDraining);
}

Lifecycle::Lifecycle(OpenCalls* calls, Hooks hooks) : calls_(calls), hooks_(std::move(hooks)) {}

void Lifecycle::StartServing() {
  {
    absl::MutexLock change_lock(&change_mutex_);
    // A drain may have begun while the model was loading.
    if (draining()) hooks_.begin_drain();
    absl::MutexLock lock(&mutex_);
    if (state_ == v1::WORKER_STATE_LOADING) state_ = v1::WORKER_STATE_SERVING;
  }
  UpdateHealth(false);
  hooks_.state_changed();
}

int Lifecycle::BeginDrain(absl::Duration now, absl::Duration grace) {
  v1::WorkerState before;
  {
    absl::MutexLock change_lock(&change_mutex_);
    // The engine refuses before anybody can read that the worker drains. So what it still took is
    // among the open calls when these are handed over.
    if (state() == v1::WORKER_STATE_SERVING) hooks_.begin_drain();
    absl::MutexLock lock(&mutex_);
    before = std::exchange(state_, v1::WORKER_STATE_DRAINING);
    if (!handing_over_) drain_end_ = now + grace;
  }
  if (before != v1::WORKER_STATE_DRAINING) {
    UpdateHealth(false);
    hooks_.state_changed();
  }
  return before == v1::WORKER_STATE_LOADING ? 0 : hooks_.running();
}

std::vector<std::shared_ptr<RequestControl>> Lifecycle::TakeEnding(absl::Duration now) {
  absl::MutexLock lock(&mutex_);
  if (state_ != v1::WORKER_STATE_DRAINING || now < drain_end_) return {};
  if (!handing_over_) {
    handing_over_ = true;
    for (const auto& control : calls_->All()) leaving_.push_back(control);
  }
  const double part = absl::FDivDuration(now - drain_end_, kSpread);
  // Calls that came in meanwhile are not among the leaving ones. To end again does nothing.
  if (part >= 1) {
    leaving_.clear();
    return calls_->All();
  }
  const auto due = static_cast<size_t>(part * static_cast<double>(leaving_.size())) + 1;
  std::vector<std::shared_ptr<RequestControl>> ending;
  while (num_left_ < std::min(due, leaving_.size())) {
    if (auto control = leaving_[num_left_++].lock(); control != nullptr) {
      ending.push_back(std::move(control));
    }
  }
  return ending;
}

void Lifecycle::Tick(absl::Duration now) {
  for (const auto& control : TakeEnding(now)) control->End(DrainingError());
  if (state() != v1::WORKER_STATE_LOADING) UpdateHealth(hooks_.hung());
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

bool Lifecycle::drained() const { return draining() && calls_->size() == 0; }

bool Lifecycle::hung() const {
  absl::MutexLock lock(&mutex_);
  return hung_;
}

bool Lifecycle::healthy() const {
  absl::MutexLock lock(&mutex_);
  return state_ == v1::WORKER_STATE_SERVING && !hung_;
}

}  // namespace continuo::server
