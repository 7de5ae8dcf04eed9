// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv_event_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::engine {

void KvEventLog::SnapshotBox::Put(KvSnapshot snapshot) {
  absl::MutexLock lock(&mutex_);
  snapshot_ = std::move(snapshot);
}

std::optional<KvSnapshot> KvEventLog::SnapshotBox::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(snapshot_, std::nullopt);
}

KvEventLog::Watch::~Watch() {
  absl::MutexLock lock(&log_->mutex_);
  --log_->num_watches_;
}

std::optional<KvSnapshot> KvEventLog::Watch::TakeSnapshot() {
  if (box_ == nullptr) return std::nullopt;
  std::optional<KvSnapshot> snapshot = box_->Take();
  if (snapshot.has_value()) {
    position_ = snapshot->number + 1;
    box_.reset();
  }
  return snapshot;
}

absl::StatusOr<std::vector<std::shared_ptr<const KvEventBatch>>> KvEventLog::Watch::Read(
    size_t max_bytes) {
  std::vector<std::shared_ptr<const KvEventBatch>> read;
  if (box_ != nullptr) return read;
  absl::MutexLock lock(&log_->mutex_);
  const uint64_t first = log_->first();
  if (position_ < first) {
    return absl::DataLossError(absl::StrCat("the reader is too slow: events from number ",
                                            position_, " to ", first - 1, " are no longer kept"));
  }
  size_t bytes = 0;
  for (; position_ < log_->next_ && (read.empty() || bytes < max_bytes); ++position_) {
    read.push_back(log_->batches_[position_ - first]);
    bytes += read.back()->bytes;
  }
  return read;
}

void KvEventLog::Watch::TellInParts() {
  absl::MutexLock lock(&log_->mutex_);
  log_->last_in_parts_ = std::max(log_->last_in_parts_, position_ - 1);
}

KvEventLog::KvEventLog(absl::Time start)
    : next_(static_cast<uint64_t>(
          std::max<int64_t>(absl::ToUnixMicros(start), int64_t{kMinNumber}))) {}

absl::StatusOr<std::unique_ptr<KvEventLog::Watch>> KvEventLog::AddWatch(
    std::shared_ptr<SnapshotBox> box, uint64_t position) {
  if (num_watches_ >= kMaxWatches) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", num_watches_, " subscribers to the prefix cache's events"));
  }
  ++num_watches_;
  return std::unique_ptr<Watch>(new Watch(this, std::move(box), position));
}

absl::StatusOr<std::unique_ptr<KvEventLog::Watch>> KvEventLog::Begin(
    std::shared_ptr<SnapshotBox> box) {
  CONTINUO_CHECK(box != nullptr);
  absl::MutexLock lock(&mutex_);
  return AddWatch(std::move(box), 0);
}

// The number before the first is good, too, unless a batch had it: it is that of a snapshot.
absl::StatusOr<std::unique_ptr<KvEventLog::Watch>> KvEventLog::Resume(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  const uint64_t first = this->first();
  const uint64_t oldest = std::max(has_dropped_ ? first : first - 1, last_in_parts_);
  if (!recording_ || number < oldest || number > next_) {
    return absl::OutOfRangeError(absl::StrCat(
        "events from number ", number,
        " are not kept by this worker: begin with 0, which tells what the cache holds now"));
  }
  return AddWatch(nullptr, std::max(number, first));
}

bool KvEventLog::recording() const {
  absl::MutexLock lock(&mutex_);
  return recording_;
}

// A number is left out, so that none is good that was told before.
void KvEventLog::StartRecording() {
  absl::MutexLock lock(&mutex_);
  recording_ = true;
  has_dropped_ = false;
  next_ += 2;
}

bool KvEventLog::Add(std::vector<KvEvent> events, absl::Time now) {
  std::vector<std::shared_ptr<KvEventBatch>> added;
  for (KvEvent& event : events) {
    const size_t bytes = event.bytes();
    if (added.empty() || added.back()->bytes + bytes > kMaxBatchBytes) {
      added.push_back(std::make_shared<KvEventBatch>());
      added.back()->time = now;
    }
    added.back()->bytes += bytes;
    added.back()->events.push_back(std::move(event));
  }
  std::deque<std::shared_ptr<const KvEventBatch>> old;  // freed after the lock is released
  absl::MutexLock lock(&mutex_);
  if (!recording_) return false;
  for (auto& batch : added) {
    batch->number = next_++;
    batch->first_event = next_event_;
    next_event_ += batch->events.size();
    bytes_ += batch->bytes;
    batches_.push_back(std::move(batch));
  }
  if (bytes_ > kMaxBytes && num_watches_ == 0) {
    old.swap(batches_);
    bytes_ = 0;
    recording_ = false;
    return false;
  }
  while (bytes_ > kMaxBytes && batches_.size() > 1) {
    bytes_ -= batches_.front()->bytes;
    old.push_back(std::move(batches_.front()));
    batches_.pop_front();
    has_dropped_ = true;
  }
  return true;
}

uint64_t KvEventLog::last_number() const {
  absl::MutexLock lock(&mutex_);
  return next_ - 1;
}

}  // namespace continuo::engine
