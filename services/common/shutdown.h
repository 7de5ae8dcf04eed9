// SPDX-License-Identifier: Apache-2.0
#pragma once

// SIGTERM and SIGINT as events to wait for, instead of interrupts.

#include <csignal>
#include <optional>

#include "absl/time/time.h"
#include "services/base/clock.h"

namespace continuo::common {

// Blocks both signals, so that they stay pending until Wait. Made in main before any other thread,
// so that every thread inherits the signal mask. Wait may be called from any thread. The destructor
// restores the mask of its own thread.
class ShutdownSignal {
 public:
  // Waits are measured by the clock's Elapsed. The clock outlives this; null takes the system's.
  explicit ShutdownSignal(const Clock* clock = nullptr);
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;
  ShutdownSignal& operator=(const ShutdownSignal&) = delete;

  // Blocks until a signal arrives and returns SIGTERM or SIGINT. Each signal is returned once, so a
  // second call waits for a second signal.
  int Wait();
  // Waits for at most `timeout`; nullopt where no signal came.
  std::optional<int> WaitFor(absl::Duration timeout);

 private:
  const SystemClock system_clock_;
  const Clock* const clock_;
  sigset_t previous_mask_;
  int signal_fd_ = -1;
};

}  // namespace continuo::common
