// SPDX-License-Identifier: Apache-2.0
// The launchers of kernels/cuda/*.cu on the host: the host-device functions that the kernels call,
// in a loop, in their turn on the shim's stream.
#include "kernels/cuda/tree_sum.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::cuda {

using testing::CudaShim;

cudaError_t AddTrees(float* out, const float* parts, int num_parts, int64_t n,
                     cudaStream_t stream) {
  return CudaShim::Launch("AddTrees", stream, [=] {
    for (int64_t i = 0; i < n; ++i) out[i] = AddTree(parts + i, n, num_parts);
  });
}

}  // namespace continuo::cuda
