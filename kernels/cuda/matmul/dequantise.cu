// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/dequantise.h"

#include "kernels/cuda/matmul/block_matmul.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

// A warp takes one group of a tile's columns, and a lane writes eight neighbouring elements of it.
// Bound by writing.
template <bool kFour>
__global__ void DequantiseKernel(uint16_t* out,
                                 const CONTINUO_READ_IN_PLACE QuantisedMatrix<kFour> w,
                                 int64_t first_tile, int64_t n, bool aligned) {
  WaitForPreviousKernel();
  using Format = QuantisedFormat<kFour>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, q = lane % 4;
  const int64_t num_groups = w.groups.num_groups(), k = w.groups.k();
  const int64_t num_items = (n + kTileColumns - 1) / kTileColumns * num_groups;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kBlockWarps + threadIdx.x / kWarp;
  for (int64_t item = begin; item < num_items;
       item += static_cast<int64_t>(gridDim.x) * kBlockWarps) {
    const int64_t number = item / num_groups;
    const int g = static_cast<int>(item % num_groups);
    const QuantisedGroups::Range range = w.RangeOf(g);
    const uint8_t* const tile = w.Tile(first_tile + number);
    const float scale = reinterpret_cast<const float*>(tile)[g * kTileColumns + lane / 4];
    const int64_t column = number * kTileColumns + lane / 4;
    if (column >= n) continue;
    CONTINUO_UNROLL
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
      uint32_t words[kLaneWords<QuantisedMatrix<kFour>>];
      LoadColumn<true>(words, w, tile, g, chunk, lane);
      CONTINUO_UNROLL
      for (int block = 0; block < 2; ++block) {
        const int64_t at = range.begin + chunk * kChunkElements + block * 32 + q * 8;
        Chunk<uint16_t, 8> values;
        CONTINUO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = PairOfColumn(w, words, block, i);
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

}  // namespace

template <bool kFour>
cudaError_t Dequantise(uint16_t* out, const QuantisedMatrix<kFour>& w, int64_t first, int64_t n,
                       KernelStream stream) {
  const int64_t items = (n + kTileColumns - 1) / kTileColumns * w.groups.num_groups();
  return Launch("Dequantise", DequantiseKernel<kFour>, BlocksFor(items, kBlockWarps), kBlockThreads,
                0, stream, out, w, first / kTileColumns, n, Aligned(out, w.groups));
}

template cudaError_t Dequantise(uint16_t*, const QuantisedMatrix<false>&, int64_t, int64_t,
                                KernelStream);
template cudaError_t Dequantise(uint16_t*, const QuantisedMatrix<true>&, int64_t, int64_t,
                                KernelStream);

}  // namespace continuo::kernels::cuda
