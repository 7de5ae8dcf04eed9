// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace continuo::kernels::host {

// While an object lives, its thread rounds to nearest, keeps subnormals and raises no signals,
// whatever the caller had set (exactness: no-borrowed-bits). The destructor restores the caller's
// settings.
class FloatState {
 public:
#if defined(__x86_64__)
  FloatState() : before_(_mm_getcsr()) {
    if ((before_ & ~kStickyFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~FloatState() {
    if ((before_ & ~kStickyFlags) != kDefault) _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kDefault = 0x1f80;    // all exceptions masked, nothing else set
  static constexpr unsigned kStickyFlags = 0x3f;  // exceptions so far; they change no result
  const unsigned before_;
#elif defined(__aarch64__)
  FloatState() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ != 0) asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~FloatState() {
    if (before_ != 0) asm volatile("msr fpcr, %0" : : "r"(before_));
  }

 private:
  uint64_t before_;  // 0: to nearest, subnormals kept, no traps
#else
  FloatState() {}
#endif

 public:
  FloatState(const FloatState&) = delete;
  FloatState& operator=(const FloatState&) = delete;
};

}  // namespace continuo::kernels::host
