// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cuda {

// out = x · wᵀ of bf16 or f16 with f32 sums, by whichever of cuBLASLt's 16 candidates is the
// fastest on these very arrays. MatMul is measured beside it.
class BestProduct {
 public:
  struct Arguments {
    Tensor out, x, w;
  };
  // Tries the candidates on all of `calls`, which have one shape, one behind the other. Internal
  // where there is none, or cuBLASLt fails.
  static absl::StatusOr<std::shared_ptr<BestProduct>> Make(int device,
                                                           std::span<const Arguments> calls);
  ~BestProduct();

  absl::Status Run(const Arguments& call, cudaStream_t stream) {
    return Run(algorithm_, call, stream);
  }

 private:
  BestProduct() = default;
  absl::Status Describe(const Arguments& call);
  absl::Status Run(const cublasLtMatmulAlgo_t& algorithm, const Arguments& call,
                   cudaStream_t stream);
  // Returns the seconds of all calls as a graph, the least of a few times; negative if the
  // algorithm does not compute it.
  absl::StatusOr<double> Try(const cublasLtMatmulAlgo_t& algorithm,
                             std::span<const Arguments> calls, cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  cublasLtMatmulDescOpaque_t product_ = {};
  cublasLtMatrixLayoutOpaque_t w_ = {}, x_ = {}, out_ = {};
  cublasLtMatmulAlgo_t algorithm_ = {};
};

}  // namespace continuo::kernels::cuda
