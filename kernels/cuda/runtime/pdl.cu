// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/pdl.h"

#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {

#ifdef __CUDACC__

namespace {

// This probe is compiled for the same targets as all other kernels.
__global__ void ProbeKernel() { WaitForPreviousKernel(); }

}  // namespace

cudaError_t HasPdlCode(bool* has) {
  *has = false;
  cudaFuncAttributes attributes = {};
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(ProbeKernel));
  if (error == cudaSuccess) *has = attributes.ptxVersion >= 90;
  return error;
}

#else

// In the shim, kernels run one after the other.
cudaError_t HasPdlCode(bool* has) {
  *has = false;
  return cudaSuccess;
}

#endif

}  // namespace continuo::kernels::cuda
