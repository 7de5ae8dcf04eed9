// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace continuo {

// Bounds the bytes that several holders have in memory together. Thread-safe; outlives its shares.
class ByteBudget {
 public:
  // The bytes that one holder has, until the share is destroyed. Movable. Not thread-safe itself.
  class Share {
   public:
    Share() = default;  // of no budget
    explicit Share(ByteBudget* budget) : budget_(budget) {}
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() { Release(); }

    // False for a share of no budget: Take had no room for it.
    explicit operator bool() const { return budget_ != nullptr; }
    int64_t bytes() const { return bytes_; }

    // The holder has `bytes` from now on, whatever is returned: false means that the limit is
    // passed, so that the holder has to let go of them. Only for a share of a budget.
    bool Resize(int64_t bytes) { return Change(bytes) <= budget_->limit_; }

    // Like Resize, but a share that grows may get no larger than what stays free. However many
    // large shares there are, small ones find room.
    bool ResizeLeavingRoom(int64_t bytes) {
      const bool grows = bytes > bytes_;
      const int64_t free = budget_->limit_ - Change(bytes);
      return !grows || bytes <= free;
    }

    void Release() {
      if (bytes_ != 0) Change(0);
    }

   private:
    friend class ByteBudget;
    // Returns what all shares have together afterwards.
    int64_t Change(int64_t bytes) {
      const int64_t change = bytes - std::exchange(bytes_, bytes);
      return budget_->used_.fetch_add(change) + change;
    }

    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // A share of `bytes`, or one of no budget where they have no room. Where nobody holds anything,
  // any size has room.
  Share Take(int64_t bytes) {
    int64_t used = used_.load();
    do {
      if (used > 0 && bytes > limit_ - std::min(used, limit_)) return Share();
    } while (!used_.compare_exchange_weak(used, used + bytes));
    Share share(this);
    share.bytes_ = bytes;
    return share;
  }

  // True if `bytes` more have room now. Takes nothing, so that it is a hint only.
  bool HasRoomFor(uint64_t bytes) const {
    const int64_t free = limit_ - used();
    return bytes == 0 || (free > 0 && bytes <= static_cast<uint64_t>(free));
  }

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_ = 0;
};

}  // namespace continuo
