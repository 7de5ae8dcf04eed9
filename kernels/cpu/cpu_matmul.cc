// SPDX-License-Identifier: Apache-2.0
// MatMul, MatMuls, GatedMatMul and MatMulPieces; dense weights. These stay as they lie, [out, in]
// row-major: each output is a dot product of a row of x and a row of w in lanes over k. Rows of x
// are widened to f32 and ordered for the weights' type once; a part of the work is a block of
// outputs' columns, for all rows.
//
// Up to about 16 rows the weights are read from memory once and bound the time
// (out · in · bytes per weight / bandwidth); from there on the multiply-adds do.

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kMaxSlab = 512;         // rows of x packed at a time
constexpr int64_t kRowBlock = 64;         // rows whose results a thread holds before rounding them
constexpr int64_t kColumnUnit = 24;       // a multiple of every table's tiles
constexpr int64_t kWeightBytes = 131072;  // of weights per part: stays in the second cache
constexpr int64_t kFewRows = 16;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Columns of the output that one part computes.
int64_t ColumnBlock(int64_t rows, int64_t k, DType dtype) {
  const int64_t bytes_per_column = std::max<int64_t>(1, k * static_cast<int64_t>(SizeOf(dtype)));
  const int64_t columns = kWeightBytes / bytes_per_column / kColumnUnit * kColumnUnit;
  return std::clamp(columns, kColumnUnit, (rows > kFewRows ? 2 : 10) * kColumnUnit);
}

void CheckProduct(const Product& p, const Tensor& x, int64_t num_rows) {
  CONTINUO_CHECK(IsActivation(p.out.dtype) && IsActivation(x.dtype));
  CONTINUO_CHECK(p.out.rows() == num_rows);
  const int64_t columns = p.out.cols();
  CONTINUO_CHECK(p.w.data.rows() == columns && (columns == 0 || p.w.data.cols() == x.cols()));
  CONTINUO_CHECK(p.bias.size() == 0 || (p.bias.dtype == DType::kF32 && p.bias.size() == columns));
}

}  // namespace

void CpuBackend::MatMul(Tensor out, Tensor x, const Weight& w, Tensor bias) {
  const int64_t begins[] = {0, x.cols()};
  MultiplyPieces(out, x, w, begins, bias, nullptr);
}

void CpuBackend::MatMuls(Tensor x, std::span<const Product> products) {
  const auto alike = [&](const Product& p) {
    return p.w.format == products[0].w.format && p.out.size() > 0;
  };
  if (products.empty() || products[0].w.format == WeightFormat::kDense ||
      !std::all_of(products.begin(), products.end(), alike)) {
    return Backend::MatMuls(x, products);
  }
  panel_products_.clear();
  for (const Product& p : products) {
    CheckProduct(p, x, x.rows());
    panel_products_.push_back({p.out, p.w, p.bias, 0});
  }
  const int64_t begins[] = {0, x.cols()};
  MultiplyPanels(panel_products_, x, nullptr, x.rows(), begins);
}

void CpuBackend::GatedMatMul(Tensor x, const Product& gate, const Product& up,
                             GateFunction function) {
  const WeightFormat format = gate.w.format;
  if (format == WeightFormat::kDense || format != up.w.format || gate.out.size() == 0) {
    return Backend::GatedMatMul(x, gate, up, function);
  }
  CheckProduct(gate, x, x.rows());
  CheckProduct(up, x, x.rows());
  CONTINUO_CHECK(up.out.dtype == gate.out.dtype && up.out.cols() == gate.out.cols());
  const PanelProduct product = {.out = gate.out,
                                .w = gate.w,
                                .bias = gate.bias,
                                .x_row = 0,
                                .gate = LoopOf(function),
                                .up = up.w,
                                .up_bias = up.bias};
  const int64_t begins[] = {0, x.cols()};
  MultiplyPanels(std::span(&product, 1), x, nullptr, x.rows(), begins);
}

void CpuBackend::MatMulPieces(Tensor out, Tensor x, const Weight& w,
                              std::span<const int64_t> piece_begin) {
  CONTINUO_CHECK(out.dtype == DType::kF32);
  MultiplyPieces(out, x, w, piece_begin, Tensor(), nullptr);
}

void CpuBackend::MultiplyPieces(Tensor out, Tensor x, const Weight& w,
                                std::span<const int64_t> piece_begin, Tensor bias,
                                const int32_t* x_rows) {
  const int64_t rows = out.rows(), columns = out.cols(), k = x.cols();
  const int64_t num_pieces = static_cast<int64_t>(piece_begin.size()) - 1;
  CheckPieces(piece_begin, k);
  const Product product = {out, w, bias};
  CheckProduct(product, x, x_rows != nullptr ? rows : x.rows());
  if (rows == 0 || columns == 0) return;
  if (w.format != WeightFormat::kDense) {
    const PanelProduct panels = {out, w, bias, 0};
    return MultiplyPanels(std::span(&panels, 1), x, x_rows, rows, piece_begin);
  }

  const int element = ElementOf(w.data.dtype);
  const int64_t unit = static_cast<int64_t>(kernels_.pack_block);
  int64_t packed_k = 0;
  for (int64_t i = 0; i < num_pieces; ++i) {
    packed_k += RoundUp(piece_begin[i + 1] - piece_begin[i], unit);
  }
  const bool as_it_is = x.dtype == DType::kF32 && element != kElementBF16 && num_pieces == 1 &&
                        packed_k == k && x_rows == nullptr;
  const bool direct = out.dtype == DType::kF32 && bias.size() == 0 && num_pieces == 1;
  const int64_t column_block = ColumnBlock(rows, k, w.data.dtype);
  const int64_t num_blocks = (columns + column_block - 1) / column_block;

  for (int64_t first = 0; first < rows; first += kMaxSlab) {
    const int64_t slab = std::min(kMaxSlab, rows - first);
    const float* packed;
    if (as_it_is) {
      packed = reinterpret_cast<const float*>(At(x, first * k));
    } else {
      float* const to = packed_.Get(slab * packed_k);
      packed = to;
      ForParts(slab, k, [&](int64_t begin, int64_t end, int thread) {
        float* buffer = scratch_[thread].Get(k);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t x_row = x_rows == nullptr ? first + r : x_rows[first + r];
          const float* in = Read(kernels_, x, x_row * k, k, buffer);
          float* row = to + r * packed_k;
          for (int64_t i = 0; i < num_pieces; ++i) {
            const int64_t length = piece_begin[i + 1] - piece_begin[i];
            kernels_.pack[element](row, in + piece_begin[i], length);
            row += RoundUp(length, unit);
          }
        }
      });
    }

    pool_.Run(static_cast<int>(num_blocks), [&](int block, int thread) {
      const int64_t col = block * column_block;
      const int64_t num_cols = std::min(column_block, columns - col);
      const int64_t row_block = direct ? slab : std::min(slab, kRowBlock);
      float* buffer = direct ? nullptr : scratch_[thread].Get(num_pieces * row_block * num_cols);
      for (int64_t r = 0; r < slab; r += row_block) {
        const int64_t num_rows = std::min(row_block, slab - r);
        const int64_t piece_size = num_rows * num_cols;
        const float* piece_x = packed + r * packed_k;
        for (int64_t i = 0; i < num_pieces; ++i) {
          const int64_t length = piece_begin[i + 1] - piece_begin[i];
          DotBlock args;
          args.out = direct ? reinterpret_cast<float*>(At(out, (first + r) * columns + col))
                            : buffer + i * piece_size;
          args.out_stride = direct ? columns : num_cols;
          args.x = piece_x;
          args.x_stride = packed_k;
          args.num_rows = num_rows;
          args.w = At(w.data, col * k + piece_begin[i]);
          args.w_stride = k;
          args.num_cols = num_cols;
          args.k = length;
          // Threads claim blocks in order.
          args.gap = static_cast<size_t>((pool_.num_threads() - 1) * column_block * k) *
                     SizeOf(w.data.dtype);
          kernels_.dots[element](args);
          piece_x += RoundUp(length, unit);
        }
        if (direct) continue;
        FinishPieces(out, first + r, num_rows, col, num_cols, num_cols, buffer, num_pieces, bias);
      }
    });
  }
}

}  // namespace continuo::kernels::cpu
