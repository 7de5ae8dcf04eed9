// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace continuo::gateway::openai {

// The memory that one answer in one piece takes of what all such answers together may, until it is
// sent. An answer may grow up to what it leaves free: however many long ones there are, short ones
// find room. Not thread-safe; what it shares with others is.
class AnswerRoom {
 public:
  // `used`, in bytes, is of all answers and outlives them; `max_bytes` is what it may reach.
  AnswerRoom(std::atomic<int64_t>* used, int64_t max_bytes) : used_(used), max_bytes_(max_bytes) {}
  AnswerRoom(const AnswerRoom&) = delete;
  AnswerRoom& operator=(const AnswerRoom&) = delete;
  ~AnswerRoom() { *used_ -= bytes_; }

  // The answer takes `bytes` now; false where that is too much.
  bool GrowTo(int64_t bytes) {
    const int64_t change = bytes - bytes_;
    bytes_ = bytes;
    const int64_t free = max_bytes_ - (used_->fetch_add(change) + change);
    return change <= 0 || bytes <= free;
  }

 private:
  std::atomic<int64_t>* const used_;
  const int64_t max_bytes_;
  int64_t bytes_ = 0;
};

}  // namespace continuo::gateway::openai
