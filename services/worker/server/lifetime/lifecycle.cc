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
    // The engine rejects requests before anybody can read that the worker drains. So every request
    // that it took is among the open calls when these are migrated.
    if (state() == v1::WORKER_STATE_SERVING) hooks_.begin_drain();
    absl::MutexLock lock(&mutex_);
    before = std::exchange(state_, v1::WORKER_STATE_DRAINING);
    if (!migrating_) drain_end_ = now + grace;
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
  if (!migrating_) {
    migrating_ = true;
    for (const auto& control : calls_->All()) to_migrate_.push_back(control);
  }
  const double part = absl::FDivDuration(now - drain_end_, kSpread);
  // Calls that came in meanwhile are not in to_migrate_. Ending a call again does nothing.
  if (part >= 1) {
    to_migrate_.clear();
    return calls_->All();
  }
  const auto due = static_cast<size_t>(part * static_cast<double>(to_migrate_.size())) + 1;
  std::vector<std::shared_ptr<RequestControl>> ending;
  while (num_migrated_ < std::min(due, to_migrate_.size())) {
    if (auto control = to_migrate_[num_migrated_++].lock(); control != nullptr) {
      ending.push_back(std::move(control));
    }
  }
  return ending;
}

void Lifecycle::Tick(absl::Duration now) {
  for (const auto& control : TakeEnding(now)) control->End(DrainingError());
  if (state() != v1::WORKER_STATE_LOADING && UpdateHealth(hooks_.hung())) hooks_.state_changed();
}

bool Lifecycle::UpdateHealth(bool hung) {
  absl::MutexLock health_lock(&health_mutex_);
  bool now_healthy = false;
  {
    absl::MutexLock lock(&mutex_);
    hung_ = hung;
    now_healthy = state_ == v1::WORKER_STATE_SERVING && !hung_;
  }
  if (now_healthy == reported_healthy_) return false;
  reported_healthy_ = now_healthy;
  hooks_.set_health(now_healthy);
  return true;
}

v1::WorkerState Lifecycle::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

absl::Status Lifecycle::CheckServing() const {
  switch (state()) {
    case v1::WORKER_STATE_SERVING:
      return absl::OkStatus();
    case v1::WORKER_STATE_DRAINING:
      return DrainingError();
    default:
      return protocol::WithRetryInfo(absl::UnavailableError("the worker is loading its model"),
                                     absl::Seconds(1));
  }
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
