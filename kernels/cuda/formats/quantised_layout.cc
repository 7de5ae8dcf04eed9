// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/formats/quantised_layout.h"

#include <algorithm>
#include <cstring>

#include "kernels/host/group_rounding.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

template <bool kFour>
void PackColumn(const QuantisedMatrix<kFour>& matrix, WeightFormat format, const float* row,
                int column, uint8_t* tile) {
  using Format = QuantisedFormat<kFour>;
  int32_t rounded[Format::kGroup];
  for (int g = 0; g < matrix.groups.num_groups(); ++g) {
    const QuantisedGroups::Range range = matrix.RangeOf(g);
    std::fill_n(rounded, Format::kGroup, 0);
    float scale = 0;
    if (row != nullptr) {
      scale = host::RoundGroup(format, row + range.begin, range.end - range.begin, rounded);
    }
    std::memcpy(tile + (int64_t{g} * kTileColumns + column) * 4, &scale, sizeof(scale));
    uint8_t* const group = tile + matrix.ScaleBytes() + int64_t{g} * Format::kGroupBytes;
    for (int i = 0; i < Format::kGroup; ++i) {
      const auto place = QuantisedMatrix<kFour>::PlaceOf(column, i);
      const auto stored = static_cast<uint8_t>(rounded[i] + Format::kZero);
      if (place.high) {
        group[place.byte] |= static_cast<uint8_t>(stored << 4);
      } else {
        group[place.byte] = stored;  // the low nibble is written before the high one
      }
    }
  }
}

template <bool kFour>
void Pack(WeightFormat format, const QuantisedGroups& groups, const float* rows, int64_t n,
          uint8_t* tiles) {
  const QuantisedMatrix<kFour> matrix = {tiles, groups};
  for (int64_t first = 0; first < n; first += kTileColumns) {
    for (int column = 0; column < kTileColumns; ++column) {
      const float* const row = first + column < n ? rows + (first + column) * groups.k() : nullptr;
      PackColumn(matrix, format, row, column, tiles + first / kTileColumns * matrix.TileBytes());
    }
  }
}

}  // namespace

QuantisedGroups GroupsOf(WeightFormat format, std::span<const int64_t> split_begin) {
  QuantisedGroups groups;
  if (format == WeightFormat::kDense) {
    groups.num = 1;
    groups.begin[1] = split_begin.back();
    groups.first[1] = static_cast<int>((groups.k() + kChunkElements - 1) / kChunkElements);
    return groups;
  }
  groups.num = static_cast<int>(split_begin.size()) - 1;
  CONTINUO_CHECK(groups.num >= 1 && groups.num <= QuantisedGroups::kMaxSplits);
  const int64_t group_size = host::GroupSize(format);
  CONTINUO_CHECK(group_size > 0);
  std::copy(split_begin.begin(), split_begin.end(), groups.begin);
  for (int i = 0; i < groups.num; ++i) {
    const int64_t size = split_begin[i + 1] - split_begin[i];
    groups.first[i + 1] = groups.first[i] + static_cast<int>((size + group_size - 1) / group_size);
  }
  return groups;
}

int64_t QuantisedBytes(WeightFormat format, const QuantisedGroups& groups, int64_t columns) {
  const int64_t tile = format == WeightFormat::kInt4Panels
                           ? QuantisedMatrix<true>{nullptr, groups}.TileBytes()
                           : QuantisedMatrix<false>{nullptr, groups}.TileBytes();
  return (columns + kTileColumns - 1) / kTileColumns * tile;
}

void PackQuantised(WeightFormat format, const QuantisedGroups& groups, const float* rows, int64_t n,
                   uint8_t* tiles) {
  if (format == WeightFormat::kInt4Panels) {
    Pack<true>(format, groups, rows, n, tiles);
  } else {
    Pack<false>(format, groups, rows, n, tiles);
  }
}

}  // namespace continuo::kernels::cuda
