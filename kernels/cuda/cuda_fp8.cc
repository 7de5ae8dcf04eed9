// SPDX-License-Identifier: Apache-2.0
// Matrices in e4m3: packed on the host, multiplied by cuBLASLt with activations in e4m3.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/fp8.h"
#include "kernels/cuda/runtime/scratch_layout.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
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

// Whether a product's sums come by way of scratch whatever cuBLASLt has: a bias is added to them,
// or cuBLASLt does not write rows of so many elements where they are to be.
bool IsApart(const Product& product) {
  const Tensor& out = product.out;
  return product.bias.size() > 0 || !IsAligned(out.data) ||
         out.cols() * static_cast<int64_t>(SizeOf(out.dtype)) % 16 != 0;
}

// For x [rows, k] in e4m3.
Fp8Rows AddFp8Rows(ScratchLayout& layout, int64_t rows, int64_t k) {
  return {.numbers = layout.Add<uint8_t>(static_cast<size_t>(rows * Fp8Layout::Padded(k))),
          .scales = layout.Add<float>(static_cast<size_t>(rows))};
}

}  // namespace

void CudaBackend::PackFp8(const Weight& w, int64_t first_row, const float* rows, int64_t n) {
  packs_fp8_ = true;
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

void CudaBackend::WithFp8Rows(Tensor x, absl::FunctionRef<void(const Fp8Rows&)> op) {
  ScratchLayout counted;
  AddFp8Rows(counted, x.rows(), x.cols());
  // MultiplyFp8 takes more rows than these in slices.
  if (!packs_fp8_ || x.dtype != DType::kBF16 || x.size() == 0 ||
      counted.bytes() > options_.scratch_bytes) {
    op({});
    return;
  }
  ScratchLayout layout(host::Scratch(counted.bytes()));
  op(AddFp8Rows(layout, x.rows(), x.cols()));
  if (failure_.ok()) known_fp8_ = {x.data, x.rows(), x.cols()};
}

void CudaBackend::GatedMatMul(Tensor x, const Product& gate, const Product& up,
                              GateFunction function) {
  const bool is_silu = function == GateFunction::kSilu;
  const Tensor out = gate.out;
  MatMuls(x, std::array<Product, 2>{gate, up});
  WithFp8Rows(out, [&](const Fp8Rows& fp8) {
    if (fp8.numbers == nullptr) {
      is_silu ? SiluMul(out, out, up.out) : GeluMul(out, out, up.out);
      return;
    }
    CONTINUO_CHECK(up.out.size() == out.size() && up.out.dtype == out.dtype);
    Enqueue(is_silu ? "SiluMulInFp8" : "GeluMulInFp8", [&] {
      const auto call = is_silu ? SiluMulInFp8 : GeluMulInFp8;
      return call(Data<uint16_t>(out), fp8, Data<const uint16_t>(out), Data<const uint16_t>(up.out),
                  out.rows(), out.cols(), stream());
    });
  });
}

// Rows of x are made e4m3 in scratch, as many at a time as it holds, once for all products, unless
// the op before has done so. Behind them come f32 sums that a bias is added to, that cuBLASLt does
// not write as they are to lie, or that it has no algorithm to multiply with scales for.
void CudaBackend::MultiplyFp8(Tensor x, std::span<const Product> products) {
  const int64_t rows = x.rows(), k = x.cols(), padded = Fp8Layout::Padded(k);
  CONTINUO_CHECK(x.dtype == DType::kBF16);
  for (const Product& product : products) {
    CONTINUO_CHECK(product.w.data.cols() == k && product.w.data.rows() == product.out.cols());
    CONTINUO_CHECK(product.out.rows() == rows && IsF32OrBF16(product.out.dtype));
  }
  Keep(SetDevice(device()));
  const auto has_scales = [&](int64_t n, int64_t columns, DType out) {
    if (!failure_.ok()) return true;
    const absl::StatusOr<bool> has = matmul_->Has({.rows = n,
                                                   .columns = columns,
                                                   .k = padded,
                                                   .in = DType::kF8,
                                                   .out = out,
                                                   .has_scales = true});
    Keep(has.status());
    return has.value_or(true);
  };
  const auto is_apart = [&](const Product& product, int64_t n) {
    return IsApart(product) || !has_scales(n, product.out.cols(), product.out.dtype);
  };
  int64_t most_columns = 0;  // of sums in scratch
  const auto step_of = [&] {
    const int64_t row_bytes = padded + (1 + most_columns) * static_cast<int64_t>(sizeof(float));
    // Arrays of scratch begin at 256 bytes, and so do slices of rows that are made of 16.
    const int64_t step = std::clamp<int64_t>(
        (static_cast<int64_t>(options_.scratch_bytes) - 3 * 256) / row_bytes, 1, rows);
    return step < rows && step > 16 ? step / 16 * 16 : step;
  };
  const auto add_sums = [&](const Product& product) {
    most_columns = std::max(most_columns, Fp8Layout::Padded(product.out.cols()));
  };
  for (const Product& product : products) {
    if (is_apart(product, rows)) add_sums(product);
  }
  // What has an algorithm for all rows may have none for a slice of them.
  if (step_of() < rows) std::for_each(products.begin(), products.end(), add_sums);
  const int64_t step = step_of();
  struct Arrays {
    Fp8Rows x;    // [step]
    float* sums;  // [step, most_columns]
  };
  const auto lay_out = [&](ScratchLayout& layout) -> Arrays {
    return {.x = AddFp8Rows(layout, step, k),
            .sums = layout.Add<float>(static_cast<size_t>(step * most_columns))};
  };
  ScratchLayout counted;
  lay_out(counted);
  const bool is_known = known_fp8_.x == x.data && known_fp8_.rows == rows && known_fp8_.k == k &&
                        step == rows && counted.bytes() <= scratch_.bytes();
  ScratchLayout layout(host::Scratch(counted.bytes()));
  const Arrays at = lay_out(layout);
  for (int64_t row = 0; row < rows && failure_.ok(); row += step) {
    const int64_t n = std::min(step, rows - row);
    if (!is_known) {
      Enqueue("QuantiseRows", [&] {
        return QuantiseRows(at.x, Data<const uint16_t>(RowsOf(x, row, n)), n, k, stream());
      });
    }
    const Fp8Matrix numbers = {at.x.numbers, at.x.scales, n, padded};
    for (const Product& product : products) {
      const Tensor to = RowsOf(product.out, row, n);
      const Fp8Matrix w = MatrixOf(product.w);
      if (is_apart(product, n)) {
        const int64_t columns = Fp8Layout::Padded(to.cols());
        CONTINUO_CHECK(columns <= most_columns || !failure_.ok());
        MultiplyFp8Apart(to, at.sums, numbers, w, product.bias,
                         has_scales(n, columns, DType::kF32));
        continue;
      }
      if (failure_.ok()) Keep(matmul_->Run(to, numbers, w, stream()));
    }
  }
}

void CudaBackend::MultiplyFp8Apart(Tensor out, float* sums, const Fp8Matrix& x, const Fp8Matrix& w,
                                   Tensor bias, bool has_scales) {
  const int64_t rows = out.rows(), columns = out.cols();
  Fp8Matrix numbers = x, wide = w;
  wide.rows = Fp8Layout::Padded(columns);  // of zeros: rows of sums are aligned
  if (!has_scales) numbers.scales = wide.scales = nullptr;
  if (failure_.ok()) {
    Keep(matmul_->Run({sums, DType::kF32, {rows, wide.rows, 1}}, numbers, wide, stream()));
  }
  const float* const added = bias.size() > 0 ? Data<const float>(bias) : nullptr;
  Enqueue(has_scales ? "AddBias" : "ScaleRows", [&] {
    return WithF32OrBF16(out.dtype, [&]<typename T>() {
      return has_scales ? AddBias(Data<T>(out), sums, wide.rows, added, rows, columns, stream())
                        : ScaleRows(Data<T>(out), sums, wide.rows, x.scales, w.scales, added, rows,
                                    columns, stream());
    });
  });
}

}  // namespace continuo::kernels::cuda
