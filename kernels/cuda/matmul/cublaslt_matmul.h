// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cuda {

// A row-major factor [rows, k] in e4m3 with a scale for each row. Null scales are all 1. k is a
// multiple of 16, and the data are 16-byte aligned.
struct Fp8Matrix {
  const uint8_t* data = nullptr;
  const float* scales = nullptr;
  int64_t rows = 0, k = 0;
};

// The shape of a product out = x · wᵀ with x [rows, k] and w [columns, k], all 16-byte aligned.
struct CublasLtShape {
  int64_t rows = 0, columns = 0, k = 0;
  DType in = DType::kBF16, out = DType::kF32;
  bool has_scales = false;  // e4m3 factors have a scale for each row
};

struct CublasLtOptions {
  // If set, one algorithm is used for a weight matrix's shape, whatever the number of rows and
  // their addresses, and no sum is split over K, so that a row's bits do not depend on the other
  // rows.
  bool deterministic = false;
  // Sets CUBLASLT_MATMUL_DESC_FAST_ACCUM for e4m3 factors.
  bool fp8_fast_accumulation = false;
};

// Dense products on one device by cuBLASLt. The algorithm of a shape is looked up once and kept,
// and serves neighbouring numbers of rows. No algorithm is looked up while a stream is captured.
// Not thread-safe.
class CublasLtMatMul {
 public:
  static absl::StatusOr<std::unique_ptr<CublasLtMatMul>> Make(int device,
                                                              const CublasLtOptions& options);
  ~CublasLtMatMul();
  CublasLtMatMul(const CublasLtMatMul&) = delete;
  CublasLtMatMul& operator=(const CublasLtMatMul&) = delete;

  // out = x · wᵀ with f32 sums. x [rows, k] and w [columns, k] are both bf16, f16 or f32; out
  // [rows, columns] has their type or f32; no size is 0. Rows of out are out_stride elements apart,
  // or side by side with 0. Internal names a shape that cuBLASLt does not support.
  absl::Status Run(Tensor out, Tensor x, Tensor w, cudaStream_t stream, int64_t out_stride = 0);
  // The same product with e4m3 factors. The sums are multiplied by the rows' scales of both
  // factors; without scales, which both or none have, out is f32. Rows of out lie side by side and
  // are 16-byte aligned. Needs compute capability 9.0, where cuBLASLt has algorithms with scales
  // for some shapes (Has).
  absl::Status Run(Tensor out, const Fp8Matrix& x, const Fp8Matrix& w, cudaStream_t stream);
  // Returns whether there is an algorithm for a product; with `deterministic`, one for all numbers
  // of rows. Enqueues nothing. `stream`, where not null, is not captured.
  absl::StatusOr<bool> Has(const CublasLtShape& shape, cudaStream_t stream = nullptr);

 private:
  // The key of an algorithm: rows, columns, k, the types of x and out, whether there are scales,
  // the alignment of the rows of w, x and out, and the stride of out.
  using Key = std::array<int64_t, 10>;
  struct Plan {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t w, x, out;
    std::optional<cublasLtMatmulAlgo_t> algorithm;  // none: not supported
    // The algorithm does not compute this number of rows, so they are multiplied in two parts.
    bool in_parts = false;
  };

  CublasLtMatMul(int device, const CublasLtOptions& options) : device_(device), options_(options) {}
  absl::Status Multiply(const Key& key, void* out, const void* x, const float* x_scales,
                        const void* w, const float* w_scales, cudaStream_t stream);
  absl::StatusOr<const Plan*> PlanFor(const Key& key, cudaStream_t stream);
  // Returns what PickAlgorithm has returned for a key, or picks.
  absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> AlgorithmFor(const Key& key,
                                                                   cudaStream_t stream);
  // Describes everything except the algorithm.
  absl::StatusOr<Plan> Describe(const Key& key) const;
  absl::Status SetScales(Plan& plan, const float* x_scales, const float* w_scales) const;
  // Picks the best algorithm for this number of rows, or, if deterministic, for all numbers of
  // rows.
  absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> PickAlgorithm(const Key& key,
                                                                    cudaStream_t stream) const;
  absl::StatusOr<bool> Computes(const cublasLtMatmulAlgo_t& algorithm, Plan plan) const;
  absl::Status Error(cublasStatus_t status, absl::string_view what) const;

  const int device_;
  const CublasLtOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  std::map<Key, Plan> plans_;
  // The algorithms of plans, of which there may be many more. The rows in their keys are kFixedRows
  // with `deterministic`, and otherwise those of the plans rounded up, unless these have none.
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

}  // namespace continuo::kernels::cuda
