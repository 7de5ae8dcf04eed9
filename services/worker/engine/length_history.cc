// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/length_history.h"

#include <algorithm>

namespace continuo {

void LengthHistory::Record(int answer_tokens) {
  const auto begin = sorted_.begin();
  if (size_ == kSize) {  // the oldest leaves
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
  sum_from_[size_] = 0;
  for (int i = size_ - 1; i >= 0; --i) sum_from_[i] = sum_from_[i + 1] + sorted_[i];
}

int64_t LengthHistory::ExpectedRemaining(int64_t have, int64_t most) const {
  if (have >= most) return 0;
  const auto begin = sorted_.begin();
  const auto longer = std::upper_bound(begin, begin + size_, have);
  const int64_t count = begin + size_ - longer;
  const int64_t total = (sum_from_[longer - begin] + most) / (count + 1);
  return std::clamp<int64_t>(total - have, 1, most - have);
}

}  // namespace continuo
