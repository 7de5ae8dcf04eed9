// SPDX-License-Identifier: Apache-2.0
// Matrices in e4m3: packed on the host, multiplied by cuBLASLt with activations in e4m3.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/row_ops.h"
#include "services/base/check.h"

namespace continuo::cuda {
namespace {

Fp8Layout LayoutOf(const Weight& w) { return {w.data.rows(), w.data.cols()}; }

Fp8Matrix MatrixOf(const Weight& w) {
  const Fp8Layout layout = LayoutOf(w);
  const auto* const data = Data<const uint8_t>(w.data);
  return {.data = data,
          .scales = reinterpret_cast<const float*>(data + layout.ScaleOffset()),
          .rows = layout.columns,
          .k = Fp8Layout::Padded(layout.k)};
}

// Whether cuBLASLt writes rows of so many elements where they are to be.
bool IsWritten(const Tensor& out) {
  return out.cols() * static_cast<int64_t>(SizeOf(out.dtype)) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
}

}  // namespace

void CudaBackend::PackFp8(const Weight& w, int64_t first_row, const float* rows, int64_t n) {
  const Fp8Layout layout = LayoutOf(w);
  const int64_t k = layout.k, padded = Fp8Layout::Padded(k);
  std::vector<uint8_t> numbers(static_cast<size_t>(n * padded));
  std::vector<float> scales(static_cast<size_t>(n));
  ParallelFor(static_cast<int>(n), [&](int r) {
    const float* const row = rows + r * k;
    float largest = 0, strange = 0;
    for (int64_t i = 0; i < k; ++i) {
      largest = std::max(largest, std::fabs(row[i]));
      strange += row[i] - row[i];
    }
    const Fp8Scale scale = Fp8ScaleOf(largest, strange);
    scales[static_cast<size_t>(r)] = scale.scale;
    for (int64_t i = 0; i < k; ++i) {
      numbers[static_cast<size_t>(r * padded + i)] = ToE4M3(row[i] * scale.factor);
    }
  });
  auto* const data = Data<uint8_t>(w.data);
  CopyIn({data + first_row * padded, DType::kI8, {n, padded, 1}}, numbers.data());
  CopyIn(
      {reinterpret_cast<float*>(data + layout.ScaleOffset()) + first_row, DType::kF32, {n, 1, 1}},
      scales.data());
  Keep(Synchronize());  // both go
}

// Rows of x are made e4m3 in scratch, as many at a time as it holds, once for all products. Sums
// that a bias is added to, and rows that cuBLASLt does not write as they lie, come behind them.
void CudaBackend::MultiplyFp8(Tensor x, std::span<const Product> products) {
  const int64_t rows = x.rows(), k = x.cols(), padded = Fp8Layout::Padded(k);
  CONTINUO_CHECK(x.dtype == DType::kBF16);
  int64_t most_columns = 0;  // of sums in scratch
  for (const Product& product : products) {
    CONTINUO_CHECK(product.w.data.cols() == k && product.w.data.rows() == product.out.cols());
    CONTINUO_CHECK(product.out.rows() == rows && IsActivation(product.out.dtype));
    if (product.bias.size() > 0 || !IsWritten(product.out)) {
      most_columns = std::max(most_columns, Fp8Layout::Padded(product.out.cols()));
    }
  }
  constexpr int64_t kFloat = sizeof(float);
  const int64_t row_bytes = padded + kFloat + most_columns * kFloat;
  // The parts of scratch begin at 256 bytes, and so do slices of rows that are made of 16.
  int64_t step = std::clamp<int64_t>(
      (static_cast<int64_t>(options_.scratch_bytes) - 512) / row_bytes, 1, rows);
  if (step < rows && step > 16) step = step / 16 * 16;
  const int64_t scale_begin = (step * padded + 255) / 256 * 256;
  const int64_t sum_begin = (scale_begin + step * kFloat + 255) / 256 * 256;
  auto* const scratch =
      static_cast<uint8_t*>(Scratch(static_cast<size_t>(sum_begin + step * most_columns * kFloat)));
  auto* const scales = reinterpret_cast<float*>(scratch + scale_begin);
  auto* const sums = reinterpret_cast<float*>(scratch + sum_begin);
  for (int64_t row = 0; row < rows && failure_.ok(); row += step) {
    const int64_t n = std::min(step, rows - row);
    Enqueue("QuantiseRows", [&] {
      return QuantiseRows(scratch, scales, Data<const uint16_t>(RowsOf(x, row, n)), n, k, stream());
    });
    const Fp8Matrix numbers = {scratch, scales, n, padded};
    for (const Product& product : products) {
      const int64_t columns = product.out.cols();
      const Tensor to = RowsOf(product.out, row, n);
      const bool is_apart = product.bias.size() > 0 || !IsWritten(product.out);
      Fp8Matrix w = MatrixOf(product.w);
      // Columns of zeros make rows of sums that are aligned.
      if (is_apart) w.rows = Fp8Layout::Padded(columns);
      const Tensor written = is_apart ? Tensor{sums, DType::kF32, {n, w.rows, 1}} : to;
      Keep(SetDevice(device()));
      if (failure_.ok()) Keep(matmul_->Run(written, numbers, w, stream()));
      if (!is_apart) continue;
      Enqueue("AddBias", [&] {
        return WithType(to.dtype, [&]<typename T>() {
          return AddBias(Data<T>(to), sums, w.rows,
                         product.bias.size() > 0 ? Data<const float>(product.bias) : nullptr, n,
                         columns, stream());
        });
      });
    }
  }
}

}  // namespace continuo::cuda
