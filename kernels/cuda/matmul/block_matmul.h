// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/formats/e4m3_pairs.h"
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

// Returns elements 2 i and 2 i + 1 of the eight that a lane has of each block of 32, from its words
// of a chunk, as bf16. The bf16 128 + n has n in its low 7 bits, so a mask makes numbers and one
// exact addition subtracts what is too much. Of int8 the eighth bit chooses how much that is.
template <bool kFour>
__device__ inline uint32_t PairAt(const uint32_t* words, int block, int i) {
  constexpr uint32_t kOnes = 0x3f803f80, k128s = 0x43004300;
  const int element = block * 8 + 2 * i;
  if constexpr (kFour) {
    constexpr uint32_t kMinus136s = 0xc308c308;
    const uint32_t word = words[element / 8] >> element % 8 / 2 * 4;
    return MultiplyAddPairs<uint16_t>((word & 0x000f000f) | k128s, kOnes, kMinus136s);
  } else {
    constexpr uint32_t kMinus256s = 0xc380c380;  // -128 differs in bit 7
    const uint32_t word = words[element / 4] >> element % 4 / 2 * 8;
    return MultiplyAddPairs<uint16_t>((word & 0x007f007f) | k128s, kOnes,
                                      (word & 0x00800080) ^ kMinus256s);
  }
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

// A matrix of e4m3 numbers with a scale for each column (Fp8Layout), which multiplies rows of e4m3
// numbers. MultiplyBlock does not apply the scales. Tensor cores get the numbers as f16, which has
// their values.
struct E4M3Matrix {
  using Number = Half;
  struct Format {
    static constexpr int kGroup = kChunkElements, kChunks = 1;
  };
  QuantisedGroups groups;  // of k filled up

  CONTINUO_HOST_DEVICE QuantisedGroups::Range RangeOf(int group) const {
    const int64_t from = int64_t{group} * Format::kGroup;
    return {from, Min(from + Format::kGroup, groups.k())};
  }
};

// The types of the other factor's elements, and of outputs that are not f32.
template <typename Matrix>
struct TypesOf {
  using Element = typename Matrix::Number;
  using Narrow = typename Matrix::Number;
};
template <>
struct TypesOf<E4M3Matrix> {
  using Element = uint8_t;
  using Narrow = uint16_t;
};

// Number of words that a lane has of a chunk, as it is stored.
template <typename Matrix>
inline constexpr int kLaneWords = 8;
template <bool kFour>
inline constexpr int kLaneWords<QuantisedMatrix<kFour>> = QuantisedFormat<kFour>::kLaneBytes / 4;
template <>
inline constexpr int kLaneWords<E4M3Matrix> = 4;

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
__device__ inline const uint8_t* TileOf(const E4M3Matrix& w, const void* data, int64_t tile,
                                        int64_t columns, int lane) {
  const int64_t column = Min(tile * kTileColumns + lane / 4, columns - 1);
  return static_cast<const uint8_t*>(data) + column * w.groups.k();
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
template <bool kAligned>
__device__ inline void LoadColumn(uint32_t (&words)[4], const E4M3Matrix& w, const uint8_t* tile,
                                  int group, int /*chunk*/, int lane) {
  static_assert(kAligned);
  const int first = group * kChunkElements + lane % 4 * 16;
  Chunk<uint32_t, 4> loaded = {};
  if (first < w.groups.k()) loaded = LoadChunk<4>(reinterpret_cast<const uint32_t*>(tile + first));
  CONTINUO_UNROLL
  for (int i = 0; i < 4; ++i) words[i] = loaded.at[i];
}

// Loads a lane's part of a chunk of a row of the first factor, where `from` begins; n elements are
// left of it, or 0.
template <bool kAligned, typename Matrix, typename Number>
__device__ inline void LoadRow(uint32_t (&pairs)[2][4], const Matrix&, const Number* from, int n,
                               int lane) {
  CONTINUO_UNROLL
  for (int block = 0; block < 2; ++block) {
    const int at = block * 32 + lane % 4 * 8;
    LoadEight<kAligned>(pairs[block], from + at, n - at);
  }
}
template <bool kAligned>
__device__ inline void LoadRow(uint32_t (&pairs)[2][4], const E4M3Matrix&, const uint8_t* from,
                               int n, int lane) {
  const int at = lane % 4 * 16;
  Chunk<uint32_t, 4> words = {};
  if (at < n) words = LoadChunk<4>(reinterpret_cast<const uint32_t*>(from + at));
  CONTINUO_UNROLL
  for (int i = 0; i < 8; ++i) pairs[i / 4][i % 4] = WidenE4M3Pair(words.at[i / 2], i % 2 == 1);
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
__device__ inline uint32_t PairOfColumn(const E4M3Matrix&, const uint32_t* words, int block,
                                        int i) {
  const int pair = 4 * block + i;
  return WidenE4M3Pair(words[pair / 2], pair % 2 == 1);
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
template <typename Matrix>
__device__ inline void PrefetchTiles(const Matrix& w, const void* data, int64_t first_tile,
                                     int num_tiles, int64_t columns, int bytes) {
  // Lanes prefetch one after the other, so each warp has a part of the columns.
  const auto thread = static_cast<int>(threadIdx.x);
  const int of_warp = thread / kWarp + thread % kWarp * kBlockWarps;
  const int num_columns = num_tiles * kTileColumns;
  const int64_t column = first_tile * kTileColumns + of_warp;
  const int64_t column_bytes = w.groups.k() * int64_t{sizeof(typename TypesOf<Matrix>::Element)};
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
template <typename Matrix>
__device__ inline Chunk<float, 2> ScalesOf(const Matrix&, const uint8_t*, int, int) {
  return {{1.0f, 1.0f}};
}

// Number of groups that a warp loads at a time, so that about 128 bytes are under way for each
// lane.
template <typename Matrix>
constexpr int GroupsAtOnce(int tiles) {
  const int words = kLaneWords<Matrix> * Matrix::Format::kChunks * tiles;
  if (kLaneWords<Matrix> == 2) return tiles > 2 ? 2 : 4;  // int4 needs registers for scales, too
  return words >= 32 ? 1 : 32 / words;
}

// Where a block reads some tiles, and the words of its first groups, which a warp loads before it
// needs them.
template <typename Matrix, int kTiles, bool kAligned>
struct BlockReader {
  static constexpr int kAtOnce = GroupsAtOnce<Matrix>(kTiles);

  const uint8_t* first;  // the first tile
  int behind[kTiles];    // bytes of each tile behind it, which take fewer registers than addresses
  uint32_t words[kAtOnce][kTiles][Matrix::Format::kChunks][kLaneWords<Matrix>];

  // Goes to num_tiles tiles, at most kTiles, from first_tile on. Beyond the last tile that one is
  // read again, and its sums are dropped.
  __device__ void Go(const Matrix& w, const void* data, int64_t first_tile, int num_tiles,
                     int64_t columns) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t last = Min(first_tile + num_tiles, (columns - 1) / kTileColumns + 1) - 1;
    first = TileOf(w, data, first_tile, columns, lane);
    CONTINUO_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      behind[t] =
          static_cast<int>(TileOf(w, data, Min(first_tile + t, last), columns, lane) - first);
    }
  }
  // Loads kAtOnce of a warp's groups from `group` on. Beyond the last group that one is read again.
  __device__ void Load(const Matrix& w, int group) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    CONTINUO_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const auto g = static_cast<int>(Min(group + i * kBlockWarps, w.groups.num_groups() - 1));
      CONTINUO_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        CONTINUO_UNROLL
        for (int chunk = 0; chunk < Matrix::Format::kChunks; ++chunk) {
          LoadColumn<kAligned>(words[i][t][chunk], w, first + behind[t], g, chunk, lane);
        }
      }
    }
  }
};

// Multiplies rows [first_row, end_row) of x, at most kMmaRows * kRowTiles of them, with the columns
// of num_tiles tiles of w, at most kTiles, by one block, and calls store(row, column, sum). The
// rows of x are x_rows[row], or the same rows where x_rows is null. w has `columns` columns.
// `reader` is at the tiles and has loaded from the warp's number on. When a warp has multiplied its
// last groups, it calls next(reader), which goes to other tiles and returns true, or returns false;
// their first groups are loaded while these sums are added and stored. The block's warps take the
// groups of k in turn, and their sums are added in the order of the warps, so the order depends
// neither on the rows nor on the tiles. x comes from caches, once for each kTiles. Integers are
// exact in bf16, and a group's sum is scaled once.
template <int kRowTiles, int kTiles, bool kAligned, typename Matrix, typename Next,
          typename StoreSum>
__device__ void MultiplyBlock(const typename TypesOf<Matrix>::Element* x, const int32_t* x_rows,
                              const Matrix& w, BlockReader<Matrix, kTiles, kAligned>& reader,
                              int64_t first_row, int64_t end_row, int64_t first_tile, int num_tiles,
                              int64_t columns, Next next, StoreSum store) {
  using Format = typename Matrix::Format;
  using Number = typename Matrix::Number;
  constexpr int kBlockRows = kMmaRows * kRowTiles, kBlockColumns = kTiles * kTileColumns;
  // e4m3 has no scales of groups, and its four row tiles leave no registers for sums of a group.
  constexpr bool kByGroup = !std::is_same_v<Matrix, E4M3Matrix>;
  constexpr int kAtOnce = BlockReader<Matrix, kTiles, kAligned>::kAtOnce;
  constexpr int kStride = SumStride(kTiles);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int r = lane / 4, q = lane % 4;
  const int64_t k = w.groups.k();
  const int num_groups = w.groups.num_groups();
  const typename TypesOf<Matrix>::Element*
      from[kRowTiles][2];  // rows r and r + 8 of each tile, or the first one
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
  float sums[kRowTiles][kTiles][4] = {};
  for (int first = warp; first < num_groups; first += kBlockWarps * kAtOnce) {
    CONTINUO_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int g = first + i * kBlockWarps;
      if (g >= num_groups) break;
      const QuantisedGroups::Range range = w.RangeOf(g);
      const auto begin = static_cast<int>(range.begin),
                 size = static_cast<int>(range.end - range.begin);
      float partial[kTiles][kRowTiles][4] = {};  // of a group, unless it has no scale to wait for
      CONTINUO_UNROLL
      for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
        uint32_t a[kRowTiles][2][2][4];  // of rows r and r + 8 of each tile
        CONTINUO_UNROLL
        for (int m = 0; m < kRowTiles; ++m) {
          CONTINUO_UNROLL
          for (int half = 0; half < 2; ++half) {
            const int at = chunk * kChunkElements;
            LoadRow<kAligned>(a[m][half], w, from[m][half] + begin + at,
                              has_row[m][half] ? size - at : 0, lane);
          }
        }
        CONTINUO_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          CONTINUO_UNROLL
          for (int block = 0; block < 2; ++block) {
            CONTINUO_UNROLL
            for (int step = 0; step < 4; step += 2) {
              const uint32_t* const column = reader.words[i][t][chunk];
              const uint32_t b0 = PairOfColumn(w, column, block, step),
                             b1 = PairOfColumn(w, column, block, step + 1);
              CONTINUO_UNROLL
              for (int m = 0; m < kRowTiles; ++m) {
                const auto& of = a[m];
                const uint32_t fragment[4] = {of[0][block][step], of[1][block][step],
                                              of[0][block][step + 1], of[1][block][step + 1]};
                if constexpr (kByGroup) {
                  MultiplyAdd<Number>(partial[t][m], fragment, b0, b1);
                } else {
                  MultiplyAdd<Number>(sums[m][t], fragment, b0, b1);
                }
              }
            }
          }
        }
      }
      if constexpr (kByGroup) {
        CONTINUO_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          const Chunk<float, 2> scales = ScalesOf(w, reader.first + reader.behind[t], g, q);
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
    int following = first + kBlockWarps * kAtOnce;
    if (following >= num_groups) {
      if (!next(reader)) break;
      following = warp;
    }
    reader.Load(w, following);
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
  const int64_t end_column = Min(columns, (first_tile + num_tiles) * kTileColumns);
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
