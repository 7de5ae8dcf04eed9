// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/step_log.h"

#include <algorithm>
#include <utility>

namespace continuo::engine {

StepLog::Watch::Watch(StepLog* log) : log_(log) {
  absl::MutexLock lock(&log_->mutex_);
  position_ = log_->num_added_;
  log_->num_watches_.fetch_add(1, std::memory_order_relaxed);
}

StepLog::Watch::~Watch() {
  std::deque<std::shared_ptr<const StepRecord>> rest;  // freed after the lock is released
  absl::MutexLock lock(&log_->mutex_);
  if (log_->num_watches_.fetch_sub(1, std::memory_order_relaxed) > 1) return;
  rest.swap(log_->records_);
  log_->num_sequences_ = 0;
}

StepLog::Watch::Steps StepLog::Watch::Read() const {
  absl::MutexLock lock(&log_->mutex_);
  const uint64_t first = log_->num_added_ - log_->records_.size();
  Steps steps;
  if (first > position_) steps.num_dropped = first - position_;
  const auto skipped = static_cast<ptrdiff_t>(std::max(first, position_) - first);
  steps.records.assign(log_->records_.begin() + skipped, log_->records_.end());
  return steps;
}

void StepLog::Watch::Take(const Steps& steps, size_t num_records) {
  position_ += steps.num_dropped + num_records;
}

void StepLog::Add(StepRecord record) {
  auto added = std::make_shared<const StepRecord>(std::move(record));
  std::vector<std::shared_ptr<const StepRecord>> old;  // freed after the lock is released
  absl::MutexLock lock(&mutex_);
  ++num_added_;
  if (!watched()) return;
  num_sequences_ += added->sequences.size();
  records_.push_back(std::move(added));
  while (records_.size() > kMaxSteps || (num_sequences_ > kMaxSequences && records_.size() > 1)) {
    num_sequences_ -= records_.front()->sequences.size();
    old.push_back(std::move(records_.front()));
    records_.pop_front();
  }
}

}  // namespace continuo::engine
