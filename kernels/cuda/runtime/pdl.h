// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_runtime_api.h"

namespace continuo::kernels::cuda {

// Sets `has` to whether the kernels that the calling thread's device runs were compiled with the
// wait that programmatic dependent launch needs. Code for compute capability 9.0 has it. The PTX
// of an older one does not, whatever device runs it. The error is CUDA's.
cudaError_t HasPdlCode(bool* has);

}  // namespace continuo::kernels::cuda
