// SPDX-License-Identifier: Apache-2.0
// Packed matrices: their making, and MatMul with them. Rows of x become what the format multiplies
// (bf16, or int8 with a scale for each group) once; a part of the work is a block of outputs'
// columns, for a block of rows.
//
// Weights are read from memory once for up to kRowBlock rows and bound the time below about a dozen
// of them; from there on the products do.

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/rows.h"
#include "services/base/check.h"

namespace continuo::cpu {
namespace {

constexpr int64_t kMaxSlab = 960;         // rows of x packed at a time
constexpr int64_t kRowBlock = 240;        // rows of one part
constexpr int64_t kWeightBytes = 131072;  // of weights of one part
constexpr int64_t kFewRows = 6;           // up to which tiles are kMaxPanels wide, else half of it
constexpr int64_t kMaxPanels = 4;
constexpr int64_t kResults = 1 << 17;  // floats that a part holds before they are rounded

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Packed rows of x: bytes, then scales and sums.
struct PackedRows {
  uint8_t* bytes;
  int64_t stride;
  float* scales;
  int32_t* sums;
  int64_t num_groups;  // of a row
};

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

void CpuBackend::MultiplyPanels(std::span<const Product> products, Tensor x,
                                std::span<const int64_t> piece_begin, const int32_t* x_rows) {
  const int64_t rows = products[0].out.rows(), k = x.cols();
  const WeightFormat format = products[0].w.format;
  const PanelLayout layout(format, piece_begin);
  const int64_t num_pieces = layout.num_pieces();
  const bool is_bf16 = format == WeightFormat::kBF16Panels;
  const auto dots = is_bf16                               ? kernels_.panel_dots.bf16
                    : format == WeightFormat::kInt8Panels ? kernels_.panel_dots.int8
                                                          : kernels_.panel_dots.int4;
  CONTINUO_CHECK(dots != nullptr);

  PackedRows packed;
  // An odd number of cache lines, so that neighbouring rows do not meet in one set of the cache.
  packed.stride = RoundUp(layout.x_offset[num_pieces], 128) + 64;
  packed.num_groups = layout.group_offset[num_pieces];
  const int64_t most = std::min(rows, kMaxSlab);
  float* const memory =
      packed_.Get(static_cast<size_t>(most * (packed.stride / 4 + 2 * packed.num_groups)));
  packed.bytes = reinterpret_cast<uint8_t*>(memory);
  packed.scales = memory + most * packed.stride / 4;
  packed.sums = reinterpret_cast<int32_t*>(packed.scales + most * packed.num_groups);

  const auto pack_bf16 = [&](int64_t row, int64_t x_row, float* buffer) {
    const float* in = x.dtype == DType::kBF16 ? nullptr : Read(kernels_, x, x_row * k, k, buffer);
    for (int64_t i = 0; i < num_pieces; ++i) {
      const auto bytes = static_cast<size_t>(layout.piece_size(i)) * sizeof(uint16_t);
      uint8_t* const to = packed.bytes + row * packed.stride + layout.x_offset[i];
      if (in == nullptr) {
        std::memcpy(to, At(x, x_row * k + piece_begin[i]), bytes);
      } else {
        kernels_.narrow[kElementBF16](to, in + piece_begin[i], bytes / sizeof(uint16_t));
      }
      std::memset(to + bytes, 0,
                  static_cast<size_t>(layout.x_offset[i + 1] - layout.x_offset[i]) - bytes);
    }
  };
  const auto pack_quantised = [&](int64_t row, const float* in) {
    const int64_t group_size = GroupSize(format);
    for (int64_t i = 0; i < num_pieces; ++i) {
      const int64_t size = layout.piece_size(i);
      uint8_t* to = packed.bytes + row * packed.stride + layout.x_offset[i];
      std::memset(to + size, 0,
                  static_cast<size_t>(layout.x_offset[i + 1] - layout.x_offset[i] - size));
      int64_t group = row * packed.num_groups + layout.group_offset[i];
      for (int64_t at = 0; at < size; at += group_size, ++group) {
        kernels_.quantise(reinterpret_cast<int8_t*>(to) + at, packed.scales + group,
                          packed.sums + group, in + piece_begin[i] + at,
                          static_cast<size_t>(std::min(group_size, size - at)));
      }
    }
  };

  const int64_t row_block = std::min(rows, kRowBlock);
  const int64_t by_weights = kWeightBytes / std::max<int64_t>(1, layout.panel_bytes);
  const int64_t by_results = kResults / (kPanelColumns * num_pieces * row_block);
  // Long panels are many parts' worth of bytes already: the last parts should be short.
  const bool wide = rows <= kFewRows && by_weights >= kMaxPanels;
  const int64_t panel_block = RoundUp(std::clamp<int64_t>(std::min(by_weights, by_results), 1, 16),
                                      wide ? kMaxPanels : kMaxPanels / 2);
  const auto num_blocks_of = [&](const Product& product) {
    return (NumPanels(product.out.cols()) + panel_block - 1) / panel_block;
  };
  int64_t num_blocks = 0;
  for (const Product& product : products) num_blocks += num_blocks_of(product);

  for (int64_t first = 0; first < rows; first += kMaxSlab) {
    const int64_t slab = std::min(kMaxSlab, rows - first);
    ForParts(slab, 4 * k, [&](int64_t begin, int64_t end, int thread) {
      float* buffer = scratch_[thread].Get(k);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t x_row = x_rows == nullptr ? first + r : x_rows[first + r];
        if (is_bf16) {
          pack_bf16(r, x_row, buffer);
        } else {
          pack_quantised(r, Read(kernels_, x, x_row * k, k, buffer));
        }
      }
    });

    const int64_t num_row_blocks = (slab + kRowBlock - 1) / kRowBlock;
    const int64_t num_parts = num_blocks * num_row_blocks;
    // A part's product and the first of its panels.
    const auto locate = [&](int64_t part) {
      const Product* product = products.data();
      int64_t block = part / num_row_blocks;
      for (; block >= num_blocks_of(*product); ++product) block -= num_blocks_of(*product);
      return std::pair(product, block * panel_block);
    };
    const auto weights_of = [&](const Product& product, int64_t panel) {
      return static_cast<const uint8_t*>(product.w.data.data) + panel * layout.panel_bytes;
    };
    pool_.Run(static_cast<int>(num_parts), [&](int part, int thread) {
      const auto [product, panel] = locate(part);
      // Threads claim parts in turn, so this is most likely this one's next.
      const uint8_t* next_part = nullptr;
      if (part + pool_.num_threads() < num_parts) {
        const auto [next_product, next_panel] = locate(part + pool_.num_threads());
        next_part = weights_of(*next_product, next_panel);
      }
      const int64_t columns = product->out.cols();
      const int64_t panels = std::min(panel_block, NumPanels(columns) - panel);
      const int64_t stride = panels * kPanelColumns;
      const int64_t row = part % num_row_blocks * kRowBlock;
      const int64_t num_rows = std::min(kRowBlock, slab - row);
      const int64_t piece_size = num_rows * stride;
      float* const buffer = scratch_[thread].Get(static_cast<size_t>(num_pieces * piece_size));
      for (int64_t i = 0; i < num_pieces; ++i) {
        PanelBlock block;
        block.out = buffer + i * piece_size;
        block.out_stride = static_cast<size_t>(stride);
        block.x = packed.bytes + row * packed.stride + layout.x_offset[i];
        block.x_stride = static_cast<size_t>(packed.stride);
        const int64_t group = row * packed.num_groups + layout.group_offset[i];
        block.x_scales = packed.scales + group;
        block.x_sums = packed.sums + group;
        block.group_stride = static_cast<size_t>(packed.num_groups);
        block.num_rows = static_cast<size_t>(num_rows);
        block.w = weights_of(*product, panel) + layout.weight_offset[i];
        block.next = i + 1 < num_pieces ? weights_of(*product, panel) + layout.weight_offset[i + 1]
                                        : next_part;
        block.panel_stride = static_cast<size_t>(layout.panel_bytes);
        block.num_panels = static_cast<size_t>(panels);
        block.k = static_cast<size_t>(layout.piece_size(i));
        dots(block);
      }
      const int64_t column = panel * kPanelColumns;
      FinishPieces(product->out, first + row, num_rows, column, std::min(stride, columns - column),
                   stride, buffer, num_pieces, product->bias);
    });
  }
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

}  // namespace continuo::cpu
