// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/host/group_constants.h"
#include "kernels/tensor.h"

// Memory layout of an int8 or int4 matrix [columns, k]. The numbers are the CPU's
// (host::RoundGroup): groups of k have a scale for each column, and begin anew with each K split of
// MatMulSplitK.
//
// Tiles of 8 columns follow one another, with zeros beyond the last column. A tile has f32 scales
// [groups, 8], then the elements of the groups. Chunks of 64 elements are stored as the 32 lanes of
// a warp read them, lane after lane. mma.m16n8k16 takes its second factor so (launch.h): lane 4 c +
// q holds elements 8 q … 8 q + 7 of column c of the first 32, then of the second. int8: a byte is
// an element + 128. int4: a nibble is an element + 8, the low one first. A group is padded with
// zeros to whole chunks. In each word the even elements lie in the low half and the odd ones at the
// same place of the high half, so that a shift and a mask leave two neighbours for a pair of bf16.
namespace continuo::kernels::cuda {

inline constexpr int kTileColumns = 8;
inline constexpr int kChunkElements = 64;

// The constants of an int8 or, with kFour, an int4 matrix.
template <bool kFour>
struct QuantisedFormat {
  static constexpr int kGroup = kFour ? host::kInt4Group : host::kInt8Group;  // elements of a scale
  static constexpr int kChunks = kGroup / kChunkElements;
  static constexpr int kLaneBytes = kFour ? 8 : 16;  // of a lane's part of a chunk
  static constexpr int kLanes = 32;
  static constexpr int kGroupBytes = kChunks * kLanes * kLaneBytes;
  static constexpr int kZero = kFour ? 8 : 128;  // the stored value of 0
};

// The groups of k: `num` K splits, each cut into groups, of which the last may be shorter.
struct QuantisedGroups {
  static constexpr int kMaxSplits = 8;
  struct Range {
    int64_t begin, end;  // elements
  };

  int num = 0;
  int64_t begin[kMaxSplits + 1] = {};  // first element of each split, and the end
  int first[kMaxSplits + 1] = {};      // first group of each split

  CONTINUO_HOST_DEVICE int num_groups() const { return first[num]; }
  CONTINUO_HOST_DEVICE int64_t k() const { return begin[num]; }
  // Return the elements of a group, and the group of an element, with groups of kSize.
  template <int kSize>
  CONTINUO_HOST_DEVICE Range Of(int group) const {
    int split = 0;
    while (group >= first[split + 1]) ++split;
    const int64_t from = begin[split] + int64_t{group - first[split]} * kSize;
    return {from, Min(from + kSize, begin[split + 1])};
  }
  template <int kSize>
  CONTINUO_HOST_DEVICE int GroupOf(int64_t element) const {
    int split = 0;
    while (element >= begin[split + 1]) ++split;
    return first[split] + static_cast<int>((element - begin[split]) / kSize);
  }
};

// A matrix as kernels take it.
template <bool kFour>
struct QuantisedMatrix {
  using Number = uint16_t;  // bf16: elements become this, and x has it
  using Format = QuantisedFormat<kFour>;

  const uint8_t* tiles;
  QuantisedGroups groups;

  CONTINUO_HOST_DEVICE int64_t ScaleBytes() const {
    return int64_t{groups.num_groups()} * kTileColumns * static_cast<int64_t>(sizeof(float));
  }
  CONTINUO_HOST_DEVICE int64_t TileBytes() const {
    return ScaleBytes() + int64_t{groups.num_groups()} * Format::kGroupBytes;
  }
  CONTINUO_HOST_DEVICE QuantisedGroups::Range RangeOf(int group) const {
    return groups.Of<Format::kGroup>(group);
  }
  CONTINUO_HOST_DEVICE const uint8_t* Tile(int64_t tile) const {
    return tiles + tile * TileBytes();
  }

  // The position of element `at` of a group's column, from the group's first byte on: the byte and,
  // for int4, whether it is the high nibble.
  struct Place {
    int byte;
    bool high;
  };
  CONTINUO_HOST_DEVICE static Place PlaceOf(int column, int at) {
    const int chunk = at / kChunkElements, block = at % kChunkElements / 32;
    constexpr int kWordElements = kFour ? 8 : 4;
    const int lane = 4 * column + at % 32 / 8, nth = block * 8 + at % 8;
    const int word = nth / kWordElements, of_word = nth % kWordElements;
    const int place = of_word / 2 + of_word % 2 * (kWordElements / 2);
    return {(chunk * Format::kLanes + lane) * Format::kLaneBytes + word * 4 +
                (kFour ? place / 2 : place),
            kFour && place % 2 != 0};
  }
  // Returns the value of element `at` of a column.
  CONTINUO_HOST_DEVICE float ValueOf(int64_t column, int64_t at) const {
    const uint8_t* const tile = Tile(column / kTileColumns);
    const int c = static_cast<int>(column % kTileColumns),
              group = groups.GroupOf<Format::kGroup>(at);
    const Place place = PlaceOf(c, static_cast<int>(at - RangeOf(group).begin));
    const uint8_t byte = tile[ScaleBytes() + int64_t{group} * Format::kGroupBytes + place.byte];
    const int stored = !kFour ? byte : place.high ? byte >> 4 : byte & 15;
    return static_cast<float>(stored - Format::kZero) *
           reinterpret_cast<const float*>(tile)[group * kTileColumns + c];
  }
};

// Returns the groups of a matrix in kInt8Panels or kInt4Panels; `split_begin` is as
// MatMulOps::MatMulSplitK takes it, at most 8 splits. For kDense they are chunks without scales of
// one split.
QuantisedGroups GroupsOf(WeightFormat format, std::span<const int64_t> split_begin);

// Returns call(matrix) with w, in kInt8Panels or kInt4Panels, as kernels take it.
template <typename Call>
auto WithQuantised(const Weight& w, std::span<const int64_t> split_begin, Call call) {
  const auto* const tiles = static_cast<const uint8_t*>(w.data.data);
  const QuantisedGroups groups = GroupsOf(w.format, split_begin);
  return w.format == WeightFormat::kInt4Panels ? call(QuantisedMatrix<true>{tiles, groups})
                                               : call(QuantisedMatrix<false>{tiles, groups});
}

// Returns the bytes of a matrix with this number of columns.
int64_t QuantisedBytes(WeightFormat format, const QuantisedGroups& groups, int64_t columns);

// Fills the tiles of n columns; rows[i * k …] is column i. Columns beyond the last, up to a whole
// tile, become zeros.
void PackQuantised(WeightFormat format, const QuantisedGroups& groups, const float* rows, int64_t n,
                   uint8_t* tiles);

}  // namespace continuo::kernels::cuda
