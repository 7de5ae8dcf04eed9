// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "services/protocol/status_name.h"

namespace continuo::server {

// Counts the calls of Generate that have ended, by status code. Thread-safe.
class RequestCounters {
 public:
  void Count(absl::StatusCode code) {
    const auto number = static_cast<size_t>(code);
    if (number < ended_.size()) ended_[number].fetch_add(1, std::memory_order_relaxed);
  }
  // For a code of protocol::kStatusNames.
  uint64_t num_ended(absl::StatusCode code) const {
    return ended_[static_cast<size_t>(code)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, protocol::kStatusNames.size()> ended_ = {};
};

}  // namespace continuo::server
