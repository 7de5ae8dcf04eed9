// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/dense_matmul.h"

#include <algorithm>

#include "kernels/cpu/matmul/panel_layout.h"
#include "kernels/cpu/matmul/split_sum.h"
#include "kernels/cpu/runtime/rows.h"

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kMaxSlab = 512;         // rows of x packed at a time
constexpr int64_t kRowBlock = 64;         // rows whose results a thread holds before rounding them
constexpr int64_t kColumnUnit = 24;       // a multiple of every table's tiles
constexpr int64_t kWeightBytes = 131072;  // of weights per work item: they stay in the L2 cache
// Up to this many rows the weights are read once, so work items are large; beyond it the threads
// share the work more finely.
constexpr int64_t kSmallM = 16;

// The output columns of one work item.
int64_t ColumnBlock(int64_t rows, int64_t k, DType dtype) {
  const int64_t bytes_per_column = std::max<int64_t>(1, k * static_cast<int64_t>(SizeOf(dtype)));
  const int64_t columns = kWeightBytes / bytes_per_column / kColumnUnit * kColumnUnit;
  return std::clamp(columns, kColumnUnit, (rows > kSmallM ? 2 : 10) * kColumnUnit);
}

}  // namespace

void DenseMatMul::Run(const Product& product, Tensor x, std::span<const int64_t> split_begin,
                      const int32_t* x_rows) {
  const Tensor &out = product.out, &bias = product.bias;
  const Weight& w = product.w;
  const int64_t rows = out.rows(), columns = out.cols(), k = x.cols();
  const int64_t num_splits = static_cast<int64_t>(split_begin.size()) - 1;
  const int element = ElementOf(w.data.dtype);
  const int64_t unit = static_cast<int64_t>(kernels_.pack_block);
  int64_t packed_k = 0;
  for (int64_t i = 0; i < num_splits; ++i) {
    packed_k += RoundUp(split_begin[i + 1] - split_begin[i], unit);
  }
  const bool x_is_packed = x.dtype == DType::kF32 && element != kElementBF16 && num_splits == 1 &&
                           packed_k == k && x_rows == nullptr;
  const bool direct = out.dtype == DType::kF32 && bias.size() == 0 && num_splits == 1;
  const int64_t column_block = ColumnBlock(rows, k, w.data.dtype);
  const int64_t num_blocks = (columns + column_block - 1) / column_block;

  for (int64_t first = 0; first < rows; first += kMaxSlab) {
    const int64_t slab = std::min(kMaxSlab, rows - first);
    const float* packed;
    if (x_is_packed) {
      packed = reinterpret_cast<const float*>(At(x, first * k));
    } else {
      float* const to = packed_.Get(slab * packed_k);
      packed = to;
      context_.ForRanges(slab, k, [&](int64_t begin, int64_t end, int thread) {
        float* buffer = context_.Scratch(thread, k);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t x_row = x_rows == nullptr ? first + r : x_rows[first + r];
          const float* in = Read(kernels_, x, x_row * k, k, buffer);
          float* row = to + r * packed_k;
          for (int64_t i = 0; i < num_splits; ++i) {
            const int64_t length = split_begin[i + 1] - split_begin[i];
            if (length == 0) continue;  // a rank without columns has no memory for them either
            kernels_.pack[element](row, in + split_begin[i], length);
            row += RoundUp(length, unit);
          }
        }
      });
    }

    context_.pool().Run(static_cast<int>(num_blocks), [&](int block, int thread) {
      const int64_t col = block * column_block;
      const int64_t num_cols = std::min(column_block, columns - col);
      const int64_t row_block = direct ? slab : std::min(slab, kRowBlock);
      float* buffer =
          direct ? nullptr : context_.Scratch(thread, num_splits * row_block * num_cols);
      for (int64_t r = 0; r < slab; r += row_block) {
        const int64_t num_rows = std::min(row_block, slab - r);
        const int64_t split_size = num_rows * num_cols;
        const float* split_x = packed + r * packed_k;
        for (int64_t i = 0; i < num_splits; ++i) {
          const int64_t length = split_begin[i + 1] - split_begin[i];
          DotBlock args;
          args.out = direct ? reinterpret_cast<float*>(At(out, (first + r) * columns + col))
                            : buffer + i * split_size;
          args.out_stride = direct ? columns : num_cols;
          args.x = split_x;
          args.x_stride = packed_k;
          args.num_rows = num_rows;
          args.w = At(w.data, col * k + split_begin[i]);
          args.w_stride = k;
          args.num_cols = num_cols;
          args.k = length;
          // Threads claim blocks in order.
          args.gap = static_cast<size_t>((context_.num_threads() - 1) * column_block * k) *
                     SizeOf(w.data.dtype);
          kernels_.dots[element](args);
          split_x += RoundUp(length, unit);
        }
        if (direct) continue;
        const ResultBlock to = {.out = out,
                                .bias = bias,
                                .row = first + r,
                                .num_rows = num_rows,
                                .column = col,
                                .num_columns = num_cols};
        FinishSplits(kernels_, to, buffer, num_splits, /*stride=*/num_cols);
      }
    });
  }
}

}  // namespace continuo::kernels::cpu
