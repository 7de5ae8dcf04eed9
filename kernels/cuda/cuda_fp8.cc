// SPDX-License-Identifier: Apache-2.0
// Matrices in e4m3: packed on the host, multiplied by cuBLASLt with activations in e4m3.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/row_ops.h"
#include "kernels/cuda/scratch_layout.h"
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

// Whether a product's sums come by way of scratch: a bias is added to them, or cuBLASLt does not
// write rows of so many elements where they are to be.
bool IsApart(const Product& product) {
  const Tensor& out = product.out;
  return product.bias.size() > 0 || !IsAligned(out.data) ||
         out.cols() * static_cast<int64_t>(SizeOf(out.dtype)) % 16 != 0;
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
  CopyIn({data + first_row * padded, DType::kF8, {n, padded, 1}}, numbers.data());
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
    CONTINUO_CHECK(product.out.rows() == rows && IsF32OrBF16(product.out.dtype));
    if (IsApart(product)) {
      most_columns = std::max(most_columns, Fp8Layout::Padded(product.out.cols()));
    }
  }
  const int64_t row_bytes = padded + (1 + most_columns) * static_cast<int64_t>(sizeof(float));
  // Arrays of scratch begin at 256 bytes, and so do slices of rows that are made of 16.
  int64_t step = std::clamp<int64_t>(
      (static_cast<int64_t>(options_.scratch_bytes) - 3 * 256) / row_bytes, 1, rows);
  if (step < rows && step > 16) step = step / 16 * 16;
  struct Arrays {
    uint8_t* numbers;  // [step, padded]
    float* scales;     // [step]
    float* sums;       // [step, most_columns]
  };
  const auto lay_out = [&](ScratchLayout& layout) -> Arrays {
    return {.numbers = layout.Add<uint8_t>(static_cast<size_t>(step * padded)),
            .scales = layout.Add<float>(static_cast<size_t>(step)),
            .sums = layout.Add<float>(static_cast<size_t>(step * most_columns))};
  };
  ScratchLayout counted;
  lay_out(counted);
  ScratchLayout layout(Scratch(counted.bytes()));
  const Arrays at = lay_out(layout);
  for (int64_t row = 0; row < rows && failure_.ok(); row += step) {
    const int64_t n = std::min(step, rows - row);
    Enqueue("QuantiseRows", [&] {
      return QuantiseRows(at.numbers, at.scales, Data<const uint16_t>(RowsOf(x, row, n)), n, k,
                          stream());
    });
    const Fp8Matrix numbers = {at.numbers, at.scales, n, padded};
    for (const Product& product : products) {
      const int64_t columns = product.out.cols();
      const Tensor to = RowsOf(product.out, row, n);
      const bool is_apart = IsApart(product);
      Fp8Matrix w = MatrixOf(product.w);
      // Columns of zeros make rows of sums that are aligned.
      if (is_apart) w.rows = Fp8Layout::Padded(columns);
      const Tensor written = is_apart ? Tensor{at.sums, DType::kF32, {n, w.rows, 1}} : to;
      Keep(SetDevice(device()));
      if (failure_.ok()) Keep(matmul_->Run(written, numbers, w, stream()));
      if (!is_apart) continue;
      Enqueue("AddBias", [&] {
        return WithF32OrBF16(to.dtype, [&]<typename T>() {
          return AddBias(Data<T>(to), at.sums, w.rows,
                         product.bias.size() > 0 ? Data<const float>(product.bias) : nullptr, n,
                         columns, stream());
        });
      });
    }
  }
}

}  // namespace continuo::cuda
