// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/request_control.h"

#include "services/base/check.h"

namespace continuo::server {

void RequestControl::End(absl::Status why) {
  {
    absl::MutexLock lock(&mutex_);
    if (why_.has_value()) return;
    why_ = why;
    if (!submitted_) return;
  }
  hooks_.cancel(std::move(why));
}

void RequestControl::Submitted() {
  absl::Status why;
  {
    absl::MutexLock lock(&mutex_);
    submitted_ = true;
    if (!why_.has_value()) return;
    why = *why_;
  }
  hooks_.cancel(std::move(why));
}

std::optional<absl::Status> RequestControl::reason() const {
  absl::MutexLock lock(&mutex_);
  return why_;
}

bool RequestControl::Overdue(absl::Duration now, absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  if (!why_.has_value() || overdue_reported_) return false;
  if (!ending_since_.has_value()) ending_since_ = now;
  overdue_reported_ = now - *ending_since_ >= patience;
  return overdue_reported_;
}

void RequestControl::Cut() const {
  const std::optional<absl::Status> why = reason();
  CONTINUO_CHECK(why.has_value());
  hooks_.cut(*why);
}

}  // namespace continuo::server
