// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops/cpu_adapter_ops.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/runtime/rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kEntries = 8;          // rows that share a read of an adapter's weights
constexpr int64_t kShrinkColumns = 128;  // of a work item
constexpr int64_t kExpandColumns = 512;  // likewise: sums of kEntries rows stay in the L1 cache
constexpr int64_t kRun = 64;             // rows of A that are widened at a time
// Sums of one dot product, element k of a K split in lane k mod kLanes. The lanes are independent
// of each other, so that a processor adds to several at a time.
constexpr int64_t kLanes = 4;
static_assert(kRun % kLanes == 0);

// Returns elements [column, column_end) of rows [row, row + n) of a matrix as floats, and sets the
// distance of two rows: in place where they are f32, else widened to `buffer`.
const float* ReadBlock(const KernelTable& kernels, const Tensor& t, int64_t row, int64_t n,
                       int64_t column, int64_t column_end, float* buffer, int64_t* stride) {
  const int64_t columns = column_end - column;
  if (t.dtype == DType::kF32) {
    *stride = t.cols();
    return reinterpret_cast<const float*>(At(t, row * t.cols() + column));
  }
  *stride = columns;
  if (columns == t.cols()) return Read(kernels, t, row * columns, n * columns, buffer);
  for (int64_t i = 0; i < n; ++i) {
    Read(kernels, t, (row + i) * t.cols() + column, columns, buffer + i * columns);
  }
  return buffer;
}

// The rows of the entries, each of which is one of `num_rows`.
const int32_t* RowsOfEntries(const Tensor& rows, int64_t num_rows) {
  const auto* const row_of = static_cast<const int32_t*>(rows.data);
  CONTINUO_CHECK(std::all_of(row_of, row_of + rows.size(),
                             [&](int32_t row) { return row >= 0 && row < num_rows; }));
  return row_of;
}

}  // namespace

void CpuAdapterOps::AddItems(size_t group, int64_t begin, int64_t end, int64_t columns,
                             int64_t column_block) {
  for (int64_t entry = begin; entry < end; entry += kEntries) {
    for (int64_t column = 0; column < columns; column += column_block) {
      items_.push_back({.group = group,
                        .begin = entry,
                        .end = std::min(entry + kEntries, end),
                        .column = column,
                        .column_end = std::min(column + column_block, columns)});
    }
  }
}

void CpuAdapterOps::DoShrink(Tensor inner, Tensor x, Tensor rows,
                             std::span<const ShrinkGroup> groups,
                             std::span<const int64_t> split_begin) {
  const int64_t num_splits = static_cast<int64_t>(split_begin.size()) - 1, k = x.cols();
  const int32_t* const row_of = RowsOfEntries(rows, x.rows());
  items_.clear();
  for (size_t g = 0; g < groups.size(); ++g) {
    AddItems(g, groups[g].begin, groups[g].end, inner.cols(), kShrinkColumns);
  }
  constexpr int64_t kMost = kShrinkColumns;
  const int64_t sums_size = kEntries * kMost;
  context_.ForRanges(
      static_cast<int64_t>(items_.size()), kEntries * k, [&](int64_t first, int64_t last, int t) {
        float* const a_buffer =
            context_.Scratch(t, static_cast<size_t>(kRun * kMost + kEntries * kRun +
                                                    (num_splits + kLanes) * sums_size));
        float* const x_buffer = a_buffer + kRun * kMost;
        float* const lanes = x_buffer + kEntries * kRun;
        float* const sums = lanes + kLanes * sums_size;  // [splits, entries, columns]
        for (int64_t i = first; i < last; ++i) {
          const Item& item = items_[static_cast<size_t>(i)];
          const Tensor& a = groups[item.group].a;
          const int64_t n = item.end - item.begin, columns = item.column_end - item.column;
          // Columns behind a's own stay zero.
          const int64_t own = std::clamp<int64_t>(a.cols() - item.column, 0, columns);
          for (int64_t split = 0; split < num_splits; ++split) {
            std::fill_n(lanes, kLanes * n * columns, 0.0f);
            for (int64_t at = split_begin[split]; own > 0 && at < split_begin[split + 1];
                 at += kRun) {
              const int64_t length = std::min(kRun, split_begin[split + 1] - at);
              int64_t stride = 0;
              const float* const weights = ReadBlock(kernels_, a, at, length, item.column,
                                                     item.column + own, a_buffer, &stride);
              std::array<const float*, kEntries> inputs;
              for (int64_t e = 0; e < n; ++e) {
                inputs[e] =
                    Read(kernels_, x, row_of[item.begin + e] * k + at, length, x_buffer + e * kRun);
              }
              for (int64_t j = 0; j < length; ++j) {
                for (int64_t e = 0; e < n; ++e) {
                  kernels_.add_scaled(lanes + (j % kLanes * n + e) * columns, weights + j * stride,
                                      inputs[e][j], own);
                }
              }
            }
            float* const sum = sums + split * n * columns;
            const int64_t size = n * columns;
            kernels_.add(lanes, lanes, lanes + size, size);
            kernels_.add(lanes + 2 * size, lanes + 2 * size, lanes + 3 * size, size);
            kernels_.add(sum, lanes, lanes + 2 * size, size);
          }
          for (int64_t step = 1; step < num_splits; step *= 2) {
            for (int64_t s = 0; s < num_splits; s += 2 * step) {
              float* const sum = sums + s * n * columns;
              kernels_.add(sum, sum, sums + (s + step) * n * columns, n * columns);
            }
          }
          for (int64_t e = 0; e < n; ++e) {
            std::memcpy(At(inner, (item.begin + e) * inner.cols() + item.column),
                        sums + e * columns, static_cast<size_t>(columns) * sizeof(float));
          }
        }
      });
}

void CpuAdapterOps::DoExpand(Tensor out, Tensor inner, Tensor rows,
                             std::span<const ExpandGroup> groups) {
  CheckComputes(out.dtype);
  const int32_t* const row_of = RowsOfEntries(rows, out.rows());
  items_.clear();
  int64_t cost = 1;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].b.size() == 0) continue;
    AddItems(g, groups[g].begin, groups[g].end, groups[g].b.cols(), kExpandColumns);
    cost = std::max(cost, groups[g].b.rows() * kExpandColumns);
  }
  context_.ForRanges(
      static_cast<int64_t>(items_.size()), cost, [&](int64_t first, int64_t last, int t) {
        float* const buffer = context_.Scratch(t, (kEntries + 1) * kExpandColumns);
        float* const sums = buffer + kExpandColumns;  // [entries, columns]
        for (int64_t i = first; i < last; ++i) {
          const Item& item = items_[static_cast<size_t>(i)];
          const ExpandGroup& group = groups[item.group];
          const int64_t n = item.end - item.begin, columns = item.column_end - item.column;
          std::fill_n(sums, n * columns, 0.0f);
          for (int64_t j = 0; j < group.b.rows(); ++j) {
            int64_t stride = 0;
            const float* const weights =
                ReadBlock(kernels_, group.b, j, 1, item.column, item.column_end, buffer, &stride);
            for (int64_t e = 0; e < n; ++e) {
              const auto* const values =
                  reinterpret_cast<const float*>(At(inner, (item.begin + e) * inner.cols()));
              kernels_.add_scaled(sums + e * columns, weights, values[group.first + j],
                                  static_cast<size_t>(columns));
            }
          }
          for (int64_t e = 0; e < n; ++e) {
            const int64_t at = row_of[item.begin + e] * out.cols() + group.column + item.column;
            float* const to = Begin(out, at, buffer);
            const float* const before = Read(kernels_, out, at, columns, buffer);
            if (before != to) std::memcpy(to, before, static_cast<size_t>(columns) * sizeof(float));
            kernels_.add_scaled(to, sums + e * columns, group.factor, static_cast<size_t>(columns));
            Finish(kernels_, out, at, columns, to);
          }
        }
      });
}

}  // namespace continuo::kernels::cpu
