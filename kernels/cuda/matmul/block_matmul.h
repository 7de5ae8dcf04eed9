// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// Products on tensor cores whose first factor has few rows. Each block reads its columns of the
// second factor once, as they are stored. Only .cu files include this header.
namespace continuo::kernels::cuda {

inline constexpr int kBlockWarps = 8;
inline constexpr int kBlockThreads = kBlockWarps * kWarp;
inline constexpr int kColumnTiles = 4;  // column tiles of a block
inline constexpr int kBlockColumns = kColumnTiles * kTileColumns;
// Rows of sums in shared memory are padded, so that they are in different banks.
inline constexpr int kSumStride = kBlockColumns + 8;
inline constexpr int kMmaRows = 16;

// Returns the bits of two bf16 whose values are low - kZero and high - kZero. Both have at most 8
// bits, so this is exact. The float 2^23 + n has n in its low bits, which costs less than a
// conversion.
template <int kZero>
__device__ inline uint32_t PairOf(uint32_t low, uint32_t high) {
  constexpr uint32_t kTwo23 = 0x4b000000;
  low |= kTwo23;
  high |= kTwo23;
  float a = 0, b = 0;
  std::memcpy(&a, &low, sizeof(a));
  std::memcpy(&b, &high, sizeof(b));
  a -= 0x1p23f + kZero;
  b -= 0x1p23f + kZero;
  std::memcpy(&low, &a, sizeof(a));
  std::memcpy(&high, &b, sizeof(b));
  return low >> 16 | (high & 0xffff0000u);
}

// Returns elements 2 i and 2 i + 1 of the eight that a lane has of each block of 32, from its words
// of a chunk.
template <bool kFour>
__device__ inline uint32_t PairAt(const uint32_t* words, int block, int i) {
  constexpr int kZero = QuantisedFormat<kFour>::kZero;
  constexpr uint32_t kMask = kFour ? 15 : 255;
  constexpr int kBits = kFour ? 4 : 8, kWordElements = 32 / kBits;
  const int element = block * 8 + 2 * i;
  const uint32_t word = words[element / kWordElements] >> (element % kWordElements * kBits);
  return PairOf<kZero>(word & kMask, word >> kBits & kMask);
}

// Loads eight 16-bit numbers as four pairs, with zeros from the n-th on. With kAligned they are
// 16-byte aligned, and n is at least 8 or not above 0.
template <bool kAligned, typename Number>
__device__ inline void LoadEight(uint32_t (&pairs)[4], const Number* from, int64_t n) {
  if constexpr (kAligned) {
    Chunk<uint32_t, 4> chunk = {};
    if (n > 0) chunk = LoadChunk<4>(reinterpret_cast<const uint32_t*>(from));
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = chunk.at[i];
  } else {
    const auto* const bits = reinterpret_cast<const uint16_t*>(from);
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = 2 * i < n ? bits[2 * i] : 0, high = 2 * i + 1 < n ? bits[2 * i + 1] : 0;
      pairs[i] = low | high << 16;
    }
  }
}

// A row-major matrix [columns, k] of uint16_t (bf16) or Half, with one K split. Like
// QuantisedMatrix it describes the layout only. The address is passed apart, so that one
// description, read where a launch put it, serves many matrices.
template <typename Number_>
struct DenseMatrix {
  using Number = Number_;
  struct Format {
    // Warps take these groups in turn. There are no scales.
    static constexpr int kGroup = kChunkElements, kChunks = 1;
  };
  QuantisedGroups groups;

  CONTINUO_HOST_DEVICE QuantisedGroups::Range RangeOf(int group) const {
    return groups.Of<Format::kGroup>(group);
  }
};

// Loads a lane's part of a chunk of the second factor: for each block of 32 the four pairs of its
// column of a tile. w has `columns` columns.
template <bool kAligned, bool kFour>
__device__ inline void LoadColumn(uint32_t (&pairs)[2][4], const QuantisedMatrix<kFour>& w,
                                  const void* data, int64_t tile, int group, int chunk,
                                  const QuantisedGroups::Range& /*range*/, int64_t /*columns*/,
                                  int lane) {
  using Format = QuantisedFormat<kFour>;
  constexpr int kWords = Format::kLaneBytes / 4;
  const Chunk<uint32_t, kWords> words = LoadChunk<kWords>(reinterpret_cast<const uint32_t*>(
      static_cast<const uint8_t*>(data) + tile * w.TileBytes() + w.ScaleBytes() +
      int64_t{group} * Format::kGroupBytes + (chunk * Format::kLanes + lane) * Format::kLaneBytes));
  CONTINUO_UNROLL
  for (int block = 0; block < 2; ++block) {
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) pairs[block][i] = PairAt<kFour>(words.at, block, i);
  }
}
template <bool kAligned, typename Number>
__device__ inline void LoadColumn(uint32_t (&pairs)[2][4], const DenseMatrix<Number>& w,
                                  const void* data, int64_t tile, int /*group*/, int chunk,
                                  const QuantisedGroups::Range& range, int64_t columns, int lane) {
  const int64_t column = tile * kTileColumns + lane / 4;
  CONTINUO_UNROLL
  for (int block = 0; block < 2; ++block) {
    const int64_t at = range.begin + chunk * kChunkElements + block * 32 + lane % 4 * 8;
    LoadEight<kAligned>(pairs[block], static_cast<const Number*>(data) + column * w.groups.k() + at,
                        column < columns ? range.end - at : 0);
  }
}

// Prefetches what a warp reads first of a block's columns, before it may read the other factor.
template <bool kFour>
__device__ inline void PrefetchColumns(const QuantisedMatrix<kFour>& w, const void* data, int group,
                                       int64_t first_column, int64_t columns, int lane) {
  constexpr int kLines = QuantisedFormat<kFour>::kGroupBytes / 128;
  static_assert(kLines * kColumnTiles <= kWarp);
  const int64_t tile = first_column / kTileColumns + lane / kLines;
  if (lane >= kLines * kColumnTiles || tile * kTileColumns >= columns) return;
  const uint8_t* const at = static_cast<const uint8_t*>(data) + tile * w.TileBytes();
  Prefetch(at + w.ScaleBytes() + int64_t{group} * QuantisedFormat<kFour>::kGroupBytes +
           lane % kLines * 128);
  if (lane % kLines == 0) Prefetch(at + int64_t{group} * kTileColumns * int64_t{sizeof(float)});
}
template <typename Number>
__device__ inline void PrefetchColumns(const DenseMatrix<Number>& w, const void* data, int group,
                                       int64_t first_column, int64_t columns, int lane) {
  static_assert(kBlockColumns == kWarp && kChunkElements * sizeof(Number) == 128);
  if (first_column + lane >= columns) return;
  Prefetch(static_cast<const Number*>(data) + (first_column + lane) * w.groups.k() +
           w.RangeOf(group).begin);
}

// Returns the scales of columns 2 q and 2 q + 1 of a tile.
template <bool kFour>
__device__ inline Chunk<float, 2> ScalesOf(const QuantisedMatrix<kFour>& w, const void* data,
                                           int64_t tile, int group, int q) {
  const uint8_t* const scales = static_cast<const uint8_t*>(data) + tile * w.TileBytes();
  return LoadChunk<2>(reinterpret_cast<const float*>(scales) + group * kTileColumns + 2 * q);
}
template <typename Number>
__device__ inline Chunk<float, 2> ScalesOf(const DenseMatrix<Number>&, const void*, int64_t, int,
                                           int) {
  return {{1.0f, 1.0f}};
}

// Bytes of shared memory that MultiplyBlock needs.
constexpr size_t SharedOfBlock(int row_tiles) {
  return sizeof(float) * kBlockWarps * kMmaRows * kSumStride * static_cast<size_t>(row_tiles);
}

// Computes rows [first_row, end_row) of out, at most kMmaRows * kRowTiles of them, and
// kBlockColumns columns, by one block. The rows of x are x_rows[row], or the same rows where x_rows
// is null. w lies at `data`. The block's warps take the groups of k in turn, and their sums are
// added in the order of the warps, so the order does not depend on the rows. x comes from caches,
// once for each kBlockColumns: with 32 rows and int8 that is about twice the matrix's bytes.
// Integers are exact in bf16, and a group's sum is scaled once.
template <int kRowTiles, bool kAligned, typename Matrix, typename T>
__device__ void MultiplyBlock(T* out, const typename Matrix::Number* x, const int32_t* x_rows,
                              const Matrix& w, const void* data, const float* bias,
                              int64_t first_row, int64_t end_row, int64_t first_column,
                              int64_t columns) {
  using Format = typename Matrix::Format;
  using Number = typename Matrix::Number;
  constexpr int kBlockRows = kMmaRows * kRowTiles;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int r = lane / 4, q = lane % 4;
  const int64_t k = w.groups.k();
  const Number* from[kRowTiles][2];  // rows r and r + 8 of each tile; null beyond the last
  CONTINUO_UNROLL
  for (int tile = 0; tile < kRowTiles; ++tile) {
    CONTINUO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first_row + tile * kMmaRows + half * 8 + r;
      from[tile][half] = row >= end_row ? nullptr : x + (x_rows == nullptr ? row : x_rows[row]) * k;
    }
  }
  float sums[kRowTiles][kColumnTiles][4] = {};
  for (int g = warp; g < w.groups.num_groups(); g += kBlockWarps) {
    const QuantisedGroups::Range range = w.RangeOf(g);
    uint32_t a[Format::kChunks][2][kRowTiles][2][4];  // of rows r and r + 8 of each tile
    CONTINUO_UNROLL
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
      CONTINUO_UNROLL
      for (int block = 0; block < 2; ++block) {
        const int64_t at = range.begin + chunk * kChunkElements + block * 32 + q * 8;
        CONTINUO_UNROLL
        for (int tile = 0; tile < kRowTiles; ++tile) {
          CONTINUO_UNROLL
          for (int half = 0; half < 2; ++half) {
            const Number* const row = from[tile][half];
            LoadEight<kAligned>(a[chunk][block][tile][half], row == nullptr ? row : row + at,
                                row == nullptr ? 0 : range.end - at);
          }
        }
      }
    }
    CONTINUO_UNROLL
    for (int t = 0; t < kColumnTiles; ++t) {
      // Beyond the last column the last tile is read again, and its sums are dropped.
      const int64_t number = Min(first_column / kTileColumns + t, (columns - 1) / kTileColumns);
      float partial[kRowTiles][4] = {};
      CONTINUO_UNROLL
      for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
        uint32_t pairs[2][4];
        LoadColumn<kAligned>(pairs, w, data, number, g, chunk, range, columns, lane);
        CONTINUO_UNROLL
        for (int block = 0; block < 2; ++block) {
          CONTINUO_UNROLL
          for (int step = 0; step < 4; step += 2) {
            CONTINUO_UNROLL
            for (int m = 0; m < kRowTiles; ++m) {
              const auto& rows_of = a[chunk][block][m];
              const uint32_t fragment[4] = {rows_of[0][step], rows_of[1][step],
                                            rows_of[0][step + 1], rows_of[1][step + 1]};
              MultiplyAdd<Number>(partial[m], fragment, pairs[block][step], pairs[block][step + 1]);
            }
          }
        }
      }
      const Chunk<float, 2> scales = ScalesOf(w, data, number, g, q);
      CONTINUO_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        CONTINUO_UNROLL
        for (int j = 0; j < 4; ++j) {
          sums[m][t][j] = fmaf(partial[m][j], scales.at[j % 2], sums[m][t][j]);
        }
      }
    }
  }

  float* const all = reinterpret_cast<float*>(SharedMemory());  // [kBlockWarps, rows, kSumStride]
  CONTINUO_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    CONTINUO_UNROLL
    for (int t = 0; t < kColumnTiles; ++t) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = m * kMmaRows + half * 8 + r, column = t * kTileColumns + 2 * q;
        StoreChunk(all + (warp * kBlockRows + row) * kSumStride + column,
                   Chunk<float, 2>{{sums[m][t][2 * half], sums[m][t][2 * half + 1]}});
      }
    }
  }
  SyncBlock();
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kBlockColumns; i += kBlockThreads) {
    const int64_t row = first_row + i / kBlockColumns, column = first_column + i % kBlockColumns;
    if (row >= end_row || column >= columns) continue;
    const float* const first = all + i / kBlockColumns * kSumStride + i % kBlockColumns;
    float sum = first[0];
    for (int other = 1; other < kBlockWarps; ++other) sum += first[other * kBlockRows * kSumStride];
    if (bias != nullptr) sum += bias[column];
    Store(out + row * columns + column, sum);
  }
}

// Returns whether rows of k numbers, and the K splits of each, begin at multiples of 16 bytes.
inline bool Aligned(const void* data, const QuantisedGroups& groups) {
  bool aligned = IsAligned(data) && groups.k() % 8 == 0;
  for (int i = 0; i < groups.num; ++i) aligned = aligned && groups.begin[i] % 8 == 0;
  return aligned;
}

}  // namespace continuo::kernels::cuda
