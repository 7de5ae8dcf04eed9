// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "services/common/error.h"

namespace continuo::gateway {
namespace {

absl::Status Overloaded(std::string_view what, int64_t limit) {
  return WithRetryInfo(
      WithReason(absl::ResourceExhaustedError(
                     absl::StrCat("the gateway has its limit of ", limit, " ", std::string(what))),
                 kReasonOverloaded),
      absl::Seconds(1));
}

}  // namespace

absl::StatusOr<Admission::Ticket> Admission::Admit(int64_t bytes, int64_t tokens) {
  absl::MutexLock lock(&mutex_);
  if (counts_.open_requests >= limits_.max_open_requests) {
    return Overloaded("open requests", limits_.max_open_requests);
  }
  if (counts_.open_bytes + bytes > limits_.max_open_bytes && counts_.open_requests > 0) {
    return Overloaded("bytes of open requests", limits_.max_open_bytes);
  }
  if (counts_.queued_tokens + tokens > limits_.max_queued_tokens && counts_.queued_requests > 0) {
    return Overloaded("queued prompt tokens", limits_.max_queued_tokens);
  }
  counts_.open_requests += 1;
  counts_.open_bytes += bytes;
  counts_.queued_requests += 1;
  counts_.queued_tokens += tokens;
  return Ticket(this, bytes, tokens);
}

Admission::Counts Admission::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Release();
    admission_ = std::exchange(other.admission_, nullptr);
    bytes_ = other.bytes_;
    queued_tokens_ = other.queued_tokens_;
    queued_ = other.queued_;
  }
  return *this;
}

void Admission::Ticket::MarkStarted() {
  if (admission_ == nullptr || !std::exchange(queued_, false)) return;
  absl::MutexLock lock(&admission_->mutex_);
  admission_->counts_.queued_requests -= 1;
  admission_->counts_.queued_tokens -= queued_tokens_;
}

void Admission::Ticket::Release() {
  if (admission_ == nullptr) return;
  MarkStarted();
  Admission* const admission = std::exchange(admission_, nullptr);
  absl::MutexLock lock(&admission->mutex_);
  admission->counts_.open_requests -= 1;
  admission->counts_.open_bytes -= bytes_;
}

}  // namespace continuo::gateway
