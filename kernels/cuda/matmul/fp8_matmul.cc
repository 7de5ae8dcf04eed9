// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/fp8_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cuda/matmul/small_m_matmul.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/cuda/runtime/scratch_layout.h"
#include "kernels/tensor_rows.h"
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

}  // namespace

void Fp8MatMul::Pack(const Weight& w, int64_t first_row, const float* rows, int64_t n) {
  const Fp8Layout layout = LayoutOf(w);
  const int64_t k = layout.k, padded = Fp8Layout::Padded(k);
  std::vector<uint8_t> numbers(static_cast<size_t>(n * padded));
  std::vector<float> scales(static_cast<size_t>(n));
  context_.ParallelFor(static_cast<int>(n), [&](int r) {
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
  auto* const scales_to = reinterpret_cast<float*>(data + layout.ScaleOffset()) + first_row;
  context_.CopyIn({data + first_row * padded, DType::kF8, {n, padded, 1}}, numbers.data());
  context_.CopyIn({scales_to, DType::kF32, {n, 1, 1}}, scales.data());
  context_.Keep(context_.Synchronize());  // both vectors end here
}

bool Fp8MatMul::HasScales(int64_t n, int64_t columns, int64_t k, DType out) {
  if (!context_.ok()) return true;
  const absl::StatusOr<bool> has = cublaslt_.Has({.rows = n,
                                                  .columns = columns,
                                                  .k = Fp8Layout::Padded(k),
                                                  .in = DType::kF8,
                                                  .out = out,
                                                  .has_scales = true},
                                                 context_.stream().get());
  context_.Keep(has.status());
  return has.value_or(true);
}

bool Fp8MatMul::NeedsSums(const Product& product, int64_t n, int64_t k) {
  const Tensor& out = product.out;
  return product.bias.size() > 0 || !IsAligned(out.data) ||
         out.cols() * static_cast<int64_t>(SizeOf(out.dtype)) % 16 != 0 ||
         !HasScales(n, out.cols(), k, out.dtype);
}

void Fp8MatMul::Multiply(const MatMulInput& input, std::span<const Product> products) {
  const Tensor& x = input.x;
  const int64_t rows = x.rows(), k = x.cols(), padded = Fp8Layout::Padded(k);
  CONTINUO_CHECK(x.dtype == DType::kBF16);
  for (const Product& product : products) CONTINUO_CHECK(IsF32OrBF16(product.out.dtype));
  context_.Keep(SetDevice(context_.device().index));
  int64_t most_columns = 0;  // of sums in scratch
  const auto step_of = [&] {
    const int64_t row_bytes = padded + (1 + most_columns) * static_cast<int64_t>(sizeof(float));
    // Arrays of scratch begin at 256 bytes, and so do slices of rows that are multiples of 16.
    const int64_t step = std::clamp<int64_t>(
        (static_cast<int64_t>(context_.scratch_budget()) - 3 * 256) / row_bytes, 1, rows);
    return step < rows && step > 16 ? step / 16 * 16 : step;
  };
  const auto add_sums = [&](const Product& product) {
    most_columns = std::max(most_columns, Fp8Layout::Padded(product.out.cols()));
  };
  const bool small_m = rows <= max_small_m_rows_;
  if (!small_m) {
    for (const Product& product : products) {
      if (NeedsSums(product, rows, k)) add_sums(product);
    }
    // A product that has an algorithm for all rows may have none for a slice of them.
    if (step_of() < rows) std::for_each(products.begin(), products.end(), add_sums);
  }
  const int64_t step = step_of();
  struct Arrays {
    Fp8Rows x;    // [step], unless x is prepared
    float* sums;  // [step, most_columns]
  };
  const auto lay_out = [&](ScratchLayout& layout) {
    Arrays arrays;
    if (input.prepared == nullptr) arrays.x = AddFp8Rows(layout, step, k);
    arrays.sums = layout.Add<float>(static_cast<size_t>(step * most_columns));
    return arrays;
  };
  ScratchLayout counted;
  lay_out(counted);
  ScratchLayout layout(context_.Scratch(counted.bytes()));
  const Arrays at = lay_out(layout);
  const Fp8Rows prepared = PreparedFp8Rows(const_cast<void*>(input.prepared), rows, k);
  for (int64_t row = 0; row < rows && context_.ok(); row += step) {
    const int64_t n = std::min(step, rows - row);
    Fp8Rows numbers = at.x;
    if (input.prepared != nullptr) {
      numbers = {.numbers = prepared.numbers + row * padded, .scales = prepared.scales + row};
    } else {
      context_.Enqueue("QuantiseRows", [&] {
        return QuantiseRows(at.x, Data<const uint16_t>(RowsOf(x, row, n)), n, k,
                            context_.kernels());
      });
    }
    if (small_m) {
      MultiplySmallM(numbers, products, row, n);
      continue;
    }
    const Fp8Matrix factor = {numbers.numbers, numbers.scales, n, padded};
    for (const Product& product : products) {
      const Tensor to = RowsOf(product.out, row, n);
      const Fp8Matrix w = MatrixOf(product.w);
      if (NeedsSums(product, n, k)) {
        const int64_t columns = Fp8Layout::Padded(to.cols());
        CONTINUO_CHECK(columns <= most_columns || !context_.ok());
        MultiplyBySums(to, at.sums, factor, w, product.bias, HasScales(n, columns, k, DType::kF32));
        continue;
      }
      context_.EnqueueStatus([&] { return cublaslt_.Run(to, factor, w, context_.stream().get()); });
    }
  }
}

void Fp8MatMul::MultiplySmallM(const Fp8Rows& x, std::span<const Product> products,
                               int64_t first_row, int64_t n) {
  const auto is_like_first = [&](const Product& p) { return p.out.dtype == products[0].out.dtype; };
  if (products.size() > size_t{kMaxJoinedProducts} ||
      !std::all_of(products.begin(), products.end(), is_like_first)) {
    for (const Product& product : products) MultiplySmallM(x, {&product, 1}, first_row, n);
    return;
  }
  std::array<SmallMProduct, kMaxJoinedProducts> all;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    const Fp8Matrix w = MatrixOf(p.w);
    all[i] = {.out = RowsOf(p.out, first_row, n).data,
              .data = w.data,
              .bias = p.bias.size() == 0 ? nullptr : Data<const float>(p.bias),
              .scales = w.scales,
              .columns = p.out.cols()};
  }
  const int64_t splits[] = {0, Fp8Layout::Padded(products[0].w.data.cols())};
  context_.Enqueue("SmallMMatMul", [&] {
    return WithF32OrBF16(products[0].out.dtype, [&]<typename T>() {
      return SmallMMatMul<T>({all.data(), products.size()}, x,
                             GroupsOf(WeightFormat::kDense, splits), n,
                             context_.device().num_multiprocessors, context_.kernels());
    });
  });
}

void Fp8MatMul::MultiplyBySums(Tensor out, float* sums, const Fp8Matrix& x, const Fp8Matrix& w,
                               Tensor bias, bool has_scales) {
  const int64_t rows = out.rows(), columns = out.cols();
  Fp8Matrix numbers = x, wide = w;
  wide.rows = Fp8Layout::Padded(columns);  // rows of zeros, so that rows of sums are aligned
  if (!has_scales) numbers.scales = wide.scales = nullptr;
  context_.EnqueueStatus([&] {
    return cublaslt_.Run({sums, DType::kF32, {rows, wide.rows, 1}}, numbers, wide,
                         context_.stream().get());
  });
  const float* const added = bias.size() > 0 ? Data<const float>(bias) : nullptr;
  context_.Enqueue(has_scales ? "AddBias" : "ScaleRows", [&] {
    return WithF32OrBF16(out.dtype, [&]<typename T>() {
      return has_scales
                 ? AddBias(Data<T>(out), sums, wide.rows, added, rows, columns, context_.kernels())
                 : ScaleRows(Data<T>(out), sums, wide.rows, x.scales, w.scales, added, rows,
                             columns, context_.kernels());
    });
  });
}

}  // namespace continuo::kernels::cuda
