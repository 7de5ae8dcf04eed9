// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace continuo {

// How long answers turn out to be: the last 128 that ended by themselves. Not thread-safe.
class LengthHistory {
 public:
  void Record(int answer_tokens);

  // How many tokens an answer that has `have` of at most `most` is still expected to get: the mean
  // of the recorded ones that were longer, with one imagined answer of `most` among them. So with
  // no history, or past all of it, everything that is allowed is expected.
  int64_t ExpectedRemaining(int64_t have, int64_t most) const;

 private:
  static constexpr int kSize = 128;

  std::array<int32_t, kSize> recent_ = {};        // a ring
  std::array<int32_t, kSize> sorted_ = {};        // the same, ascending
  std::array<int64_t, kSize + 1> sum_from_ = {};  // sum_from_[i]: of sorted_[i…]
  int size_ = 0, next_ = 0;
};

}  // namespace continuo
