// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/prefetch.h"

// Products on tensor cores whose first factor has few rows. Each block reads its columns of the
// second factor once, as they are stored. Only .cu files include this header.
namespace continuo::kernels::cuda {

inline constexpr int kBlockWarps = 8;
inline constexpr int kBlockThreads = kBlockWarps * kWarp;
inline constexpr int kMmaRows = 16;

// Rows of a block's sums in shared memory are padded, so that they are in different banks.
constexpr int SumStride(int tiles) { return tiles * kTileColumns + 8; }
// Bytes of shared memory that MultiplyBlock needs.
constexpr size_t SharedOfBlock(int row_tiles, int tiles) {
  return sizeof(float) * kBlockWarps * kMmaRows * static_cast<size_t>(row_tiles * SumStride(tiles));
}

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
__device__ inline void LoadEight(uint32_t (&pairs)[4], const Number* from, int n) {
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
    const int64_t from = int64_t{group} * Format::kGroup;
    return {from, Min(from + Format::kGroup, groups.k())};
  }
};

// Number of words that a lane has of a chunk, as it is stored.
template <typename Matrix>
inline constexpr int kLaneWords = 8;
template <bool kFour>
inline constexpr int kLaneWords<QuantisedMatrix<kFour>> = QuantisedFormat<kFour>::kLaneBytes / 4;

// Returns where a tile begins, and for a dense matrix a lane's column of it. Beyond the last column
// that one is read again, and its sums are dropped.
template <bool kFour>
__device__ inline const uint8_t* TileOf(const QuantisedMatrix<kFour>& w, const void* data,
                                        int64_t tile, int64_t /*columns*/, int /*lane*/) {
  return static_cast<const uint8_t*>(data) + tile * w.TileBytes();
}
template <typename Number>
__device__ inline const uint8_t* TileOf(const DenseMatrix<Number>& w, const void* data,
                                        int64_t tile, int64_t columns, int lane) {
  const int64_t column = Min(tile * kTileColumns + lane / 4, columns - 1);
  return reinterpret_cast<const uint8_t*>(static_cast<const Number*>(data) + column * w.groups.k());
}

// Loads a lane's part of a chunk of the second factor from what TileOf returned.
template <bool kAligned, bool kFour>
__device__ inline void LoadColumn(uint32_t (&words)[kLaneWords<QuantisedMatrix<kFour>>],
                                  const QuantisedMatrix<kFour>& w, const uint8_t* tile, int group,
                                  int chunk, int lane) {
  using Format = QuantisedFormat<kFour>;
  constexpr int kWords = kLaneWords<QuantisedMatrix<kFour>>;
  const int at = static_cast<int>(w.ScaleBytes()) + group * Format::kGroupBytes +
                 (chunk * Format::kLanes + lane) * Format::kLaneBytes;
  const Chunk<uint32_t, kWords> loaded =
      LoadChunk<kWords>(reinterpret_cast<const uint32_t*>(tile + at));
  CONTINUO_UNROLL
  for (int i = 0; i < kWords; ++i) words[i] = loaded.at[i];
}
template <bool kAligned, typename Number>
__device__ inline void LoadColumn(uint32_t (&words)[8], const DenseMatrix<Number>& w,
                                  const uint8_t* tile, int group, int /*chunk*/, int lane) {
  const int first = group * kChunkElements + lane % 4 * 8;
  const Number* const column = reinterpret_cast<const Number*>(tile) + first;
  const int left = static_cast<int>(w.groups.k()) - first;
  CONTINUO_UNROLL
  for (int block = 0; block < 2; ++block) {
    uint32_t pairs[4];
    LoadEight<kAligned>(pairs, column + block * 32, left - block * 32);
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) words[4 * block + i] = pairs[i];
  }
}

// Returns pair i of a lane's column in one of the two blocks of 32 of a chunk that was loaded.
template <bool kFour>
__device__ inline uint32_t PairOfColumn(const QuantisedMatrix<kFour>&, const uint32_t* words,
                                        int block, int i) {
  return PairAt<kFour>(words, block, i);
}
template <typename Number>
__device__ inline uint32_t PairOfColumn(const DenseMatrix<Number>&, const uint32_t* words,
                                        int block, int i) {
  return words[4 * block + i];
}

// Prefetches the beginning of some tiles' columns, `bytes` in all, which are 16-byte aligned. All
// threads of a block call it.
template <bool kFour>
__device__ inline void PrefetchTiles(const QuantisedMatrix<kFour>& w, const void* data,
                                     int64_t first_tile, int num_tiles, int64_t /*columns*/,
                                     int bytes) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= num_tiles) return;
  Prefetch(static_cast<const uint8_t*>(data) + (first_tile + thread) * w.TileBytes(),
           Min(w.ScaleBytes() + bytes / num_tiles / 128 * 128, w.TileBytes()));
}
template <typename Number>
__device__ inline void PrefetchTiles(const DenseMatrix<Number>& w, const void* data,
                                     int64_t first_tile, int num_tiles, int64_t columns,
                                     int bytes) {
  // Lanes prefetch one after the other, so each warp has a part of the columns.
  const auto thread = static_cast<int>(threadIdx.x);
  const int of_warp = thread / kWarp + thread % kWarp * kBlockWarps;
  const int num_columns = num_tiles * kTileColumns;
  const int64_t column = first_tile * kTileColumns + of_warp;
  const int64_t column_bytes = w.groups.k() * int64_t{sizeof(Number)};
  if (of_warp >= num_columns || column >= columns) return;
  Prefetch(static_cast<const uint8_t*>(data) + column * column_bytes,
           Min(bytes / num_columns / 128 * 128, column_bytes));
}

// Returns the scales of columns 2 q and 2 q + 1 of a tile.
template <bool kFour>
__device__ inline Chunk<float, 2> ScalesOf(const QuantisedMatrix<kFour>&, const uint8_t* tile,
                                           int group, int q) {
  return LoadChunk<2>(reinterpret_cast<const float*>(tile) + group * kTileColumns + 2 * q);
}
template <typename Number>
__device__ inline Chunk<float, 2> ScalesOf(const DenseMatrix<Number>&, const uint8_t*, int, int) {
  return {{1.0f, 1.0f}};
}

// Number of groups that a warp loads at a time, so that about 128 bytes are under way for each
// lane.
template <typename Matrix>
constexpr int GroupsAtOnce(int tiles) {
  const int bytes = 4 * kLaneWords<Matrix> * Matrix::Format::kChunks * tiles;
  return bytes >= 128 ? 1 : bytes >= 32 ? 2 : 4;
}

// Multiplies rows [first_row, end_row) of x, at most kMmaRows * kRowTiles of them, with the columns
// of num_tiles tiles of w, at most kTiles, by one block, and calls store(row, column, sum). The
// rows of x are x_rows[row], or the same rows where x_rows is null. w has `columns` columns and
// lies at `data`. The block's warps take the groups of k in turn, and their sums are added in the
// order of the warps, so the order depends neither on the rows nor on the tiles. x comes from
// caches, once for each kTiles: with 32 rows and int8 that is about twice the matrix's bytes.
// Integers are exact in bf16, and a group's sum is scaled once.
template <int kRowTiles, int kTiles, bool kAligned, typename Matrix, typename StoreSum>
__device__ void MultiplyBlock(const typename Matrix::Number* x, const int32_t* x_rows,
                              const Matrix& w, const void* data, int64_t first_row, int64_t end_row,
                              int64_t first_tile, int num_tiles, int64_t columns, StoreSum store) {
  using Format = typename Matrix::Format;
  using Number = typename Matrix::Number;
  constexpr int kBlockRows = kMmaRows * kRowTiles, kBlockColumns = kTiles * kTileColumns;
  constexpr int kAtOnce = GroupsAtOnce<Matrix>(kTiles), kStride = SumStride(kTiles);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int r = lane / 4, q = lane % 4;
  const int64_t k = w.groups.k();
  const int num_groups = w.groups.num_groups();
  const Number* from[kRowTiles][2];  // rows r and r + 8 of each tile, or the first one
  bool has_row[kRowTiles][2];
  CONTINUO_UNROLL
  for (int tile = 0; tile < kRowTiles; ++tile) {
    CONTINUO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first_row + tile * kMmaRows + half * 8 + r;
      has_row[tile][half] = row < end_row;
      const int64_t read = has_row[tile][half] ? row : first_row;
      from[tile][half] = x + (x_rows == nullptr ? read : x_rows[read]) * k;
    }
  }
  // Beyond the last tile that one is read again, and its sums are dropped.
  const int64_t last_tile = Min(first_tile + num_tiles, (columns - 1) / kTileColumns + 1) - 1;
  const uint8_t* tiles[kTiles];
  CONTINUO_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    tiles[t] = TileOf(w, data, Min(first_tile + t, last_tile), columns, lane);
  }
  float sums[kRowTiles][kTiles][4] = {};
  for (int first = warp; first < num_groups; first += kBlockWarps * kAtOnce) {
    uint32_t words[kAtOnce][kTiles][Format::kChunks][kLaneWords<Matrix>];
    CONTINUO_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      // Beyond the last group that one is read again, too.
      const auto g = static_cast<int>(Min(first + i * kBlockWarps, num_groups - 1));
      CONTINUO_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        CONTINUO_UNROLL
        for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
          LoadColumn<kAligned>(words[i][t][chunk], w, tiles[t], g, chunk, lane);
        }
      }
    }
    CONTINUO_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int g = first + i * kBlockWarps;
      if (g >= num_groups) break;
      const QuantisedGroups::Range range = w.RangeOf(g);
      const auto begin = static_cast<int>(range.begin),
                 size = static_cast<int>(range.end - range.begin);
      float partial[kTiles][kRowTiles][4] = {};
      CONTINUO_UNROLL
      for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
        uint32_t a[2][kRowTiles][2][4];  // of rows r and r + 8 of each tile
        CONTINUO_UNROLL
        for (int block = 0; block < 2; ++block) {
          const int at = chunk * kChunkElements + block * 32 + q * 8;
          CONTINUO_UNROLL
          for (int m = 0; m < kRowTiles; ++m) {
            CONTINUO_UNROLL
            for (int half = 0; half < 2; ++half) {
              LoadEight<kAligned>(a[block][m][half], from[m][half] + begin + at,
                                  has_row[m][half] ? size - at : 0);
            }
          }
        }
        CONTINUO_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          CONTINUO_UNROLL
          for (int block = 0; block < 2; ++block) {
            CONTINUO_UNROLL
            for (int step = 0; step < 4; step += 2) {
              const uint32_t* const column = words[i][t][chunk];
              const uint32_t b0 = PairOfColumn(w, column, block, step),
                             b1 = PairOfColumn(w, column, block, step + 1);
              CONTINUO_UNROLL
              for (int m = 0; m < kRowTiles; ++m) {
                const auto& rows_of = a[block][m];
                const uint32_t fragment[4] = {rows_of[0][step], rows_of[1][step],
                                              rows_of[0][step + 1], rows_of[1][step + 1]};
                MultiplyAdd<Number>(partial[t][m], fragment, b0, b1);
              }
            }
          }
        }
      }
      CONTINUO_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        const Chunk<float, 2> scales = ScalesOf(w, tiles[t], g, q);
        CONTINUO_UNROLL
        for (int m = 0; m < kRowTiles; ++m) {
          CONTINUO_UNROLL
          for (int j = 0; j < 4; ++j) {
            sums[m][t][j] = fmaf(partial[t][m][j], scales.at[j % 2], sums[m][t][j]);
          }
        }
      }
    }
  }

  float* const all = reinterpret_cast<float*>(SharedMemory());  // [kBlockWarps, rows, kStride]
  CONTINUO_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    CONTINUO_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = m * kMmaRows + half * 8 + r, column = t * kTileColumns + 2 * q;
        StoreChunk(all + (warp * kBlockRows + row) * kStride + column,
                   Chunk<float, 2>{{sums[m][t][2 * half], sums[m][t][2 * half + 1]}});
      }
    }
  }
  SyncBlock();
  const int64_t end_column = Min(columns, (last_tile + 1) * kTileColumns);
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kBlockColumns; i += kBlockThreads) {
    const int64_t row = first_row + i / kBlockColumns,
                  column = first_tile * kTileColumns + i % kBlockColumns;
    if (row >= end_row || column >= end_column) continue;
    const float* const first = all + i / kBlockColumns * kStride + i % kBlockColumns;
    float sum = first[0];
    for (int other = 1; other < kBlockWarps; ++other) sum += first[other * kBlockRows * kStride];
    store(row, column, sum);
  }
}

// Returns whether rows of k numbers, and the K splits of each, begin at multiples of 16 bytes.
inline bool Aligned(const void* data, const QuantisedGroups& groups) {
  bool aligned = IsAligned(data) && groups.k() % 8 == 0;
  for (int i = 0; i < groups.num; ++i) aligned = aligned && groups.begin[i] % 8 == 0;
  return aligned;
}

}  // namespace continuo::kernels::cuda
