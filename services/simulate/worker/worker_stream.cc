// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/worker_stream.h"

#include <utility>

namespace continuo::simulate {

void WorkerStream::StartRead() {
  is_reading_ = true;
  Pass();
}

void WorkerStream::Abandon() {
  relay_.reset();
  arrived_.clear();
  if (const auto on_closed = std::exchange(on_closed_, nullptr)) on_closed(/*abandoned=*/true);
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

void WorkerStream::Reset() {
  arrived_.clear();
  end_ = absl::UnavailableError("Connection reset by peer");
  Release();
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
    if (const auto on_closed = std::exchange(on_closed_, nullptr)) on_closed(/*abandoned=*/false);
    relay->OnWorkerEnd(attempt_, *end_);
  }
}

}  // namespace continuo::simulate
