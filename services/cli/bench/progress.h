// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "services/cli/bench/load_generator.h"
#include "services/cli/client/console.h"

namespace continuo::cli {

// The progress bar of a bench, on a terminal only: drawn at most ten times a second, and erased at
// the end. Not thread-safe.
class Progress {
 public:
  // `requests` and `duration` end the bench; 0 and infinity are no limits. The console outlives
  // this.
  Progress(const Console& console, uint64_t requests, absl::Duration duration)
      : console_(console), requests_(requests), duration_(duration) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(const LoadGenerator& load);

 private:
  const Console& console_;
  const uint64_t requests_;
  const absl::Duration duration_;
  const SteadyClock::time_point begin_ = SteadyClock::now();
  SteadyClock::time_point next_ = begin_ + std::chrono::milliseconds(100);  // Of the next drawing.
  bool shown_ = false;
};

}  // namespace continuo::cli
