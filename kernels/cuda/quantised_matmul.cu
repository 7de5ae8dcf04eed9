// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cuda/chunk.h"
#include "kernels/cuda/launch.h"

namespace continuo::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kColumnTiles = 4;  // of a block
constexpr int kBlockColumns = kColumnTiles * kTileColumns;
constexpr int kStride = kBlockColumns + 8;  // of sums in shared memory: rows are in other banks
constexpr int kMmaRows = 16;

// The bits of two bf16 whose values are low - kZero and high - kZero; of at most 8 bits, so exact.
// The float 2^23 + n has n in its low bits, which costs less than a conversion.
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

// Elements 2 i and 2 i + 1 of the eight that a lane has of each block of 32, from its words of a
// chunk.
template <bool kFour>
__device__ inline uint32_t PairAt(const uint32_t* words, int block, int i) {
  constexpr int kZero = QuantisedFormat<kFour>::kZero;
  constexpr uint32_t kMask = kFour ? 15 : 255;
  constexpr int kBits = kFour ? 4 : 8, kWordElements = 32 / kBits;
  const int element = block * 8 + 2 * i;
  const uint32_t word = words[element / kWordElements] >> (element % kWordElements * kBits);
  return PairOf<kZero>(word & kMask, word >> kBits & kMask);
}

// Eight bf16 as four pairs, zeros from the n-th on. Where kAligned they lie at 16 bytes, and n is 8
// or more, or not above 0.
template <bool kAligned>
__device__ inline void LoadEight(uint32_t (&pairs)[4], const uint16_t* from, int64_t n) {
  if constexpr (kAligned) {
    Chunk<uint32_t, 4> chunk = {};
    if (n > 0) chunk = LoadChunk<4>(reinterpret_cast<const uint32_t*>(from));
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = chunk.at[i];
  } else {
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = 2 * i < n ? from[2 * i] : 0, high = 2 * i + 1 < n ? from[2 * i + 1] : 0;
      pairs[i] = low | high << 16;
    }
  }
}

// A block: kBlockColumns columns, kMmaRows * kRowTiles rows; its warps take the groups of k in
// turns and their sums are added in the warps' order, so the order does not depend on the rows.
// Blocks of the same columns are neighbours and share the matrix in caches, from which x comes as
// well, once for each kBlockColumns: with 32 rows and int8 about twice the matrix's bytes. Elements
// are integers in bf16, which is exact, and a group's sum is scaled once.
template <bool kFour, int kRowTiles, bool kAligned, typename T>
__global__ void CONTINUO_BLOCK_OF(kThreads)
    QuantisedMatMulKernel(T* out, const uint16_t* x,
                          const CONTINUO_READ_IN_PLACE QuantisedMatrix<kFour> w, const float* bias,
                          int64_t rows, int64_t columns) {
  using Format = QuantisedFormat<kFour>;
  constexpr int kBlockRows = kMmaRows * kRowTiles;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int r = lane / 4, q = lane % 4;
  const int64_t first_column = static_cast<int64_t>(blockIdx.y) * kBlockColumns;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kBlockRows;
  const int64_t k = w.groups.k();
  float sums[kRowTiles][kColumnTiles][4] = {};
  for (int g = warp; g < w.groups.num_groups(); g += kWarps) {
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
            const int64_t row = first_row + tile * kMmaRows + half * 8 + r;
            LoadEight<kAligned>(a[chunk][block][tile][half], x + row * k + at,
                                row < rows ? range.end - at : 0);
          }
        }
      }
    }
    CONTINUO_UNROLL
    for (int t = 0; t < kColumnTiles; ++t) {
      // Beyond the last column the last tile is read again, and its sums are not kept.
      const int64_t number = Min(first_column / kTileColumns + t, (columns - 1) / kTileColumns);
      const uint8_t* const tile = w.Tile(number);
      const uint8_t* const group = tile + w.ScaleBytes() + int64_t{g} * Format::kGroupBytes;
      float partial[kRowTiles][4] = {};
      CONTINUO_UNROLL
      for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
        constexpr int kWords = Format::kLaneBytes / 4;
        const Chunk<uint32_t, kWords> words = LoadChunk<kWords>(reinterpret_cast<const uint32_t*>(
            group + (chunk * Format::kLanes + lane) * Format::kLaneBytes));
        CONTINUO_UNROLL
        for (int block = 0; block < 2; ++block) {
          CONTINUO_UNROLL
          for (int step = 0; step < 4; step += 2) {
            const uint32_t b0 = PairAt<kFour>(words.at, block, step);
            const uint32_t b1 = PairAt<kFour>(words.at, block, step + 1);
            CONTINUO_UNROLL
            for (int m = 0; m < kRowTiles; ++m) {
              const auto& rows_of = a[chunk][block][m];
              const uint32_t fragment[4] = {rows_of[0][step], rows_of[1][step],
                                            rows_of[0][step + 1], rows_of[1][step + 1]};
              MultiplyAdd(partial[m], fragment, b0, b1);
            }
          }
        }
      }
      const auto scales =
          LoadChunk<2>(reinterpret_cast<const float*>(tile) + g * kTileColumns + 2 * q);
      CONTINUO_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        CONTINUO_UNROLL
        for (int j = 0; j < 4; ++j) {
          sums[m][t][j] = fmaf(partial[m][j], scales.at[j % 2], sums[m][t][j]);
        }
      }
    }
  }

  float* const all = reinterpret_cast<float*>(SharedMemory());  // [kWarps, rows, kStride]
  CONTINUO_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    CONTINUO_UNROLL
    for (int t = 0; t < kColumnTiles; ++t) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = m * kMmaRows + half * 8 + r, column = t * kTileColumns + 2 * q;
        StoreChunk(all + (warp * kBlockRows + row) * kStride + column,
                   Chunk<float, 2>{{sums[m][t][2 * half], sums[m][t][2 * half + 1]}});
      }
    }
  }
  SyncBlock();
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kBlockColumns; i += kThreads) {
    const int64_t row = first_row + i / kBlockColumns, column = first_column + i % kBlockColumns;
    if (row >= rows || column >= columns) continue;
    const float* const first = all + i / kBlockColumns * kStride + i % kBlockColumns;
    float sum = first[0];
    for (int other = 1; other < kWarps; ++other) sum += first[other * kBlockRows * kStride];
    if (bias != nullptr) sum += bias[column];
    Store(out + row * columns + column, sum);
  }
}

// A warp a group of a tile's columns, of which a lane writes eight elements side by side. Bound by
// writing.
template <bool kFour>
__global__ void DequantiseKernel(uint16_t* out,
                                 const CONTINUO_READ_IN_PLACE QuantisedMatrix<kFour> w,
                                 int64_t first_tile, int64_t n, bool aligned) {
  using Format = QuantisedFormat<kFour>;
  constexpr int kWords = Format::kLaneBytes / 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, q = lane % 4;
  const int64_t num_groups = w.groups.num_groups(), k = w.groups.k();
  const int64_t num_items = (n + kTileColumns - 1) / kTileColumns * num_groups;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  for (int64_t item = begin; item < num_items; item += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t number = item / num_groups;
    const int g = static_cast<int>(item % num_groups);
    const QuantisedGroups::Range range = w.RangeOf(g);
    const uint8_t* const tile = w.Tile(first_tile + number);
    const float scale = reinterpret_cast<const float*>(tile)[g * kTileColumns + lane / 4];
    const int64_t column = number * kTileColumns + lane / 4;
    if (column >= n) continue;
    CONTINUO_UNROLL
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
      const Chunk<uint32_t, kWords> words = LoadChunk<kWords>(reinterpret_cast<const uint32_t*>(
          tile + w.ScaleBytes() + int64_t{g} * Format::kGroupBytes +
          (chunk * Format::kLanes + lane) * Format::kLaneBytes));
      CONTINUO_UNROLL
      for (int block = 0; block < 2; ++block) {
        const int64_t at = range.begin + chunk * kChunkElements + block * 32 + q * 8;
        Chunk<uint16_t, 8> values;
        CONTINUO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = PairAt<kFour>(words.at, block, i);
          Store(&values.at[2 * i], Widen(static_cast<uint16_t>(pair)) * scale);
          Store(&values.at[2 * i + 1], Widen(static_cast<uint16_t>(pair >> 16)) * scale);
        }
        uint16_t* const to = out + column * k + at;
        if (aligned && at + 8 <= range.end) {
          StoreChunk(to, values);
        } else {
          CONTINUO_UNROLL
          for (int i = 0; i < 8; ++i) {
            if (at + i < range.end) to[i] = values.at[i];
          }
        }
      }
    }
  }
}

// A block a row.
template <bool kFour, typename T>
__global__ void EmbedQuantisedKernel(T* out,
                                     const CONTINUO_READ_IN_PLACE QuantisedMatrix<kFour> table,
                                     const int32_t* ids, int64_t rows, int64_t table_rows,
                                     int first_id, float scale) {
  const int64_t cols = table.groups.k();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t id = static_cast<int64_t>(ids[row]) - first_id;
    const bool mine = id >= 0 && id < table_rows;
    for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) {
      Store(out + row * cols + i, mine ? table.ValueOf(id, i) * scale : -0.0f);
    }
  }
}

// Whether rows of k bf16, and the pieces of each, begin at 16 bytes.
bool Aligned(const uint16_t* data, const QuantisedGroups& groups) {
  bool aligned = IsAligned(data) && groups.k() % 8 == 0;
  for (int i = 0; i < groups.num; ++i) aligned = aligned && groups.begin[i] % 8 == 0;
  return aligned;
}

template <bool kFour, int kRowTiles, typename T>
cudaError_t Multiply(T* out, const uint16_t* x, const QuantisedMatrix<kFour>& w, const float* bias,
                     int64_t rows, int64_t columns, cudaStream_t stream) {
  constexpr int kBlockRows = kMmaRows * kRowTiles;
  const dim3 grid(static_cast<unsigned>((rows + kBlockRows - 1) / kBlockRows),
                  static_cast<unsigned>((columns + kBlockColumns - 1) / kBlockColumns));
  constexpr size_t kShared = size_t{kWarps} * kBlockRows * kStride * sizeof(float);
  const auto kernel = Aligned(x, w.groups) ? QuantisedMatMulKernel<kFour, kRowTiles, true, T>
                                           : QuantisedMatMulKernel<kFour, kRowTiles, false, T>;
  return Launch("QuantisedMatMul", kernel, grid, kThreads, kShared, stream, out, x, w, bias, rows,
                columns);
}

}  // namespace

template <bool kFour, typename T>
cudaError_t QuantisedMatMul(T* out, const uint16_t* x, const QuantisedMatrix<kFour>& w,
                            const float* bias, int64_t rows, int64_t columns, cudaStream_t stream) {
  return rows <= kMmaRows ? Multiply<kFour, 1, T>(out, x, w, bias, rows, columns, stream)
                          : Multiply<kFour, 2, T>(out, x, w, bias, rows, columns, stream);
}

template <bool kFour>
cudaError_t Dequantise(uint16_t* out, const QuantisedMatrix<kFour>& w, int64_t first, int64_t n,
                       cudaStream_t stream) {
  const int64_t items = (n + kTileColumns - 1) / kTileColumns * w.groups.num_groups();
  return Launch("Dequantise", DequantiseKernel<kFour>, BlocksFor(items, kWarps), kThreads, 0,
                stream, out, w, first / kTileColumns, n, Aligned(out, w.groups));
}

template <bool kFour, typename T>
cudaError_t EmbedQuantised(T* out, const QuantisedMatrix<kFour>& table, const int32_t* ids,
                           int64_t rows, int64_t table_rows, int first_id, float scale,
                           cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20));
  return Launch("EmbedQuantised", EmbedQuantisedKernel<kFour, T>, blocks, kThreads, 0, stream, out,
                table, ids, rows, table_rows, first_id, scale);
}

template cudaError_t Dequantise(uint16_t*, const QuantisedMatrix<false>&, int64_t, int64_t,
                                cudaStream_t);
template cudaError_t Dequantise(uint16_t*, const QuantisedMatrix<true>&, int64_t, int64_t,
                                cudaStream_t);
#define CONTINUO_INSTANTIATE(kFour, T)                                                            \
  template cudaError_t QuantisedMatMul(T*, const uint16_t*, const QuantisedMatrix<kFour>&,        \
                                       const float*, int64_t, int64_t, cudaStream_t);             \
  template cudaError_t EmbedQuantised(T*, const QuantisedMatrix<kFour>&, const int32_t*, int64_t, \
                                      int64_t, int, float, cudaStream_t);
CONTINUO_INSTANTIATE(false, float)
CONTINUO_INSTANTIATE(false, uint16_t)
CONTINUO_INSTANTIATE(true, float)
CONTINUO_INSTANTIATE(true, uint16_t)
#undef CONTINUO_INSTANTIATE

}  // namespace continuo::cuda
