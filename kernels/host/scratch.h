// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "kernels/host/large_memory.h"
#include "services/base/check.h"

namespace continuo::kernels::host {

// A float array that only grows, by half at least: a steady state allocates nothing, and an array
// that grows with a sequence is rarely allocated anew. Its contents are lost when it grows.
class Scratch {
 public:
  float* Get(size_t n) {
    if (n > size_) {
      n = std::max(n, size_ + size_ / 2);
      const size_t bytes = n * sizeof(float);
      const size_t alignment = bytes < kHugePage ? 64 : kHugePage;
      const size_t size = (bytes + alignment - 1) / alignment * alignment;
      data_.reset();
      data_.reset(static_cast<float*>(std::aligned_alloc(alignment, size)));
      CONTINUO_CHECK(data_ != nullptr);
      if (alignment == kHugePage) AskForHugePages(data_.get(), size);
      size_ = n;
    }
    return data_.get();
  }

 private:
  struct Deleter {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Deleter> data_;
  size_t size_ = 0;
};

}  // namespace continuo::kernels::host
