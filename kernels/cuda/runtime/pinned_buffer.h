// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace continuo::kernels::cuda {

// Owns page-locked host memory, which a device copies from and to at full speed.
class PinnedBuffer {
 public:
  // ResourceExhausted names the device whose driver refused.
  static absl::StatusOr<PinnedBuffer> Make(int device, size_t bytes);

  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  PinnedBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace continuo::kernels::cuda
