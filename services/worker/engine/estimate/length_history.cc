// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/length_history.h"

#include <algorithm>

namespace continuo::engine {

void LengthHistory::Record(int answer_tokens) {
  const auto begin = sorted_.begin();
  if (size_ == kSize) {  // the oldest one leaves
    const auto old = std::lower_bound(begin, begin + size_, recent_[next_]);
    std::copy(old + 1, begin + size_, old);
    --size_;
  }
  recent_[next_] = answer_tokens;
  next_ = (next_ + 1) % kSize;
  const auto at = std::upper_bound(begin, begin + size_, answer_tokens);
  std::copy_backward(at, begin + size_, begin + size_ + 1);
  *at = answer_tokens;
  ++size_;
}

int64_t LengthHistory::Remaining(int64_t have, int64_t most, double quantile) const {
  if (have >= most) return 0;
  const auto begin = sorted_.begin();
  const auto longer = std::upper_bound(begin, begin + size_, have);
  const int known = static_cast<int>(begin + size_ - longer);
  const int imagined = std::max(1, kEnough - size_);
  const int pick = static_cast<int>(quantile * (known + imagined));
  const int64_t total =
      pick < known ? *(longer + pick) : std::max<int64_t>(expected_, 2 * Longest(have));
  return std::clamp<int64_t>(total - have, 1, most - have);
}

int64_t LengthHistory::Bound(int64_t have, int64_t most) const {
  if (size_ < kEnough) return most;
  return std::min(most, 2 * Longest(have));
}

int64_t LengthHistory::Longest(int64_t have) const {
  return std::max<int64_t>(size_ == 0 ? 0 : sorted_[size_ - 1], have);
}

}  // namespace continuo::engine
