// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/progress.h"

#include <algorithm>
#include <iostream>

#include "services/cli/client/terminal.h"

namespace continuo::cli {

Progress::~Progress() {
  if (shown_) console_.err << "\r\x1b[K" << std::flush;
}

void Progress::Show(const LoadGenerator& load) {
  const SteadyClock::time_point now = SteadyClock::now();
  if (!console_.err_terminal || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  shown_ = true;
  const double seconds = SecondsBetween(begin_, now);
  const auto finished = static_cast<double>(load.num_finished());
  double done = requests_ > 0 ? finished / static_cast<double>(requests_) : 0;
  if (duration_ != absl::InfiniteDuration()) {
    done = std::max(done, seconds / absl::ToDoubleSeconds(duration_));
  }
  console_.err << "\r\x1b[K" << ProgressBar(done, 30) << "  " << finished << " done, "
               << load.num_in_flight() << " in flight, "
               << FormatCount(static_cast<double>(load.output_tokens()) / seconds) << " tokens/s"
               << std::flush;
}

}  // namespace continuo::cli
