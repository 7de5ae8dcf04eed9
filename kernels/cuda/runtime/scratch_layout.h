// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace continuo::kernels::cuda {

// Lays out arrays one behind the other, each 256-byte aligned. With null memory it only counts.
class ScratchLayout {
 public:
  explicit ScratchLayout(void* memory = nullptr) : memory_(static_cast<char*>(memory)) {}
  template <typename T>
  T* Add(size_t n) {
    constexpr size_t kAlignment = 256;
    char* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (n * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  char* memory_;
  size_t bytes_ = 0;
};

}  // namespace continuo::kernels::cuda
