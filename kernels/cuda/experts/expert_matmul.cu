// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/expert_matmul.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/matmul/block_matmul.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kMatrices = 128;  // matrices that a launch's parameters hold
constexpr int kTiles = 4;       // column tiles of a block
constexpr int kBlockColumns = kTiles * kTileColumns;
static_assert(kMatrices <= kBlockThreads);

struct Matrices {
  const void* data[kMatrices];
};

// A block has a tile of an expert's rows. Tiles are numbered expert after expert.
struct Tile {
  int expert = -1;  // none
  int64_t begin = 0;
};

// Finds the block's tile of `rows` rows. Ends with a barrier.
__device__ Tile TileOf(const int32_t* expert_begin, int num_experts, int rows) {
  // Shared memory holds the number of tiles of each expert, then the tile that was found.
  auto* const tiles = reinterpret_cast<int32_t*>(SharedMemory());  // [kMatrices]
  int32_t* const found = tiles + kMatrices;                        // [2]
  const int expert = static_cast<int>(threadIdx.x);
  int32_t begin = 0, own = 0;
  if (expert < num_experts) {
    begin = expert_begin[expert];
    own = (expert_begin[expert + 1] - begin + rows - 1) / rows;
    tiles[expert] = own;
  }
  if (expert == 0) found[0] = -1;
  SyncBlock();
  if (expert < num_experts && own > 0) {
    int32_t before = 0;
    for (int e = 0; e < expert; ++e) before += tiles[e];
    const int32_t tile = static_cast<int32_t>(blockIdx.x) - before;
    if (tile >= 0 && tile < own) {
      found[0] = expert;
      found[1] = begin + tile * rows;
    }
  }
  SyncBlock();
  const Tile tile = {found[0], found[1]};
  SyncBlock();  // the memory is reused after this
  return tile;
}

// Blocks are [tiles, columns]. There are as many tiles as there may be at most, so few blocks have
// none.
template <int kRowTiles, bool kAligned, typename Matrix, typename T>
__global__ void CONTINUO_BLOCKS_OF(kBlockThreads, 1)
    ExpertMatMulKernel(T* out, const typename Matrix::Number* x, const int32_t* x_rows,
                       const int32_t* expert_begin, int num_experts,
                       const CONTINUO_READ_IN_PLACE Matrix like,
                       const CONTINUO_READ_IN_PLACE Matrices matrices, const float* biases,
                       int64_t columns) {
  WaitForPreviousKernel();
  const Tile tile = TileOf(expert_begin, num_experts, kRowTiles * kMmaRows);
  if (tile.expert < 0) return;
  const int64_t first_tile = static_cast<int64_t>(blockIdx.y) * kTiles;
  const float* const bias = biases == nullptr ? nullptr : biases + tile.expert * columns;
  BlockReader<Matrix, kTiles, kAligned> reader;
  reader.Go(like, matrices.data[tile.expert], first_tile, kTiles, columns);
  reader.Load(like, static_cast<int>(threadIdx.x) / kWarp);
  MultiplyBlock<kRowTiles, kTiles, kAligned>(
      x, x_rows, like, reader, tile.begin, expert_begin[tile.expert + 1], first_tile, kTiles,
      columns, [](const auto&) { return false; },
      [&](int64_t row, int64_t column, float sum) {
        Store(out + row * columns + column, bias == nullptr ? sum : sum + bias[column]);
      });
}

template <int kRowTiles, typename Matrix, typename T>
cudaError_t Multiply(T* out, const typename Matrix::Number* x, const int32_t* x_rows,
                     const int32_t* expert_begin, std::span<const Weight> experts,
                     const float* bias, const Matrix& like, int64_t num_entries, int64_t columns,
                     KernelStream stream) {
  const auto num_experts = static_cast<int64_t>(experts.size());
  bool aligned = Aligned(x, like.groups);
  for (const Weight& w : experts) aligned = aligned && Aligned(w.data.data, like.groups);
  const auto columns_of = static_cast<unsigned>((columns + kBlockColumns - 1) / kBlockColumns);
  const auto kernel = aligned ? ExpertMatMulKernel<kRowTiles, true, Matrix, T>
                              : ExpertMatMulKernel<kRowTiles, false, Matrix, T>;
  for (int64_t first = 0; first < num_experts; first += kMatrices) {
    const int64_t n = std::min<int64_t>(kMatrices, num_experts - first);
    Matrices matrices = {};
    for (int64_t i = 0; i < n; ++i) {
      matrices.data[i] = experts[static_cast<size_t>(first + i)].data.data;
    }
    // Each expert has at most one tile that is not full.
    const int64_t tiles = std::min(num_entries, n + num_entries / (kRowTiles * kMmaRows));
    const dim3 grid(static_cast<unsigned>(tiles), columns_of);
    const cudaError_t error =
        Launch("ExpertMatMul", kernel, grid, kBlockThreads, SharedOfBlock(kRowTiles, kTiles),
               stream, out, x, x_rows, expert_begin + first, static_cast<int>(n), like, matrices,
               bias == nullptr ? nullptr : bias + first * columns, columns);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

template <typename T, typename Number>
cudaError_t ExpertMatMul(T* out, const Number* x, const int32_t* x_rows,
                         const int32_t* expert_begin, std::span<const Weight> experts,
                         const float* bias, const QuantisedGroups& groups, int64_t num_entries,
                         int64_t columns, KernelStream stream) {
  // A tile of 32 rows reads a matrix half as often, and a row's bits are the same.
  const bool many = num_entries > kMmaRows * static_cast<int64_t>(experts.size());
  const auto multiply = [&](const auto& like) {
    return many ? Multiply<2>(out, x, x_rows, expert_begin, experts, bias, like, num_entries,
                              columns, stream)
                : Multiply<1>(out, x, x_rows, expert_begin, experts, bias, like, num_entries,
                              columns, stream);
  };
  if constexpr (std::is_same_v<Number, uint16_t>) {
    if (experts[0].format == WeightFormat::kInt8Panels) {
      return multiply(QuantisedMatrix<false>{nullptr, groups});
    }
    if (experts[0].format == WeightFormat::kInt4Panels) {
      return multiply(QuantisedMatrix<true>{nullptr, groups});
    }
  }
  return multiply(DenseMatrix<Number>{groups});
}

#define INSTANTIATE(T, Number)                                                                     \
  template cudaError_t ExpertMatMul(T*, const Number*, const int32_t*, const int32_t*,             \
                                    std::span<const Weight>, const float*, const QuantisedGroups&, \
                                    int64_t, int64_t, KernelStream)
INSTANTIATE(float, uint16_t);
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(float, Half);
INSTANTIATE(Half, Half);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
