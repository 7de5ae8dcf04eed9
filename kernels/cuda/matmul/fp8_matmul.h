// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/matmul/cublaslt_matmul.h"
#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/matmul_ops.h"

namespace continuo::kernels::cuda {

// Products with matrices in e4m3: packed on the host, multiplied with activations that are rounded
// to e4m3, too, by cuBLASLt or, where rows are few, by SmallMMatMul. Not thread-safe.
class Fp8MatMul {
 public:
  // context and cublaslt outlive the object. SmallMMatMul multiplies up to max_small_m_rows, all
  // products of more rows are cuBLASLt's.
  Fp8MatMul(CudaContext& context, CublasLtMatMul& cublaslt, int64_t max_small_m_rows)
      : context_(context), cublaslt_(cublaslt), max_small_m_rows_(max_small_m_rows) {}

  // Does MatMulOps::PackRows for a matrix in kFp8Rows.
  void Pack(const Weight& w, int64_t first_row, const float* rows, int64_t n);
  // Computes products of x, bf16, whose outputs are not empty. Rows of x are rounded in scratch, as
  // many at a time as it holds, once for all products, unless x.prepared has them.
  void Multiply(const MatMulInput& x, std::span<const Product> products);

 private:
  // Returns whether cuBLASLt multiplies n rows with scales for an output of this type.
  bool HasScales(int64_t n, int64_t columns, int64_t k, DType out);
  // Returns whether a product of n rows goes by way of f32 sums in scratch: a bias is added to
  // them, or cuBLASLt does not write `out` as it lies, or has no algorithm with scales for it.
  bool NeedsSums(const Product& product, int64_t n, int64_t k);
  // Multiplies by way of f32 sums [out.rows(), columns filled up].
  void MultiplyBySums(Tensor out, float* sums, const Fp8Matrix& x, const Fp8Matrix& w, Tensor bias,
                      bool has_scales);

  // Multiplies n rows of x, of the products' rows from first_row on, by SmallMMatMul.
  void MultiplySmallM(const Fp8Rows& x, std::span<const Product> products, int64_t first_row,
                      int64_t n);

  CudaContext& context_;
  CublasLtMatMul& cublaslt_;
  const int64_t max_small_m_rows_;
};

}  // namespace continuo::kernels::cuda
