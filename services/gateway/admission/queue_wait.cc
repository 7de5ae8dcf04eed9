// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission/queue_wait.h"

#include <algorithm>
#include <cmath>

namespace continuo::gateway {
namespace {

// Workers are behind if they have had a queue without a pause for this long: several steps.
constexpr absl::Duration kMinBusyTime = absl::Milliseconds(250);
// A measurement loses weight by a factor of e over this measured time.
constexpr double kMemorySeconds = 5;
// The longest time that one pause counts for: a longer one was a stall, which is over.
constexpr absl::Duration kMaxPause = absl::Seconds(5);
constexpr absl::Duration kMaxAge = absl::Seconds(10);

}  // namespace

void QueueWait::Join(const std::string& tenant, int64_t tokens) {
  ++num_queued_;
  if (tokens > 0) by_tenant_[tenant] += tokens;
}

void QueueWait::Leave(const std::string& tenant, int64_t tokens) {
  --num_queued_;
  if (tokens == 0) return;
  const auto at = by_tenant_.find(tenant);
  if ((at->second -= tokens) == 0) by_tenant_.erase(at);
}

void QueueWait::Sent(absl::Duration now) {
  if (num_sent_++ == 0) busy_since_ = now;
}

void QueueWait::Read(int64_t tokens, absl::Duration now) {
  --num_sent_;
  if (now - busy_since_ >= kMinBusyTime && last_read_ >= busy_since_) {
    const double seconds = absl::ToDoubleSeconds(std::min(now - last_read_, kMaxPause));
    const double kept = std::exp(-seconds / kMemorySeconds);
    tokens_ = tokens_ * kept + static_cast<double>(tokens);
    seconds_ = seconds_ * kept + seconds;
    measured_ = now;
  }
  last_read_ = now;
}

bool QueueWait::IsStale(absl::Duration now) const { return now - measured_ > kMaxAge; }

absl::Duration QueueWait::Predict(const std::string& tenant, int64_t tokens,
                                  absl::Duration now) const {
  const bool is_busy = num_sent_ > 0 && last_read_ >= busy_since_;
  if (tokens_ <= 0 || by_tenant_.empty() || (!is_busy && IsStale(now))) {
    return absl::ZeroDuration();
  }
  const auto mine = by_tenant_.find(tenant);
  int64_t before = mine == by_tenant_.end() ? 0 : mine->second;
  const int64_t turn = before + tokens;
  for (const auto& [name, queued] : by_tenant_) {
    if (name != tenant) before += std::min(queued, turn);
  }
  // The time for which no prompt has been begun, beyond the usual time between two steps.
  const double pause =
      is_busy ? std::max(0.0, absl::ToDoubleSeconds(now - last_read_ - kMinBusyTime)) : 0;
  return absl::Seconds(static_cast<double>(before) * (seconds_ + pause) / tokens_);
}

}  // namespace continuo::gateway
