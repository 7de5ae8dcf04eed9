// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/small_m_matmul.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/matmul/block_matmul.h"
#include "kernels/cuda/runtime/launch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Number of blocks that a multiprocessor has registers for.
constexpr int BlocksAtOnce(int row_tiles, bool aligned) {
  return row_tiles == 1 && aligned ? 2 : 1;
}

// Bytes of its matrices that a block prefetches before it waits for x, and bytes of its next
// columns while it multiplies. The kernel before mostly has one row and takes 2 to 4 microseconds,
// in which memory delivers 9 to 18 MB on an H200. 264 blocks of 48 KiB are 13 MB, a quarter of the
// L2 cache, which may keep two copies of a line.
constexpr int kPrefetchedBytes = 48 << 10;
// A matrix's columns are taken this many tiles at a time, or half as many where a block has no
// more: it then has twice as many groups of k under way.
constexpr int kTiles = 4;

// The tiles of the products follow one another, and so do the blocks' shares of them.
struct Products {
  SmallMProduct at[kMaxJoinedProducts];
  int first_tile[kMaxJoinedProducts + 1];  // of each product, and the end
  int num;
  int block_tiles;  // tiles of a block
};

// Tiles of one product that a block takes at a time.
struct Pass {
  int product, first_tile, num_tiles;  // tiles are numbered in the product
};

// Returns the pass that begins at a tile; `end` is the end of the block's tiles. The passes over a
// block's tiles of a product are equal but for one tile.
template <int kPassTiles>
__device__ Pass PassAt(const Products& products, int tile, int end) {
  int i = 0;
  while (tile >= products.first_tile[i + 1]) ++i;
  const int left = static_cast<int>(Min(end, products.first_tile[i + 1])) - tile;
  const int passes = (left + kPassTiles - 1) / kPassTiles;
  return {i, tile - products.first_tile[i], (left + passes - 1) / passes};
}

// Blocks are [rows, tiles]. Blocks of the same tiles are neighbours and share the matrix in caches.
// There are no more of them than are resident at once, so that all of them read memory until the
// end. Bound by reading the matrices; two blocks on a multiprocessor double the loads in flight.
template <typename Matrix, int kRowTiles, int kPassTiles, bool kAligned>
__global__ void CONTINUO_BLOCKS_OF(kBlockThreads, BlocksAtOnce(kRowTiles, kAligned))
    SmallMMatMulKernel(const CONTINUO_READ_IN_PLACE Products products,
                       const typename Matrix::Number* x, const CONTINUO_READ_IN_PLACE Matrix like,
                       int64_t rows, bool is_f32) {
  using Number = typename Matrix::Number;
  const auto prefetch = [&](const Pass& pass) {
    const SmallMProduct& product = products.at[pass.product];
    if (kAligned) {
      PrefetchTiles(like, product.data, pass.first_tile, pass.num_tiles, product.columns,
                    kPrefetchedBytes);
    }
  };
  int tile = static_cast<int>(blockIdx.y) * products.block_tiles;
  const auto end =
      static_cast<int>(Min(tile + products.block_tiles, products.first_tile[products.num]));
  Pass pass = PassAt<kPassTiles>(products, tile, end);
  // Weights are prefetched before the kernel waits for x, since no kernel writes them.
  prefetch(pass);
  WaitForPreviousKernel();
  while (true) {
    const SmallMProduct& product = products.at[pass.product];
    const Pass now = pass;
    tile += pass.num_tiles;
    if (tile < end) {
      pass = PassAt<kPassTiles>(products, tile, end);
      prefetch(pass);
    }
    MultiplyBlock<kRowTiles, kPassTiles, kAligned>(
        x, nullptr, like, product.data, static_cast<int64_t>(blockIdx.x) * kMmaRows * kRowTiles,
        rows, now.first_tile, now.num_tiles, product.columns,
        [&](int64_t row, int64_t column, float sum) {
          if (product.bias != nullptr) sum += product.bias[column];
          const int64_t at = row * product.columns + column;
          if (is_f32) {
            static_cast<float*>(product.out)[at] = sum;
          } else {
            Store(static_cast<Number*>(product.out) + at, sum);
          }
        });
    if (tile >= end) return;
    SyncBlock();  // the sums in shared memory have been read
  }
}

template <int kRowTiles, typename Matrix>
cudaError_t Multiply(std::span<const SmallMProduct> all, const typename Matrix::Number* x,
                     const Matrix& like, int64_t rows, bool is_f32, int num_multiprocessors,
                     KernelStream stream) {
  constexpr int kBlockRows = kMmaRows * kRowTiles;
  Products products = {};
  int64_t tiles = 0;
  bool aligned = Aligned(x, like.groups);
  for (const SmallMProduct& product : all) {
    products.at[products.num++] = product;
    tiles += (product.columns + kTileColumns - 1) / kTileColumns;
    products.first_tile[products.num] = static_cast<int>(tiles);
    aligned = aligned && IsAligned(product.data);
  }
  const int64_t row_blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t at_once = int64_t{num_multiprocessors} * BlocksAtOnce(kRowTiles, aligned);
  const int64_t block_tiles = (tiles * row_blocks + at_once - 1) / at_once;
  products.block_tiles = static_cast<int>(block_tiles);
  const dim3 grid(static_cast<unsigned>(row_blocks),
                  static_cast<unsigned>((tiles + block_tiles - 1) / block_tiles));
  const auto launch = [&](auto kernel, int pass_tiles) {
    return Launch("SmallMMatMul", kernel, grid, kBlockThreads, SharedOfBlock(kRowTiles, pass_tiles),
                  stream, products, x, like, rows, is_f32);
  };
  if (!aligned) return launch(SmallMMatMulKernel<Matrix, kRowTiles, kTiles / 2, false>, kTiles / 2);
  return block_tiles <= kTiles / 2
             ? launch(SmallMMatMulKernel<Matrix, kRowTiles, kTiles / 2, true>, kTiles / 2)
             : launch(SmallMMatMulKernel<Matrix, kRowTiles, kTiles, true>, kTiles);
}

}  // namespace

template <typename T, typename Number>
cudaError_t SmallMMatMul(std::span<const SmallMProduct> products, WeightFormat format,
                         const Number* x, const QuantisedGroups& groups, int64_t rows,
                         int num_multiprocessors, KernelStream stream) {
  CONTINUO_CHECK(!products.empty() && products.size() <= size_t{kMaxJoinedProducts} && rows > 0);
  const auto multiply = [&](const auto& like) {
    constexpr bool kIsF32 = std::is_same_v<T, float>;
    return rows <= kMmaRows
               ? Multiply<1>(products, x, like, rows, kIsF32, num_multiprocessors, stream)
               : Multiply<2>(products, x, like, rows, kIsF32, num_multiprocessors, stream);
  };
  if constexpr (std::is_same_v<Number, uint16_t>) {
    if (format == WeightFormat::kInt8Panels) return multiply(QuantisedMatrix<false>{{}, groups});
    if (format == WeightFormat::kInt4Panels) return multiply(QuantisedMatrix<true>{{}, groups});
  }
  CONTINUO_CHECK(format == WeightFormat::kDense);
  return multiply(DenseMatrix<Number>{groups});
}

#define INSTANTIATE(T, Number)                                                                 \
  template cudaError_t SmallMMatMul<T, Number>(std::span<const SmallMProduct>, WeightFormat,   \
                                               const Number*, const QuantisedGroups&, int64_t, \
                                               int, KernelStream)
INSTANTIATE(float, uint16_t);
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(float, Half);
INSTANTIATE(Half, Half);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
