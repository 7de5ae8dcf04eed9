// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/cuda/matmul/cublaslt_matmul.h"
#include "kernels/cuda/matmul/fp8_matmul.h"
#include "kernels/cuda/matmul/quantised_matmul.h"
#include "kernels/cuda/matmul/small_m_matmul.h"
#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/matmul_ops.h"

namespace continuo::kernels::cuda {

struct CudaMatMulOptions {
  // If set, a row's bits do not depend on the other rows.
  bool deterministic = false;
  bool fp8_fast_accumulation = false;  // as CublasLtOptions has it
  // True and false say whether SmallMMatMul multiplies dense products of up to 16 rows and fp8
  // products of up to 64, unless `deterministic`. Without a value it multiplies those that it is
  // faster for. They depend on shapes alone, so they are the same on all ranks.
  std::optional<bool> small_m;
  // Memory of the int8 or int4 weights that are dequantised at a time for a product of many rows.
  // It should stay in the device's L2 cache (50 MB on an H100) until it is read.
  size_t slice_bytes = size_t{16} << 20;
};

// MatMulOps of one CUDA device. Activations are f32, bf16 or f16. Weights have the same type; or
// they are f32, int8 or int4 with bf16 activations, which stay bf16; or fp8 with bf16 activations,
// which are rounded to fp8. MatMulSplitK sums K in one go, so its result depends on the number of
// ranks.
class CudaMatMul : public MatMulOps {
 public:
  // context and rows outlive the result.
  static absl::StatusOr<std::unique_ptr<CudaMatMul>> Make(CudaContext& context, RowOps& rows,
                                                          const CudaMatMulOptions& options);

  bool SupportsWeights(WeightType type) const override;
  WeightFormat FormatOf(WeightType type) const override;
  size_t WeightBytes(const Weight& w, std::span<const int64_t> split_begin) const override;
  // fp8: numbers [rows, k filled up] and, 256-byte aligned behind them, a scale for each row.
  size_t PreparedBytes(WeightFormat format, int64_t rows, int64_t k) const override;

  // Computes one product in the same way on every rank: MatMul without its checks.
  void Multiply(const MatMulInput& x, const Product& product,
                std::span<const int64_t> split_begin) {
    MultiplyAll(x, {&product, 1}, split_begin);
  }

 private:
  CudaMatMul(CudaContext& context, RowOps& rows, const CudaMatMulOptions& options,
             std::unique_ptr<CublasLtMatMul> cublaslt)
      : MatMulOps(rows),
        context_(context),
        options_(options),
        cublaslt_(std::move(cublaslt)),
        fp8_(context, *cublaslt_, MaxFp8SmallMRows(options)),
        quantised_(context, *cublaslt_, options.deterministic, options.slice_bytes) {}

  static int64_t MaxFp8SmallMRows(const CudaMatMulOptions& options);

  void DoPackRows(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                  const float* rows, int64_t n) override;
  void DoMatMul(const MatMulInput& x, const Product& product) override;
  void DoMatMuls(const MatMulInput& x, std::span<const Product> products) override;
  void DoGatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                     GateFunction function, void* prepared) override;
  void DoMatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                      std::span<const int64_t> split_begin) override;

  // Computes products of one x, of any types, together where one launch takes them.
  void MultiplyAll(const MatMulInput& x, std::span<const Product> products,
                   std::span<const int64_t> split_begin);
  void MultiplyOne(const MatMulInput& x, const Product& product,
                   std::span<const int64_t> split_begin);
  void MultiplyDense(Tensor x, const Product& product);
  // Returns whether SmallMMatMul takes these products, which are quantised or dense and have few
  // rows.
  bool UsesSmallM(Tensor x, std::span<const Product> products);
  void MultiplySmallM(Tensor x, std::span<const Product> products,
                      std::span<const int64_t> split_begin);

  CudaContext& context_;
  const CudaMatMulOptions options_;
  const std::unique_ptr<CublasLtMatMul> cublaslt_;
  Fp8MatMul fp8_;
  QuantisedMatMul quantised_;
};

}  // namespace continuo::kernels::cuda
