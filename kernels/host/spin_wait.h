// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace continuo::kernels::host {

inline void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waiting for another thread that is expected soon: spins some microseconds, then gives the core
// away between looks, so that a thread that lost its core to a neighbour can get on with it.
class Spinner {
 public:
  // One look's worth of waiting; false once it is time to sleep.
  bool Once() {
    if (looks_ < kSpins) {
      CpuRelax();
    } else if (looks_ < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      return false;
    }
    ++looks_;
    return true;
  }

  // As Once, for waits that are too short to sleep in.
  void OnceOrYield() {
    if (!Once()) std::this_thread::yield();
  }

 private:
  static constexpr int kSpins = 1000;  // about 10 to 40 µs
  static constexpr int kYields = 200;
  int looks_ = 0;
};

// Returns when `value` is no longer `old`: spins, yields, then sleeps. Whoever changes it calls
// notify_all().
inline void WaitForChange(const std::atomic<uint32_t>& value, uint32_t old) {
  Spinner spinner;
  while (value.load(std::memory_order_acquire) == old) {
    if (!spinner.Once()) value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace continuo::kernels::host
