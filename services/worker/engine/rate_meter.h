// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace continuo::engine {

// Counts how many units of something came in the last second, in slots of 100 ms. Not thread-safe.
class RateMeter {
 public:
  // `now` never goes back.
  void Add(absl::Duration now, int64_t amount) {
    const int64_t slot = Slot(now);
    Entry& entry = ring_[slot % kSlots];
    if (entry.slot != slot) entry = {slot, 0};
    entry.amount += amount;
  }
  double PerSecond(absl::Duration now) const {
    const int64_t slot = Slot(now);
    int64_t sum = 0;
    for (const Entry& entry : ring_) {
      if (entry.slot <= slot && entry.slot > slot - kSlots) sum += entry.amount;
    }
    return static_cast<double>(sum);
  }

 private:
  static constexpr int kSlots = 10;
  struct Entry {
    int64_t slot = -1, amount = 0;
  };
  static int64_t Slot(absl::Duration now) { return now / absl::Milliseconds(100); }

  std::array<Entry, kSlots> ring_ = {};
};

}  // namespace continuo::engine
