// SPDX-License-Identifier: Apache-2.0
#pragma once

// SIGTERM and SIGINT as something to wait for instead of something that interrupts.

#include <csignal>
#include <optional>

#include "absl/time/time.h"
#include "services/base/clock.h"

namespace continuo::common {

// Make one in main before any thread, so that every thread inherits the mask; then no handler runs
// and the signals stay pending until they are waited for. Wait and Trigger may be called from any
// thread. The destructor restores the mask of its own thread.
class ShutdownSignal {
 public:
  // `clock` outlives it; none: the system's. Waits are measured by its Elapsed.
  explicit ShutdownSignal(const Clock* clock = nullptr);
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;
  ShutdownSignal& operator=(const ShutdownSignal&) = delete;

  // Blocks until a signal arrives or Trigger is called. Returns SIGTERM, SIGINT or 0 for a
  // trigger. Each is returned once, so a second call waits for a second signal.
  int Wait();
  // The same, for at most `timeout`; nullopt if nothing came.
  std::optional<int> WaitFor(absl::Duration timeout);
  // Wakes one Wait, now or when it comes. Safe in a signal handler.
  void Trigger();

 private:
  const SystemClock system_clock_;
  const Clock* const clock_;
  sigset_t previous_mask_;
  int signal_fd_ = -1;
  int trigger_fd_ = -1;
};

}  // namespace continuo::common
