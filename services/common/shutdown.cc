// SPDX-License-Identifier: Apache-2.0
#include "services/common/shutdown.h"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdint>

#include "services/base/check.h"

namespace continuo::common {
namespace {

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

ShutdownSignal::ShutdownSignal(const Clock* clock)
    : clock_(clock != nullptr ? clock : &system_clock_) {
  const sigset_t set = Signals();
  CONTINUO_CHECK(pthread_sigmask(SIG_BLOCK, &set, &previous_mask_) == 0);
  // The descriptor does not block: of several waiting threads one reads, and the others wait on.
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  CONTINUO_CHECK(signal_fd_ >= 0);
}

ShutdownSignal::~ShutdownSignal() {
  close(signal_fd_);
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

int ShutdownSignal::Wait() { return *WaitFor(absl::InfiniteDuration()); }

std::optional<int> ShutdownSignal::WaitFor(absl::Duration timeout) {
  const absl::Duration end = clock_->Elapsed() + timeout;
  while (true) {
    int milliseconds = -1;
    if (end != absl::InfiniteDuration()) {
      const absl::Duration left = std::max(end - clock_->Elapsed(), absl::ZeroDuration());
      milliseconds = static_cast<int>(std::min<int64_t>(
          absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), int64_t{INT_MAX}));
    }
    pollfd fd = {signal_fd_, POLLIN, 0};
    if (poll(&fd, 1, milliseconds) == 0 && clock_->Elapsed() >= end) return std::nullopt;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
  }
}

}  // namespace continuo::common
