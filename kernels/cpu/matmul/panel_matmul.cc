// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/panel_matmul.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/matmul/split_sum.h"
#include "kernels/cpu/runtime/rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kMaxSlab = 960;  // rows of x packed at a time
constexpr int64_t kSplitRows =
    48;  // rows whose splits are summed at a time; a multiple of all tiles

// Prefetches the memory that a work item writes at its end. The rows' lines lie apart, so the
// hardware does not prefetch them.
void PrefetchRows(const Tensor& out, int64_t row, int64_t num_rows, int64_t column,
                  int64_t num_columns) {
  const auto bytes = static_cast<int64_t>(SizeOf(out.dtype)) * num_columns;
  for (int64_t i = 0; i < num_rows; ++i) {
    const char* const begin = At(out, (row + i) * out.cols() + column);
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at, 1, 2);
  }
}

// Adds a product's bias to a block of its results, f32.
void AddBias(const KernelTable& kernels, const ResultBlock& block) {
  if (block.bias.size() == 0) return;
  const float* const bias = static_cast<const float*>(block.bias.data) + block.column;
  for (int64_t i = 0; i < block.num_rows; ++i) {
    auto* const row =
        reinterpret_cast<float*>(At(block.out, (block.row + i) * block.out.cols() + block.column));
    kernels.add(row, row, bias, static_cast<size_t>(block.num_columns));
  }
}

// Applies a product's activation to a block of its results.
void Activate(const ResultBlock& block, GateLoop activation) {
  constexpr int64_t kRun = 64;
  float ones[kRun];
  std::fill_n(ones, kRun, 1.0f);
  for (int64_t i = 0; i < block.num_rows; ++i) {
    auto* const row =
        reinterpret_cast<float*>(At(block.out, (block.row + i) * block.out.cols() + block.column));
    for (int64_t at = 0; at < block.num_columns; at += kRun) {
      const int64_t n = std::min(kRun, block.num_columns - at);
      activation(row + at, row + at, ones, static_cast<size_t>(n));
    }
  }
}

// Returns whether rows of x are used where they are: f32 that nobody picks, whose rows do not all
// begin in the same set of the cache.
bool ReadsInPlace(const PanelLayout& layout, Tensor x, const int32_t* x_rows) {
  constexpr int64_t kPage = 4096;
  const int64_t stride = x.cols() * static_cast<int64_t>(sizeof(float));
  return layout.format == WeightFormat::kF32Panels && x.dtype == DType::kF32 && x_rows == nullptr &&
         stride % kPage != 0;
}

}  // namespace

PackedRows PanelMatMul::RoomForRows(const PanelLayout& layout, int64_t rows) {
  const int64_t num_splits = layout.num_splits();
  PackedRows packed;
  // An odd number of cache lines, so that neighbouring rows do not meet in one set of the cache.
  // The 64 bytes are also what AMX may read beyond the last split.
  packed.stride = RoundUp(layout.x_offset[num_splits], 128) + 64;
  packed.num_rows = rows;
  const int64_t num_numbers = rows * layout.group_offset[num_splits];
  float* const memory =
      packed_.Get(static_cast<size_t>(rows * packed.stride / 4 + 3 * num_numbers));
  packed.bytes = reinterpret_cast<uint8_t*>(memory);
  packed.scales = memory + rows * packed.stride / 4;
  packed.scaled_sums = packed.scales + num_numbers;
  packed.sums = reinterpret_cast<int32_t*>(packed.scaled_sums + num_numbers);
  return packed;
}

void PanelMatMul::PackX(const PanelLayout& layout, Tensor x, const int32_t* x_rows, int64_t first,
                        int64_t rows, const PackedRows& packed) {
  if (layout.format != WeightFormat::kBF16Panels && layout.format != WeightFormat::kF32Panels) {
    return QuantiseX(layout, x, x_rows, first, rows, packed);
  }
  const int64_t k = x.cols();
  const auto pack_bf16 = [&](int64_t row, int64_t x_row, float* buffer) {
    const float* in = x.dtype == DType::kBF16 ? nullptr : Read(kernels_, x, x_row * k, k, buffer);
    for (int64_t i = 0; i < layout.num_splits(); ++i) {
      const auto bytes = static_cast<size_t>(layout.split_size(i)) * sizeof(uint16_t);
      uint8_t* const to = packed.bytes + row * packed.stride + layout.x_offset[i];
      if (bytes == 0) {
        // x may have no memory.
      } else if (in == nullptr) {
        std::memcpy(to, At(x, x_row * k + layout.split_begin[i]), bytes);
      } else {
        kernels_.narrow[kElementBF16](to, in + layout.split_begin[i], bytes / sizeof(uint16_t));
      }
      std::memset(to + bytes, 0,
                  static_cast<size_t>(layout.x_offset[i + 1] - layout.x_offset[i]) - bytes);
    }
  };
  const auto pack_f32 = [&](int64_t row, const float* in) {
    for (int64_t i = 0; i < layout.num_splits(); ++i) {
      const auto bytes = static_cast<size_t>(layout.split_size(i)) * sizeof(float);
      if (bytes == 0) continue;  // x may have no memory
      std::memcpy(packed.bytes + row * packed.stride + layout.x_offset[i],
                  in + layout.split_begin[i], bytes);
    }
  };
  context_.ForRanges(rows, 4 * k, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, k);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t x_row = x_rows == nullptr ? first + r : x_rows[first + r];
      if (layout.format == WeightFormat::kBF16Panels) {
        pack_bf16(r, x_row, buffer);
      } else {
        pack_f32(r, Read(kernels_, x, x_row * k, k, buffer));
      }
    }
  });
}

void PanelMatMul::QuantiseX(const PanelLayout& layout, Tensor x, const int32_t* x_rows,
                            int64_t first, int64_t rows, const PackedRows& packed) {
  // A unit of work is a group of some rows: their numbers lie together, so threads that divide the
  // groups hardly write to the same cache lines.
  constexpr int64_t kRows = 16;
  const int64_t group_size = layout.groups.format.size;
  const int64_t num_groups = layout.group_offset[layout.num_splits()];
  const int64_t num_units = (rows + kRows - 1) / kRows * num_groups;
  const int64_t cost = 4 * group_size * std::min(rows, kRows);
  context_.ForRanges(num_units, cost, [&](int64_t begin, int64_t end, int thread) {
    float* const buffer = context_.Scratch(thread, static_cast<size_t>(group_size));
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t group = unit % num_groups;
      int64_t split = 0;
      while (group >= layout.group_offset[split + 1]) ++split;
      const int64_t at = (group - layout.group_offset[split]) * group_size;
      const int64_t size = std::min(group_size, layout.split_size(split) - at);
      const bool is_last = at + size == layout.split_size(split);
      const int64_t padded =
          is_last ? layout.x_offset[split + 1] - layout.x_offset[split] - at : size;
      const int64_t row = unit / num_groups * kRows;
      for (int64_t r = row; r < std::min(rows, row + kRows); ++r) {
        const int64_t x_row = x_rows == nullptr ? first + r : x_rows[first + r];
        const float* const in =
            Read(kernels_, x, x_row * x.cols() + layout.split_begin[split] + at, size, buffer);
        uint8_t* const to = packed.bytes + r * packed.stride + layout.x_offset[split] + at;
        const int64_t number = group * packed.num_rows + r;
        kernels_.quantise(reinterpret_cast<int8_t*>(to), packed.scales + number,
                          packed.sums + number, in, static_cast<size_t>(size));
        packed.scaled_sums[number] =
            static_cast<float>(packed.sums[number]) * packed.scales[number];
        std::memset(to + size, 0, static_cast<size_t>(padded - size));
      }
    }
  });
}

void PanelMatMul::Run(std::span<const PanelProduct> products, Tensor x, const int32_t* x_rows,
                      int64_t num_rows, std::span<const int64_t> split_begin) {
  const PanelLayout layout(products[0].w.format, split_begin, products[0].w.groups);
  const int num_threads = context_.num_threads();
  const bool in_place = ReadsInPlace(layout, x, x_rows);
  PackedRows packed = {};
  if (!in_place) packed = RoomForRows(layout, std::min(num_rows, kMaxSlab));
  for (int64_t first = 0; first < num_rows; first += kMaxSlab) {
    const int64_t rows = std::min(kMaxSlab, num_rows - first);
    if (in_place) {
      packed.bytes = reinterpret_cast<uint8_t*>(At(x, first * x.cols()));
      packed.stride = x.cols() * static_cast<int64_t>(sizeof(float));
    } else {
      PackX(layout, x, x_rows, first, rows, packed);
    }
    const int64_t num_items = plan_.Make(layout, products, first, rows, num_threads);
    context_.pool().Run(static_cast<int>(num_items), [&](int index, int thread) {
      // Each thread first claims every num_threads-th item, so this is most likely its next.
      const int64_t next = int64_t{index} + num_threads;
      Multiply(layout, packed, plan_.At(index), next < num_items ? plan_.At(next).weights : nullptr,
               thread);
    });
  }
}

void PanelMatMul::Multiply(const PanelLayout& layout, const PackedRows& packed,
                           const PanelItem& item, const uint8_t* next_weights, int thread) {
  const PanelDots& all = kernels_.panel_dots;
  const auto dots = layout.format == WeightFormat::kF32Panels    ? all.f32
                    : layout.format == WeightFormat::kBF16Panels ? all.bf16
                    : layout.format == WeightFormat::kInt8Panels ? all.int8
                                                                 : all.int4;
  CONTINUO_CHECK(dots != nullptr);
  const Tensor& out = item.product->out;
  const int64_t num_splits = layout.num_splits();
  const int64_t stride = item.num_panels * kPanelColumns;
  const int64_t column = item.panel * kPanelColumns;
  const int64_t num_columns = std::min(stride, out.cols() - column);
  PrefetchRows(out, item.out_row, item.num_rows, column, num_columns);
  // The sums of `rows` rows of the item from `row` on, added over the splits in a balanced tree:
  // those of half-done subtrees lie behind the result, `tree_size` floats from each other.
  const auto multiply = [&](int64_t row, int64_t rows, const uint8_t* weights, const uint8_t* next,
                            float* sums, int64_t out_stride, int64_t tree_size) {
    int64_t depth = 0;
    for (int64_t i = 0; i < num_splits; ++i) {
      PanelBlock block = {};
      block.out = sums + depth++ * tree_size;
      block.out_stride = static_cast<size_t>(out_stride);
      block.x = packed.bytes + (item.row + row) * packed.stride + layout.x_offset[i];
      block.x_stride = static_cast<size_t>(packed.stride);
      if (layout.group_offset[num_splits] > 0) {
        const int64_t number = layout.group_offset[i] * packed.num_rows + item.row + row;
        block.x_scales = packed.scales + number;
        block.x_sums = packed.sums + number;
        block.x_scaled_sums = packed.scaled_sums + number;
        block.group_stride = static_cast<size_t>(packed.num_rows);
      }
      block.num_rows = static_cast<size_t>(rows);
      block.w = weights + layout.weight_offset[i];
      block.next = i + 1 < num_splits ? weights + layout.weight_offset[i + 1] : next;
      block.panel_stride = static_cast<size_t>(layout.panel_bytes);
      block.num_panels = static_cast<size_t>(item.num_panels);
      block.k = static_cast<size_t>(layout.split_size(i));
      block.groups = &layout.groups;
      dots(block);
      for (int64_t done = i + 1; done % 2 == 0; done /= 2) {
        float* const left = sums + (--depth - 1) * tree_size;
        kernels_.add(left, left, left + tree_size, static_cast<size_t>(tree_size));
      }
    }
  };
  ResultBlock to = {.out = out,
                    .bias = item.product->bias,
                    .row = item.out_row,
                    .num_rows = item.num_rows,
                    .column = column,
                    .num_columns = num_columns};
  if (item.up != nullptr) {
    CONTINUO_CHECK(num_splits == 1);
    const int64_t size = item.num_rows * stride;
    float* const buffer = context_.Scratch(thread, static_cast<size_t>(3 * size));
    multiply(0, item.num_rows, item.weights, item.up, buffer, stride, size);
    multiply(0, item.num_rows, item.up, next_weights, buffer + size, stride, size);
    FinishGated(item, num_columns, stride, buffer, buffer + size);
    return;
  }
  if (num_splits == 1 && out.dtype == DType::kF32 && num_columns == stride) {
    auto* const sums = reinterpret_cast<float*>(At(out, item.out_row * out.cols() + column));
    multiply(0, item.num_rows, item.weights, next_weights, sums, out.cols(), 0);
    AddBias(kernels_, to);
  } else {
    // What the splits of some rows give stays in the cache until it is summed.
    const int64_t most = num_splits == 1 ? item.num_rows : std::min(item.num_rows, kSplitRows);
    const auto depth = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(num_splits)));
    float* const buffer = context_.Scratch(thread, static_cast<size_t>(depth * most * stride));
    for (int64_t row = 0; row < item.num_rows; row += most) {
      to.row = item.out_row + row;
      to.num_rows = std::min(most, item.num_rows - row);
      const bool is_last = row + to.num_rows == item.num_rows;
      multiply(row, to.num_rows, item.weights, is_last ? next_weights : item.weights, buffer,
               stride, to.num_rows * stride);
      FinishSplits(kernels_, to, buffer, /*num_splits=*/1, stride);
    }
    to.row = item.out_row;
    to.num_rows = item.num_rows;
  }
  if (item.product->activation != nullptr) Activate(to, item.product->activation);
}

void PanelMatMul::FinishGated(const PanelItem& item, int64_t num_columns, int64_t stride,
                              float* gates, float* ups) {
  const PanelProduct& product = *item.product;
  const Tensor& out = product.out;
  const int64_t column = item.panel * kPanelColumns, size = item.num_rows * stride;
  const auto add_bias = [&](float* sums, const Tensor& bias) {
    if (bias.size() == 0) return;
    for (int64_t i = 0; i < item.num_rows; ++i) {
      float* const row = sums + i * stride;
      kernels_.add(row, row, static_cast<const float*>(bias.data) + column, num_columns);
    }
  };
  add_bias(gates, product.bias);
  add_bias(ups, product.up_bias);
  // The results are as if the products had been written to a tensor of out's type and read again.
  // All rows are done at once, with their padding, which is zeros.
  const auto write = [&](const char* rows) {
    const auto element = static_cast<int64_t>(SizeOf(out.dtype));
    for (int64_t i = 0; i < item.num_rows; ++i) {
      std::memcpy(At(out, (item.out_row + i) * out.cols() + column), rows + i * stride * element,
                  static_cast<size_t>(num_columns * element));
    }
  };
  if (out.dtype == DType::kF32) {
    product.gate(gates, gates, ups, size);
    return write(reinterpret_cast<const char*>(gates));
  }
  auto* const rounded = reinterpret_cast<uint16_t*>(ups + size);
  for (float* const sums : {gates, ups}) {
    kernels_.narrow[kElementBF16](rounded, sums, size);
    kernels_.widen[kElementBF16](sums, rounded, size);
  }
  product.gate(gates, gates, ups, size);
  kernels_.narrow[kElementBF16](rounded, gates, size);
  write(reinterpret_cast<const char*>(rounded));
}

}  // namespace continuo::kernels::cpu
