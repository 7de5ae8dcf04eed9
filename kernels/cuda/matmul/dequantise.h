// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// Fills out [n, k], bf16, with columns [first, first + n) of an int8 or int4 matrix, rounded. first
// is a multiple of kTileColumns. Returns the launch's error.
template <bool kFour>
cudaError_t Dequantise(uint16_t* out, const QuantisedMatrix<kFour>& w, int64_t first, int64_t n,
                       KernelStream stream);

}  // namespace continuo::kernels::cuda
