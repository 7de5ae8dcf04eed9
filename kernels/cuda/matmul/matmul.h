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

// A factor [rows, k] of e4m3 numbers, row-major, and the scale of each row, or null: 1. k is a
// multiple of 16, the data lie at 16 bytes.
struct Fp8Matrix {
  const uint8_t* data = nullptr;
  const float* scales = nullptr;
  int64_t rows = 0, k = 0;
};

// A product out = x · wᵀ of x [rows, k] and w [columns, k] whose arrays lie at 16 bytes.
struct MatMulShape {
  int64_t rows = 0, columns = 0, k = 0;
  DType in = DType::kBF16, out = DType::kF32;
  bool has_scales = false;  // of factors in e4m3, for each row
};

struct MatMulOptions {
  // An algorithm for each weight matrix's shape, neither for the number of rows nor for where they
  // lie, and no sum that is split over K, so that a row's bits do not depend on the others.
  bool deterministic = false;
  // Of factors in e4m3: CUBLASLT_MATMUL_DESC_FAST_ACCUM.
  bool fp8_fast_accumulation = false;
};

// Dense products on one device by cuBLASLt. How a shape is computed is looked up once and kept. Not
// thread-safe.
class MatMul {
 public:
  static absl::StatusOr<std::unique_ptr<MatMul>> Make(int device, const MatMulOptions& options);
  ~MatMul();
  MatMul(const MatMul&) = delete;
  MatMul& operator=(const MatMul&) = delete;

  // out = x · wᵀ, sums in f32: x [rows, k] and w [columns, k], both bf16, f16 or f32; out [rows,
  // columns], f32 or of their type; no size is 0. Rows of out are out_stride elements
  // apart, or with 0 side by side. Internal names the shape that cuBLASLt does not do.
  absl::Status Run(Tensor out, Tensor x, Tensor w, cudaStream_t stream, int64_t out_stride = 0);
  // The same of factors in e4m3, whose rows' scales, of both or none, the sums are multiplied with;
  // those that have none are f32. out's rows lie side by side, at 16 bytes. Needs compute
  // capability 9.0, where cuBLASLt has algorithms with scales for some shapes: see Has.
  absl::Status Run(Tensor out, const Fp8Matrix& x, const Fp8Matrix& w, cudaStream_t stream);
  // Whether there is an algorithm for a product; where deterministic one for all numbers of rows.
  // Enqueues nothing.
  absl::StatusOr<bool> Has(const MatMulShape& shape);

 private:
  // What decides an algorithm: rows, columns, k, the types of x and out, whether there are scales,
  // what the addresses of the three's rows are multiples of, the stride of out.
  using Key = std::array<int64_t, 10>;
  struct Plan {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t w, x, out;
    std::optional<cublasLtMatmulAlgo_t> algorithm;  // where there is one
    // It computes other numbers of rows, so that these are two products.
    bool in_parts = false;
  };

  MatMul(int device, const MatMulOptions& options) : device_(device), options_(options) {}
  absl::Status Multiply(const Key& key, void* out, const void* x, const float* x_scales,
                        const void* w, const float* w_scales, cudaStream_t stream);
  absl::StatusOr<const Plan*> PlanFor(const Key& key);
  // All but the algorithm.
  absl::StatusOr<Plan> Describe(const Key& key) const;
  absl::Status SetScales(Plan& plan, const float* x_scales, const float* w_scales) const;
  // The best algorithm that computes a product of so many rows, or of all numbers of rows.
  absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> PickAlgorithm(const Key& key) const;
  absl::StatusOr<bool> Computes(const cublasLtMatmulAlgo_t& algorithm, Plan plan) const;
  absl::Status Error(cublasStatus_t status, absl::string_view what) const;

  const int device_;
  const MatMulOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  std::map<Key, Plan> plans_;
  // Where deterministic; their keys' rows are kFixedRows.
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> fixed_;
};

}  // namespace continuo::kernels::cuda
