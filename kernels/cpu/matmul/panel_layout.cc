// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/panel_layout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/host/group_rounding.h"
#include "kernels/math/bfloat16.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kScaleBytes = kPanelColumns * int64_t{sizeof(float)};

// The number of elements of `in` in one run of a column.
int64_t RunOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBF16Panels:
      return 2;
    case WeightFormat::kInt8Panels:
      return 4;
    case WeightFormat::kInt4Panels:
      return 8;
    case WeightFormat::kDense:
    case WeightFormat::kFp8Rows:
      break;
  }
  CONTINUO_CHECK(false);
  return 0;
}

// Calls body(first element in the row, elements, byte in the panel) for each group.
template <typename Body>
void ForGroups(const PanelLayout& layout, const Body& body) {
  const int64_t run = RunOf(layout.format), group_size = host::GroupSize(layout.format);
  for (int64_t i = 0; i < layout.num_splits(); ++i) {
    const int64_t size = layout.split_size(i);
    if (size == 0) continue;
    const int64_t step = group_size == 0 ? size : group_size;
    int64_t at = layout.weight_offset[i];
    for (int64_t k = 0; k < size; k += step) {
      const int64_t n = std::min(step, size - k);
      body(layout.split_begin[i] + k, n, at);
      at += (group_size == 0 ? 0 : kScaleBytes) + RoundUp(n, run) / run * 4 * kPanelColumns;
    }
  }
}

constexpr int64_t kMaxGroup = std::max(host::kInt8Group, host::kInt4Group);

void PackBF16(const float* x, int64_t size, uint8_t* runs) {
  for (int64_t k = 0; k < size; ++k) {
    const uint16_t bits = ToBF16(x[k]);
    std::memcpy(runs + k / 2 * 4 * kPanelColumns + k % 2 * 2, &bits, 2);
  }
}

// A null x is a column beyond the last one, and becomes zeros.
void PackInt8(const float* x, int64_t size, uint8_t* group, int64_t column) {
  int32_t rounded[kMaxGroup] = {};
  const float scale =
      x == nullptr ? 0 : host::RoundGroup(WeightFormat::kInt8Panels, x, size, rounded);
  std::memcpy(group + 4 * column, &scale, 4);
  uint8_t* to = group + kScaleBytes + 4 * column;
  for (int64_t k = 0; k < size; k += 4, to += 4 * kPanelColumns) {
    for (int64_t j = 0; j < 4; ++j) to[j] = static_cast<uint8_t>(rounded[k + j] + 128);
  }
}

void PackInt4(const float* x, int64_t size, uint8_t* group, int64_t column) {
  int32_t rounded[kMaxGroup] = {};
  const float scale =
      x == nullptr ? 0 : host::RoundGroup(WeightFormat::kInt4Panels, x, size, rounded);
  std::memcpy(group + 4 * column, &scale, 4);
  uint8_t* to = group + kScaleBytes + 4 * column;
  for (int64_t k = 0; k < size; k += 8, to += 4 * kPanelColumns) {
    for (int64_t j = 0; j < 4; ++j) {
      to[j] = static_cast<uint8_t>((rounded[k + j] + 8) | (rounded[k + 4 + j] + 8) << 4);
    }
  }
}

}  // namespace

PanelLayout::PanelLayout(WeightFormat f, std::span<const int64_t> splits)
    : format(f), split_begin(splits) {
  CONTINUO_CHECK(num_splits() >= 1 && num_splits() <= kNumSplits);
  const int64_t run = RunOf(format), group_size = host::GroupSize(format);
  const int64_t x_element = format == WeightFormat::kBF16Panels ? 2 : 1;
  for (int64_t i = 0; i < num_splits(); ++i) {
    const int64_t size = split_size(i), padded = RoundUp(size, run);
    const int64_t groups = group_size == 0 ? 0 : (size + group_size - 1) / group_size;
    weight_offset[i + 1] =
        weight_offset[i] + groups * kScaleBytes + padded / run * 4 * kPanelColumns;
    x_offset[i + 1] = x_offset[i] + padded * x_element;
    group_offset[i + 1] = group_offset[i] + groups;
  }
  panel_bytes = weight_offset[num_splits()];
}

void PackPanel(const PanelLayout& layout, const float* rows, int64_t stride, int64_t n,
               uint8_t* panel) {
  CONTINUO_CHECK(n >= 1 && n <= kPanelColumns);
  std::memset(panel, 0, static_cast<size_t>(layout.panel_bytes));
  ForGroups(layout, [&](int64_t first, int64_t size, int64_t at) {
    for (int64_t column = 0; column < kPanelColumns; ++column) {
      const float* x = column < n ? rows + column * stride + first : nullptr;
      if (layout.format == WeightFormat::kInt8Panels) {
        PackInt8(x, size, panel + at, column);
      } else if (layout.format == WeightFormat::kInt4Panels) {
        PackInt4(x, size, panel + at, column);
      } else if (x != nullptr) {
        PackBF16(x, size, panel + at + 4 * column);
      }
    }
  });
}

void UnpackRow(const PanelLayout& layout, const uint8_t* panel, int64_t row, float* out) {
  ForGroups(layout, [&](int64_t first, int64_t size, int64_t at) {
    for (int64_t k = 0; k < size; ++k) {
      if (layout.format == WeightFormat::kBF16Panels) {
        uint16_t bits;
        std::memcpy(&bits, panel + at + k / 2 * 4 * kPanelColumns + row * 4 + k % 2 * 2, 2);
        out[first + k] = FromBF16(bits);
        continue;
      }
      float scale;
      std::memcpy(&scale, panel + at + row * 4, 4);
      const int64_t run = RunOf(layout.format);
      const int byte = panel[at + kScaleBytes + k / run * 4 * kPanelColumns + row * 4 + k % 4];
      const int value = layout.format == WeightFormat::kInt8Panels
                            ? byte - 128
                            : ((byte >> (k % run < 4 ? 0 : 4)) & 15) - 8;
      out[first + k] = static_cast<float>(value) * scale;
    }
  });
}

}  // namespace continuo::kernels::cpu
