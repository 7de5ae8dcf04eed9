// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker_stream.h"

#include <utility>

namespace continuo::simulate {

void WorkerStream::StartRead() {
  is_reading_ = true;
  Pass();
}

void WorkerStream::Abandon() {
  relay_.reset();
  arrived_.clear();
  if (const auto on_abandoned = std::exchange(on_abandoned_, nullptr)) on_abandoned();
}

void WorkerStream::Arrive(v1::GenerateResponse response) {
  if (relay_ == nullptr || end_.has_value()) return;
  arrived_.push_back(std::move(response));
  Pass();
}

void WorkerStream::ArriveEnd(absl::Status status) {
  if (relay_ == nullptr || end_.has_value()) return;
  end_ = std::move(status);
  Pass();
}

void WorkerStream::Release() {
  is_held_ = false;
  Pass();
}

// The relay may call back from inside, to read on or to give up.
void WorkerStream::Pass() {
  if (relay_ == nullptr || !is_reading_ || is_held_) return;
  const std::shared_ptr<gateway::StreamRelay> relay = relay_;
  const std::shared_ptr<WorkerStream> self = shared_from_this();
  if (!arrived_.empty()) {
    is_reading_ = false;
    v1::GenerateResponse response = std::move(arrived_.front());
    arrived_.pop_front();
    relay->OnResponse(attempt_, std::move(response));
  } else if (end_.has_value()) {
    relay_.reset();
    relay->OnWorkerEnd(attempt_, *end_);
  }
}

}  // namespace continuo::simulate
