// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/host/group_constants.h"
#include "kernels/tensor.h"

// How an int8 or int4 matrix [columns, k] lies in a device's memory, and its numbers. They are
// those of the CPU (host::RoundGroup): groups of k have a scale for each column, and begin anew
// with each piece that MatMulPieces adds up.
//
// Tiles of 8 columns, one after another, zeros beyond the last. A tile: f32 scales [groups, 8],
// then the groups' elements, of which chunks of 64 lie as 32 lanes of a warp read them, a lane at a
// time: as mma.m16n8k16 has its second factor (launch.h), lane 4 c + q holds elements 8 q … 8 q + 7
// of column c of the first 32, then of the second. int8: a byte is an element + 128. int4: a nibble
// is an element + 8, the low one first. A group is padded with zeros to whole chunks.
namespace continuo::kernels::cuda {

inline constexpr int kTileColumns = 8;
inline constexpr int kChunkElements = 64;

// Of an int8 or, if kFour, an int4 matrix.
template <bool kFour>
struct QuantisedFormat {
  static constexpr int kGroup = kFour ? host::kInt4Group : host::kInt8Group;  // elements of a scale
  static constexpr int kChunks = kGroup / kChunkElements;
  static constexpr int kLaneBytes = kFour ? 8 : 16;  // of a chunk
  static constexpr int kLanes = 32;
  static constexpr int kGroupBytes = kChunks * kLanes * kLaneBytes;
  static constexpr int kZero = kFour ? 8 : 128;  // what 0 is stored as
};

// The groups of k: `num` pieces, each cut into groups, the last of which may be shorter.
struct QuantisedGroups {
  static constexpr int kMaxPieces = 8;
  struct Range {
    int64_t begin, end;  // elements
  };

  int num = 0;
  int64_t begin[kMaxPieces + 1] = {};  // the first element of each piece, and the end
  int first[kMaxPieces + 1] = {};      // its first group

  CONTINUO_HOST_DEVICE int num_groups() const { return first[num]; }
  CONTINUO_HOST_DEVICE int64_t k() const { return begin[num]; }
  // The elements of a group, and the group of an element, where a group is kSize.
  template <int kSize>
  CONTINUO_HOST_DEVICE Range Of(int group) const {
    int piece = 0;
    while (group >= first[piece + 1]) ++piece;
    const int64_t from = begin[piece] + int64_t{group - first[piece]} * kSize;
    return {from, Min(from + kSize, begin[piece + 1])};
  }
  template <int kSize>
  CONTINUO_HOST_DEVICE int GroupOf(int64_t element) const {
    int piece = 0;
    while (element >= begin[piece + 1]) ++piece;
    return first[piece] + static_cast<int>((element - begin[piece]) / kSize);
  }
};

// A matrix as kernels take it.
template <bool kFour>
struct QuantisedMatrix {
  using Number = uint16_t;  // what it is multiplied with and as, bf16
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

  // Where element `at` of a group's column is, from the group's first byte on: the byte, and of
  // int4 whether it is the high nibble.
  struct Place {
    int byte;
    bool high;
  };
  CONTINUO_HOST_DEVICE static Place PlaceOf(int column, int at) {
    const int chunk = at / kChunkElements, block = at % kChunkElements / 32;
    const int lane = 4 * column + at % 32 / 8, nth = block * 8 + at % 8;
    return {(chunk * Format::kLanes + lane) * Format::kLaneBytes + (kFour ? nth / 2 : nth),
            kFour && nth % 2 != 0};
  }
  // What element `at` of a column stands for.
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

// The groups of a matrix in kInt8Panels or kInt4Panels; `piece_begin` as Backend::MatMulPieces
// takes it, at most 8 pieces. Of kDense they are chunks without scales, of one piece in all.
QuantisedGroups GroupsOf(WeightFormat format, std::span<const int64_t> piece_begin);

// Bytes of a matrix of so many columns.
int64_t QuantisedBytes(WeightFormat format, const QuantisedGroups& groups, int64_t columns);

// Fills tiles of n columns: rows[i * k …] is column i. Columns beyond the last, up to a whole tile,
// are zeros.
void PackQuantised(WeightFormat format, const QuantisedGroups& groups, const float* rows, int64_t n,
                   uint8_t* tiles);

}  // namespace continuo::kernels::cuda
