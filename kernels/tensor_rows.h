// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {

// Returns the view of rows [first, first + n) of a tensor.
inline Tensor RowsOf(Tensor tensor, int64_t first, int64_t n) {
  CONTINUO_CHECK(first >= 0 && n >= 0 && first + n <= tensor.shape[0]);
  tensor.data = static_cast<char*>(tensor.data) +
                first * tensor.cols() * static_cast<int64_t>(SizeOf(tensor.dtype));
  tensor.shape[0] = n;
  return tensor;
}

}  // namespace continuo::kernels
