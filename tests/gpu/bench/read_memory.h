// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// Reads all of an array, 16-byte aligned, and does nothing else: the ceiling of ops that are bound
// by memory. `sink` is a word that it may write. Returns the launch's error.
cudaError_t ReadMemory(uint32_t* sink, const void* data, size_t bytes, int num_multiprocessors,
                       KernelStream stream);

}  // namespace continuo::kernels::cuda
