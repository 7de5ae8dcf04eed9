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

// The number of elements of `in` in one run of a column.
int64_t RunOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32Panels:
      return 1;
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

// True for formats without groups.
bool IsPlain(WeightFormat format) {
  return format == WeightFormat::kF32Panels || format == WeightFormat::kBF16Panels;
}

// The bytes of an element of a packed row of x.
int64_t XBytes(WeightFormat format) { return IsPlain(format) ? 4 / RunOf(format) : 1; }

// The groups of weights that are rounded here (docs/performance.md, "What a format loses").
constexpr GroupFormat kInt8Groups = {.size = 64, .unit = 64};
constexpr GroupFormat kInt4Groups = {
    .size = 32, .unit = 32, .scales = GroupScales::kF16, .has_minimum = true};

// The groups of a matrix, which says nothing where they are the format's own.
GroupFormat GroupsOf(WeightFormat format, const GroupFormat& groups) {
  if (groups.size != 0) return groups;
  return format == WeightFormat::kInt8Panels ? kInt8Groups : kInt4Groups;
}

int64_t HeaderBytes(const GroupFormat& groups) {
  const int64_t of_each = groups.has_minimum ? 2 : 1, count = groups.unit / groups.size;
  switch (groups.scales) {
    case GroupScales::kF32:
      return of_each * count * 4 * kPanelColumns;
    case GroupScales::kF16:
      return RoundUp(of_each * count * 2 * kPanelColumns, 64);
    case GroupScales::kShared:
      return RoundUp(of_each * (2 + count) * kPanelColumns, 64);
  }
  return 0;
}

// A group of one split in a panel.
struct GroupPlace {
  int64_t first, size;  // elements of the row
  int64_t unit;         // byte in the panel where its unit begins
  int64_t in_unit;      // groups of the unit before it
  int64_t runs;         // byte in the panel where its elements begin
};

// Calls body(place) for each group; a split of f32 or bf16 is one.
template <typename Body>
void ForGroups(const PanelLayout& layout, const Body& body) {
  const int64_t run = RunOf(layout.format), size = layout.groups.format.size;
  const int64_t unit_size = layout.groups.format.unit;
  for (int64_t i = 0; i < layout.num_splits(); ++i) {
    const int64_t begin = layout.split_begin[i], end = layout.split_begin[i + 1];
    int64_t unit = layout.weight_offset[i];
    if (size == 0) {
      if (begin < end) body(GroupPlace{begin, end - begin, unit, 0, unit});
      continue;
    }
    for (int64_t k = begin; k < end; k += unit_size) {
      const int64_t unit_end = std::min(end, k + unit_size);
      int64_t runs = unit + static_cast<int64_t>(layout.groups.header_bytes), in_unit = 0;
      for (int64_t at = k; at < unit_end; at += size, ++in_unit) {
        const int64_t n = std::min(size, unit_end - at);
        body(GroupPlace{at, n, unit, in_unit, runs});
        runs += RoundUp(n, run) / run * 4 * kPanelColumns;
      }
      unit += static_cast<int64_t>(layout.groups.unit_bytes);
    }
  }
}

constexpr int64_t kMaxGroup = std::max(kInt8Groups.size, kInt4Groups.size);

void PackF32(const float* x, int64_t size, uint8_t* runs) {
  for (int64_t k = 0; k < size; ++k) std::memcpy(runs + k * 4 * kPanelColumns, x + k, 4);
}

void PackBF16(const float* x, int64_t size, uint8_t* runs) {
  for (int64_t k = 0; k < size; ++k) {
    const uint16_t bits = ToBF16(x[k]);
    std::memcpy(runs + k / 2 * 4 * kPanelColumns + k % 2 * 2, &bits, 2);
  }
}

// Writes integers of a group, whole runs of them, to the runs of a column.
template <typename Integer>
void PackIntegers(const PanelLayout& layout, const Integer* integers, int64_t size, int64_t column,
                  uint8_t* runs) {
  uint8_t* to = runs + 4 * column;
  if (layout.format == WeightFormat::kInt8Panels) {
    for (int64_t k = 0; k < size; k += 4, to += 4 * kPanelColumns) {
      for (int64_t j = 0; j < 4; ++j) to[j] = static_cast<uint8_t>(integers[k + j] + 128);
    }
    return;
  }
  const auto pack = [&](auto code_of) {
    for (int64_t k = 0; k < size; k += 8, to += 4 * kPanelColumns) {
      for (int64_t j = 0; j < 4; ++j) {
        const int low = code_of(integers[k + j]), high = code_of(integers[k + 4 + j]);
        to[j] = static_cast<uint8_t>((low & 15) | high << 4);
      }
    }
  };
  const GroupFormat& groups = layout.groups.format;
  if (groups.codes == GroupCodes::kIntegers) {
    const int offset = groups.has_minimum ? 0 : 8;
    return pack([offset](int integer) { return integer + offset; });
  }
  const uint8_t* const table = layout.groups.table;
  pack([table](int integer) {
    return static_cast<int>(std::find(table, table + 16, integer + 128) - table);
  });
}

void PutF32(uint8_t* to, int64_t column, float value) { std::memcpy(to + 4 * column, &value, 4); }

// The value is an f16.
void PutF16(uint8_t* to, int64_t column, float value) {
  const uint16_t bits = ToF16(value);
  std::memcpy(to + 2 * column, &bits, 2);
}

float F16At(const uint8_t* from, int64_t column) {
  uint16_t bits;
  std::memcpy(&bits, from + 2 * column, 2);
  return FromF16(bits);
}

// Returns where the scales of a group lie, or its minima with is_minimum.
uint8_t* ScalesOf(const GroupFormat& groups, uint8_t* unit, int64_t in_unit, bool is_minimum) {
  const int64_t of_each = groups.has_minimum ? 2 : 1, second = is_minimum ? 1 : 0;
  const int64_t at = in_unit * of_each + second;
  switch (groups.scales) {
    case GroupScales::kF32:
      return unit + at * 4 * kPanelColumns;
    case GroupScales::kF16:
      return unit + at * 2 * kPanelColumns;
    case GroupScales::kShared:
      return unit + (of_each * 2 + at) * kPanelColumns;
  }
  return unit;
}

// Writes one number of a group, and of kShared the factor of its unit.
void PutScale(const GroupFormat& groups, uint8_t* unit, int64_t in_unit, bool is_minimum,
              int64_t column, float value, float shared) {
  uint8_t* const to = ScalesOf(groups, unit, in_unit, is_minimum);
  switch (groups.scales) {
    case GroupScales::kF32:
      return PutF32(to, column, value);
    case GroupScales::kF16:
      return PutF16(to, column, value);
    case GroupScales::kShared:
      to[column] = static_cast<uint8_t>(static_cast<int8_t>(value));
      return PutF16(unit + (is_minimum ? 2 * kPanelColumns : 0), column, shared);
  }
}

float ScaleAt(const GroupFormat& groups, const uint8_t* unit, int64_t in_unit, bool is_minimum,
              int64_t column) {
  const uint8_t* const at = ScalesOf(groups, const_cast<uint8_t*>(unit), in_unit, is_minimum);
  if (groups.scales == GroupScales::kF16) return F16At(at, column);
  if (groups.scales == GroupScales::kShared) {
    return F16At(unit + (is_minimum ? 2 * kPanelColumns : 0), column) *
           static_cast<float>(static_cast<int8_t>(at[column]));
  }
  float value;
  std::memcpy(&value, at + 4 * column, 4);
  return value;
}

// Rounds the elements of a group. A null x is a column beyond the last one, and becomes zeros.
void PackRounded(const PanelLayout& layout, const float* x, const GroupPlace& place, int64_t column,
                 uint8_t* panel) {
  const GroupFormat& groups = layout.groups.format;
  int32_t rounded[kMaxGroup] = {};
  host::ScaleAndMinimum numbers = {};
  if (x != nullptr) {
    if (groups.has_minimum) {
      numbers = host::RoundGroupAboveMinimum(x, place.size, rounded);
    } else {
      numbers.scale = host::RoundGroup(layout.format, x, place.size, rounded);
    }
  }
  uint8_t* const unit = panel + place.unit;
  PutScale(groups, unit, place.in_unit, false, column, numbers.scale, 0);
  if (groups.has_minimum) {
    PutScale(groups, unit, place.in_unit, true, column, numbers.minimum, 0);
  }
  // Also what fills the last run up.
  PackIntegers(layout, rounded, RoundUp(place.size, RunOf(layout.format)), column,
               panel + place.runs);
}

}  // namespace

PanelLayout::PanelLayout(WeightFormat f, std::span<const int64_t> splits, const GroupFormat& g)
    : format(f), split_begin(splits) {
  CONTINUO_CHECK(num_splits() >= 1 && num_splits() <= kNumSplits);
  const int64_t run = RunOf(format);
  const bool is_plain = IsPlain(format);
  int64_t unit = 0, header = 0, group_size = 0;
  if (!is_plain) {
    const GroupFormat own = GroupsOf(format, g);
    CONTINUO_CHECK(own.size > 0 && own.size % 8 == 0 && own.unit > 0 && own.unit % own.size == 0);
    unit = own.unit, group_size = own.size, header = HeaderBytes(own);
    groups.format = own;
    groups.header_bytes = static_cast<size_t>(header);
    groups.unit_bytes = static_cast<size_t>(header + unit / run * 4 * kPanelColumns);
    const int8_t* const table = own.codes == GroupCodes::kIq4 ? kIq4Integers : kFp4Integers;
    for (int i = 0; i < 16; ++i) groups.table[i] = static_cast<uint8_t>(table[i] + 128);
  }
  for (int64_t i = 0; i < num_splits(); ++i) {
    const int64_t size = split_size(i), padded = RoundUp(size, run);
    const int64_t units = is_plain ? 0 : (size + unit - 1) / unit;
    weight_offset[i + 1] = weight_offset[i] + units * header + padded / run * 4 * kPanelColumns;
    x_offset[i + 1] = x_offset[i] + padded * XBytes(format);
    group_offset[i + 1] = group_offset[i] + (is_plain ? 0 : (size + group_size - 1) / group_size);
  }
  panel_bytes = weight_offset[num_splits()];
}

void PackPanel(const PanelLayout& layout, const float* rows, int64_t stride, int64_t n,
               uint8_t* panel) {
  CONTINUO_CHECK(n >= 1 && n <= kPanelColumns);
  CONTINUO_CHECK(IsPlain(layout.format) || layout.groups.format == GroupsOf(layout.format, {}));
  std::memset(panel, 0, static_cast<size_t>(layout.panel_bytes));
  ForGroups(layout, [&](const GroupPlace& place) {
    for (int64_t column = 0; column < kPanelColumns; ++column) {
      const float* x = column < n ? rows + column * stride + place.first : nullptr;
      if (!IsPlain(layout.format)) {
        PackRounded(layout, x, place, column, panel);
      } else if (x == nullptr) {
        continue;
      } else if (layout.format == WeightFormat::kF32Panels) {
        PackF32(x, place.size, panel + place.runs + 4 * column);
      } else {
        PackBF16(x, place.size, panel + place.runs + 4 * column);
      }
    }
  });
}

void PackGroupsPanel(const PanelLayout& layout, const GroupedRows& rows, int64_t first, int64_t n,
                     uint8_t* panel) {
  CONTINUO_CHECK(n >= 1 && n <= kPanelColumns && !IsPlain(layout.format));
  const GroupFormat& groups = layout.groups.format;
  const int64_t columns = layout.split_begin[layout.num_splits()];
  std::memset(panel, 0, static_cast<size_t>(layout.panel_bytes));
  ForGroups(layout, [&](const GroupPlace& place) {
    for (int64_t column = 0; column < n; ++column) {
      const int64_t row = first + column;
      const int64_t group = (row * columns + place.first) / groups.size;
      const bool is_shared = groups.scales == GroupScales::kShared;
      const int64_t unit = is_shared ? (row * columns + place.first) / groups.unit : 0;
      PutScale(groups, panel + place.unit, place.in_unit, false, column, rows.scales[group],
               is_shared ? rows.shared_scales[unit] : 0);
      if (groups.has_minimum) {
        PutScale(groups, panel + place.unit, place.in_unit, true, column, rows.minima[group],
                 is_shared ? rows.shared_minima[unit] : 0);
      }
      PackIntegers(layout, rows.integers + row * columns + place.first, place.size, column,
                   panel + place.runs);
    }
  });
}

void UnpackRow(const PanelLayout& layout, const uint8_t* panel, int64_t row, float* out) {
  const GroupFormat& groups = layout.groups.format;
  const int64_t run = RunOf(layout.format);
  ForGroups(layout, [&](const GroupPlace& place) {
    const uint8_t* const runs = panel + place.runs + 4 * row;
    float* const to = out + place.first;
    if (layout.format == WeightFormat::kF32Panels) {
      for (int64_t k = 0; k < place.size; ++k) {
        std::memcpy(to + k, runs + k * 4 * kPanelColumns, 4);
      }
      return;
    }
    if (layout.format == WeightFormat::kBF16Panels) {
      for (int64_t k = 0; k < place.size; ++k) {
        uint16_t bits;
        std::memcpy(&bits, runs + k / 2 * 4 * kPanelColumns + k % 2 * 2, 2);
        to[k] = FromBF16(bits);
      }
      return;
    }
    const uint8_t* const unit = panel + place.unit;
    const float scale = ScaleAt(groups, unit, place.in_unit, false, row);
    const float minimum = groups.has_minimum ? ScaleAt(groups, unit, place.in_unit, true, row) : 0;
    for (int64_t k = 0; k < place.size; ++k) {
      const int byte = runs[k / run * 4 * kPanelColumns + k % 4];
      const int code = (byte >> (k % run < 4 ? 0 : 4)) & 15;
      const int value = layout.format == WeightFormat::kInt8Panels ? byte - 128
                        : groups.codes != GroupCodes::kIntegers
                            ? layout.groups.table[code] - 128
                            : code - (groups.has_minimum ? 0 : 8);
      to[k] = static_cast<float>(value) * scale;
      if (groups.has_minimum) to[k] += minimum;
    }
  });
}

}  // namespace continuo::kernels::cpu
