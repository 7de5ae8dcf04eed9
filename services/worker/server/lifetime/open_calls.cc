// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/open_calls.h"

#include <utility>

namespace continuo::server {

void OpenCalls::Add(std::shared_ptr<RequestControl> control) {
  absl::MutexLock lock(&mutex_);
  open_.insert(std::move(control));
}

void OpenCalls::Remove(const RequestControl* control) {
  absl::MutexLock lock(&mutex_);
  const auto it = open_.find(control);
  if (it != open_.end()) open_.erase(it);
}

void OpenCalls::Tick(absl::Duration now) {
  std::vector<std::shared_ptr<RequestControl>> overdue;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& control : open_) {
      if (control->Overdue(now, patience_)) overdue.push_back(control);
    }
  }
  // The lock is not held here, since a call may be over before this returns.
  for (const auto& control : overdue) control->Cut();
}

size_t OpenCalls::size() const {
  absl::MutexLock lock(&mutex_);
  return open_.size();
}

std::vector<std::shared_ptr<RequestControl>> OpenCalls::All() const {
  absl::MutexLock lock(&mutex_);
  return {open_.begin(), open_.end()};
}

}  // namespace continuo::server
