// SPDX-License-Identifier: Apache-2.0
// Packed matrices: their making, and MatMul with them. Rows of x become what the format multiplies
// (bf16, or int8 with a scale for each group) once; PanelParts divides the rest.

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/rows.h"
#include "kernels/host/group_rounding.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kMaxSlab = 960;  // rows of x packed at a time

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Asks for what a part writes at its end: the rows' lines lie apart, so none comes by itself.
void AskForRows(const Tensor& out, int64_t row, int64_t num_rows, int64_t column,
                int64_t num_columns) {
  const auto bytes = static_cast<int64_t>(SizeOf(out.dtype)) * num_columns;
  for (int64_t i = 0; i < num_rows; ++i) {
    const char* const begin = At(out, (row + i) * out.cols() + column);
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at, 1, 2);
  }
}

}  // namespace

WeightFormat CpuBackend::FormatOf(WeightType type) const {
  const PanelDots& dots = kernels_.panel_dots;
  switch (type) {
    case WeightType::kF32:
      return WeightFormat::kDense;
    case WeightType::kBF16:
      return dots.bf16 != nullptr ? WeightFormat::kBF16Panels : WeightFormat::kDense;
    case WeightType::kInt8:
      return WeightFormat::kInt8Panels;
    case WeightType::kInt4:
      return WeightFormat::kInt4Panels;
    case WeightType::kF16:
    case WeightType::kFp8:
      break;  // what Computes() denies
  }
  CONTINUO_CHECK(false);
  return WeightFormat::kDense;
}

size_t CpuBackend::WeightBytes(const Weight& w, std::span<const int64_t> piece_begin) const {
  if (w.format == WeightFormat::kDense) return w.data.bytes();
  const PanelLayout layout(w.format, piece_begin);
  return static_cast<size_t>(NumPanels(w.data.rows()) * layout.panel_bytes);
}

void CpuBackend::PackRows(const Weight& w, std::span<const int64_t> piece_begin, int64_t first_row,
                          const float* rows, int64_t n) {
  static_assert(kPackedRows % kPanelColumns == 0);
  const PanelLayout layout(w.format, piece_begin);
  const int64_t k = w.data.cols();
  CONTINUO_CHECK(first_row % kPanelColumns == 0 && first_row + n <= w.data.rows());
  CONTINUO_CHECK(n % kPanelColumns == 0 || first_row + n == w.data.rows());
  CONTINUO_CHECK(piece_begin.front() == 0 && piece_begin.back() == k);
  uint8_t* const first =
      static_cast<uint8_t*>(w.data.data) + first_row / kPanelColumns * layout.panel_bytes;
  pool_.Run(static_cast<int>(NumPanels(n)), [&](int panel, int) {
    const int64_t row = int64_t{panel} * kPanelColumns;
    PackPanel(layout, rows + row * k, k, std::min<int64_t>(kPanelColumns, n - row),
              first + panel * layout.panel_bytes);
  });
}

PackedRows CpuBackend::RoomForRows(const PanelLayout& layout, int64_t rows) {
  const int64_t num_pieces = layout.num_pieces();
  PackedRows packed;
  // An odd number of cache lines, so that neighbouring rows do not meet in one set of the cache.
  packed.stride = RoundUp(layout.x_offset[num_pieces], 128) + 64;
  packed.num_groups = layout.group_offset[num_pieces];
  float* const memory =
      packed_.Get(static_cast<size_t>(rows * (packed.stride / 4 + 2 * packed.num_groups)));
  packed.bytes = reinterpret_cast<uint8_t*>(memory);
  packed.scales = memory + rows * packed.stride / 4;
  packed.sums = reinterpret_cast<int32_t*>(packed.scales + rows * packed.num_groups);
  return packed;
}

void CpuBackend::PackX(const PanelLayout& layout, Tensor x, const int32_t* x_rows, int64_t first,
                       int64_t rows, const PackedRows& packed) {
  const int64_t k = x.cols();
  const auto pack_bf16 = [&](int64_t row, int64_t x_row, float* buffer) {
    const float* in = x.dtype == DType::kBF16 ? nullptr : Read(kernels_, x, x_row * k, k, buffer);
    for (int64_t i = 0; i < layout.num_pieces(); ++i) {
      const auto bytes = static_cast<size_t>(layout.piece_size(i)) * sizeof(uint16_t);
      uint8_t* const to = packed.bytes + row * packed.stride + layout.x_offset[i];
      if (bytes == 0) {
        // x may have no memory.
      } else if (in == nullptr) {
        std::memcpy(to, At(x, x_row * k + layout.piece_begin[i]), bytes);
      } else {
        kernels_.narrow[kElementBF16](to, in + layout.piece_begin[i], bytes / sizeof(uint16_t));
      }
      std::memset(to + bytes, 0,
                  static_cast<size_t>(layout.x_offset[i + 1] - layout.x_offset[i]) - bytes);
    }
  };
  const auto pack_quantised = [&](int64_t row, const float* in) {
    const int64_t group_size = host::GroupSize(layout.format);
    for (int64_t i = 0; i < layout.num_pieces(); ++i) {
      const int64_t size = layout.piece_size(i);
      uint8_t* to = packed.bytes + row * packed.stride + layout.x_offset[i];
      std::memset(to + size, 0,
                  static_cast<size_t>(layout.x_offset[i + 1] - layout.x_offset[i] - size));
      int64_t group = row * packed.num_groups + layout.group_offset[i];
      for (int64_t at = 0; at < size; at += group_size, ++group) {
        kernels_.quantise(reinterpret_cast<int8_t*>(to) + at, packed.scales + group,
                          packed.sums + group, in + layout.piece_begin[i] + at,
                          static_cast<size_t>(std::min(group_size, size - at)));
      }
    }
  };
  ForParts(rows, 4 * k, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(k);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t x_row = x_rows == nullptr ? first + r : x_rows[first + r];
      if (layout.format == WeightFormat::kBF16Panels) {
        pack_bf16(r, x_row, buffer);
      } else {
        pack_quantised(r, Read(kernels_, x, x_row * k, k, buffer));
      }
    }
  });
}

void CpuBackend::MultiplyPanels(std::span<const PanelProduct> products, Tensor x,
                                const int32_t* x_rows, int64_t num_rows,
                                std::span<const int64_t> piece_begin) {
  const PanelLayout layout(products[0].w.format, piece_begin);
  const int64_t most = std::min(num_rows, kMaxSlab);
  const PackedRows packed = RoomForRows(layout, most);
  for (int64_t first = 0; first < num_rows; first += kMaxSlab) {
    const int64_t rows = std::min(kMaxSlab, num_rows - first);
    PackX(layout, x, x_rows, first, rows, packed);
    const int64_t num_parts = panel_parts_.Make(layout, products, first, rows, pool_.num_threads());
    pool_.Run(static_cast<int>(num_parts), [&](int index, int thread) {
      // Threads claim parts in turn, so this is most likely this one's next.
      const int64_t next = int64_t{index} + pool_.num_threads();
      MultiplyPart(layout, packed, panel_parts_.At(index),
                   next < num_parts ? panel_parts_.At(next).weights : nullptr, thread);
    });
  }
}

void CpuBackend::MultiplyPart(const PanelLayout& layout, const PackedRows& packed,
                              const PanelPart& part, const uint8_t* next_weights, int thread) {
  const PanelDots& all = kernels_.panel_dots;
  const auto dots = layout.format == WeightFormat::kBF16Panels   ? all.bf16
                    : layout.format == WeightFormat::kInt8Panels ? all.int8
                                                                 : all.int4;
  CONTINUO_CHECK(dots != nullptr);
  const Tensor& out = part.product->out;
  const int64_t num_pieces = layout.num_pieces();
  const int64_t stride = part.num_panels * kPanelColumns;
  const int64_t piece_size = part.num_rows * stride;
  float* const buffer =
      scratch_[thread].Get(static_cast<size_t>((part.up == nullptr ? num_pieces : 3) * piece_size));
  const int64_t column = part.panel * kPanelColumns;
  const int64_t num_columns = std::min(stride, out.cols() - column);
  AskForRows(out, part.out_row, part.num_rows, column, num_columns);
  const auto multiply = [&](const uint8_t* weights, const uint8_t* next, float* sums) {
    for (int64_t i = 0; i < num_pieces; ++i) {
      PanelBlock block;
      block.out = sums + i * piece_size;
      block.out_stride = static_cast<size_t>(stride);
      block.x = packed.bytes + part.row * packed.stride + layout.x_offset[i];
      block.x_stride = static_cast<size_t>(packed.stride);
      const int64_t group = part.row * packed.num_groups + layout.group_offset[i];
      block.x_scales = packed.scales + group;
      block.x_sums = packed.sums + group;
      block.group_stride = static_cast<size_t>(packed.num_groups);
      block.num_rows = static_cast<size_t>(part.num_rows);
      block.w = weights + layout.weight_offset[i];
      block.next = i + 1 < num_pieces ? weights + layout.weight_offset[i + 1] : next;
      block.panel_stride = static_cast<size_t>(layout.panel_bytes);
      block.num_panels = static_cast<size_t>(part.num_panels);
      block.k = static_cast<size_t>(layout.piece_size(i));
      dots(block);
    }
  };
  if (part.up == nullptr) {
    multiply(part.weights, next_weights, buffer);
    FinishPieces(out, part.out_row, part.num_rows, column, num_columns, stride, buffer, num_pieces,
                 part.product->bias);
  } else {
    CONTINUO_CHECK(num_pieces == 1);
    multiply(part.weights, part.up, buffer);
    multiply(part.up, next_weights, buffer + piece_size);
    FinishGated(part, num_columns, stride, buffer, buffer + piece_size);
  }
}

void CpuBackend::FinishGated(const PanelPart& part, int64_t num_columns, int64_t stride,
                             float* gates, float* ups) {
  const PanelProduct& product = *part.product;
  const Tensor& out = product.out;
  const int64_t column = part.panel * kPanelColumns, size = part.num_rows * stride;
  const auto add_bias = [&](float* sums, const Tensor& bias) {
    if (bias.size() == 0) return;
    for (int64_t i = 0; i < part.num_rows; ++i) {
      float* const row = sums + i * stride;
      kernels_.add(row, row, static_cast<const float*>(bias.data) + column, num_columns);
    }
  };
  add_bias(gates, product.bias);
  add_bias(ups, product.up_bias);
  // As if they had been written to a tensor of out's type and read again. All rows at once, what
  // pads them too: it is zeros.
  const auto write = [&](const char* rows) {
    const auto element = static_cast<int64_t>(SizeOf(out.dtype));
    for (int64_t i = 0; i < part.num_rows; ++i) {
      std::memcpy(At(out, (part.out_row + i) * out.cols() + column), rows + i * stride * element,
                  static_cast<size_t>(num_columns * element));
    }
  };
  if (out.dtype == DType::kF32) {
    product.gate(gates, gates, ups, size);
    return write(reinterpret_cast<const char*>(gates));
  }
  // Behind them there is room.
  auto* const rounded = reinterpret_cast<uint16_t*>(ups + size);
  for (float* const sums : {gates, ups}) {
    kernels_.narrow[kElementBF16](rounded, sums, size);
    kernels_.widen[kElementBF16](sums, rounded, size);
  }
  product.gate(gates, gates, ups, size);
  kernels_.narrow[kElementBF16](rounded, gates, size);
  write(reinterpret_cast<const char*>(rounded));
}

void CpuBackend::FinishPieces(Tensor out, int64_t row, int64_t num_rows, int64_t column,
                              int64_t num_columns, int64_t stride, float* pieces,
                              int64_t num_pieces, Tensor bias) {
  const int64_t piece_size = num_rows * stride;
  for (int64_t step = 1; step < num_pieces; step *= 2) {
    for (int64_t i = 0; i < num_pieces; i += 2 * step) {
      float* sum = pieces + i * piece_size;
      kernels_.add(sum, sum, pieces + (i + step) * piece_size, piece_size);
    }
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    float* values = pieces + i * stride;
    if (bias.size() > 0) {
      kernels_.add(values, values, static_cast<const float*>(bias.data) + column, num_columns);
    }
    kernels_.narrow[ElementOf(out.dtype)](At(out, (row + i) * out.cols() + column), values,
                                          num_columns);
  }
}

}  // namespace continuo::kernels::cpu
