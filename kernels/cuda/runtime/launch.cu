// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/launch.h"

#include <array>
#include <cstddef>

#include "kernels/cuda/runtime/early_grids.h"

namespace continuo::kernels::cuda {

#ifdef __CUDACC__

namespace {

bool allows_early_grids = true;

// Compiled for what all kernels are.
__global__ void ProbeKernel() { BeginGrid(); }

enum class Known : unsigned char { kNot, kLate, kEarly };

}  // namespace

void AllowEarlyGrids(bool allowed) {
  if (allows_early_grids != allowed) allows_early_grids = allowed;
}

// Found once for each device and thread that launches.
cudaError_t StartsEarly(bool* early) {
  thread_local std::array<Known, 64> known = {};
  *early = false;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (device < 0 || device >= static_cast<int>(known.size())) return cudaSuccess;
  Known& of_device = known[static_cast<size_t>(device)];
  if (of_device == Known::kNot) {
    cudaFuncAttributes attributes = {};
    const cudaError_t error =
        cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(ProbeKernel));
    if (error != cudaSuccess) return error;
    of_device = attributes.ptxVersion >= 90 ? Known::kEarly : Known::kLate;
  }
  *early = allows_early_grids && of_device == Known::kEarly;
  return cudaSuccess;
}

#else

void AllowEarlyGrids(bool) {}  // all is as if at once

#endif

}  // namespace continuo::kernels::cuda
