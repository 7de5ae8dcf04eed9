// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/matmul/cublaslt_matmul.h"
#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/matmul_ops.h"

namespace continuo::kernels::cuda {

// Products of many rows with int8 and int4 matrices, which are dequantised to bf16 in scratch,
// columns by columns, and multiplied by cuBLASLt. SmallMMatMul reads such matrices as they are.
// Not thread-safe.
class QuantisedMatMul {
 public:
  // context and cublaslt outlive the object. slice_bytes: memory of the columns that are
  // dequantised at a time.
  QuantisedMatMul(CudaContext& context, CublasLtMatMul& cublaslt, bool deterministic,
                  size_t slice_bytes)
      : context_(context),
        cublaslt_(cublaslt),
        deterministic_(deterministic),
        slice_bytes_(slice_bytes) {}

  // Does MatMulOps::PackRows for a matrix in kInt8Panels or kInt4Panels.
  void Pack(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
            const float* rows, int64_t n);
  // Returns whether Multiply is to be used for a product.
  bool IsUsedFor(Tensor x, const Product& product) const;
  // x is bf16; there is no bias.
  void Multiply(Tensor x, const Product& product, std::span<const int64_t> split_begin);

 private:
  // Returns the number of columns of k elements that are dequantised at a time, whole tiles.
  int64_t SliceColumns(int64_t k) const;

  CudaContext& context_;
  CublasLtMatMul& cublaslt_;
  const bool deterministic_;
  const size_t slice_bytes_;
};

}  // namespace continuo::kernels::cuda
