// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace continuo::engine {

// Estimates how long answers will be from the last 128 that ended by themselves. Not thread-safe.
class LengthHistory {
 public:
  // Each answer is expected to have `expected` tokens before any has ended.
  explicit LengthHistory(int expected) : expected_(expected) {}

  void Record(int answer_tokens);

  // Returns how many more tokens an answer that has `have` of at most `most` will get: the
  // `quantile`, in [0, 1), of the recorded lengths above `have`. Imagined lengths complete the
  // record, up to 32 while little is known and one later; each is twice the longest seen, or
  // `expected` if that is more. The result is at least 1 if have < most, else 0.
  int64_t Remaining(int64_t have, int64_t most, double quantile) const;
  // Returns the length that such an answer will hardly exceed: twice the longest seen, itself
  // included; `most` while little is known.
  int64_t Bound(int64_t have, int64_t most) const;

 private:
  static constexpr int kSize = 128;
  static constexpr int kEnough = 32;

  int64_t Longest(int64_t have) const;

  const int expected_;
  std::array<int32_t, kSize> recent_ = {};  // a ring
  std::array<int32_t, kSize> sorted_ = {};  // the same, ascending
  int size_ = 0, next_ = 0;
};

}  // namespace continuo::engine
