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

// Waits for another thread that is expected soon. It spins for some microseconds, then yields the
// core between looks, so that a thread that lost its core to a neighbour can go on.
class Spinner {
 public:
  // Waits between two looks; returns false once it is time to sleep.
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

  // Like Once, for waits that are too short to sleep.
  void OnceOrYield() {
    if (!Once()) std::this_thread::yield();
  }

 private:
  static constexpr int kSpins = 1000;  // about 10 to 40 µs
  static constexpr int kYields = 200;
  int looks_ = 0;
};

// Returns when `value` is no longer `old`: it spins, yields, then sleeps. Whoever changes the value
// calls notify_all().
inline void WaitForChange(const std::atomic<uint32_t>& value, uint32_t old) {
  Spinner spinner;
  while (value.load(std::memory_order_acquire) == old) {
    if (!spinner.Once()) value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace continuo::kernels::host
