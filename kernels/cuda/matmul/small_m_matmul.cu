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

// Bytes of its matrices that a block prefetches before it waits for x. The kernel before mostly has
// one row and takes 2 to 4 microseconds, in which memory delivers 9 to 18 MB on an H200. 264 blocks
// of 48 KiB are 13 MB, a quarter of the L2 cache, which may keep two copies of a line.
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
                       const typename TypesOf<Matrix>::Element* x, const float* x_scales,
                       const CONTINUO_READ_IN_PLACE Matrix like, int64_t rows, bool is_f32) {
  using Narrow = typename TypesOf<Matrix>::Narrow;
  int tile = static_cast<int>(blockIdx.y) * products.block_tiles;
  const auto end =
      static_cast<int>(Min(tile + products.block_tiles, products.first_tile[products.num]));
  Pass pass = PassAt<kPassTiles>(products, tile, end);
  if constexpr (kAligned) {
    // Weights are prefetched before the kernel waits for x, since no kernel writes them.
    const SmallMProduct& product = products.at[pass.product];
    PrefetchTiles(like, product.data, pass.first_tile, pass.num_tiles, product.columns,
                  kPrefetchedBytes);
  }
  WaitForPreviousKernel();
  BlockReader<Matrix, kPassTiles, kAligned> reader;
  const auto go_to = [&](auto& to, const Pass& at) {
    const SmallMProduct& product = products.at[at.product];
    to.Go(like, product.data, at.first_tile, at.num_tiles, product.columns);
  };
  go_to(reader, pass);
  reader.Load(like, static_cast<int>(threadIdx.x) / kWarp);
  while (true) {
    const Pass now = pass;
    const SmallMProduct& product = products.at[now.product];
    tile += now.num_tiles;
    const bool has_next = tile < end;
    if (has_next) pass = PassAt<kPassTiles>(products, tile, end);
    MultiplyBlock<kRowTiles, kPassTiles, kAligned>(
        x, nullptr, like, reader, static_cast<int64_t>(blockIdx.x) * kMmaRows * kRowTiles, rows,
        now.first_tile, now.num_tiles, product.columns,
        [&](auto& to) {
          if (has_next) go_to(to, pass);
          return has_next;
        },
        [&](int64_t row, int64_t column, float sum) {
          if constexpr (std::is_same_v<Matrix, E4M3Matrix>) {
            sum = sum * product.scales[column] * x_scales[row];
          }
          if (product.bias != nullptr) sum += product.bias[column];
          const int64_t at = row * product.columns + column;
          if (is_f32) {
            static_cast<float*>(product.out)[at] = sum;
          } else {
            Store(static_cast<Narrow*>(product.out) + at, sum);
          }
        });
    if (!has_next) return;
    SyncBlock();  // the sums in shared memory have been read
  }
}

template <int kRowTiles, typename Matrix>
cudaError_t Multiply(std::span<const SmallMProduct> all, const typename TypesOf<Matrix>::Element* x,
                     const float* x_scales, const Matrix& like, int64_t rows, bool is_f32,
                     int num_multiprocessors, KernelStream stream) {
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
                  stream, products, x, x_scales, like, rows, is_f32);
  };
  if constexpr (std::is_same_v<Matrix, E4M3Matrix>) {
    CONTINUO_CHECK(aligned);
  } else if (!aligned) {
    return launch(SmallMMatMulKernel<Matrix, kRowTiles, kTiles / 2, false>, kTiles / 2);
  }
  // int8 has no registers for all tiles beside those of a second block.
  constexpr bool kHasAll = kRowTiles > 1 || !std::is_same_v<Matrix, QuantisedMatrix<false>>;
  if constexpr (kHasAll) {
    if (block_tiles > kTiles / 2) {
      return launch(SmallMMatMulKernel<Matrix, kRowTiles, kTiles, true>, kTiles);
    }
  }
  return launch(SmallMMatMulKernel<Matrix, kRowTiles, kTiles / 2, true>, kTiles / 2);
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
               ? Multiply<1>(products, x, nullptr, like, rows, kIsF32, num_multiprocessors, stream)
               : Multiply<2>(products, x, nullptr, like, rows, kIsF32, num_multiprocessors, stream);
  };
  if constexpr (std::is_same_v<Number, uint16_t>) {
    if (format == WeightFormat::kInt8Panels) return multiply(QuantisedMatrix<false>{{}, groups});
    if (format == WeightFormat::kInt4Panels) return multiply(QuantisedMatrix<true>{{}, groups});
  }
  CONTINUO_CHECK(format == WeightFormat::kDense);
  return multiply(DenseMatrix<Number>{groups});
}

template <typename T>
cudaError_t SmallMMatMul(std::span<const SmallMProduct> products, const Fp8Rows& x,
                         const QuantisedGroups& groups, int64_t rows, int num_multiprocessors,
                         KernelStream stream) {
  CONTINUO_CHECK(!products.empty() && products.size() <= size_t{kMaxJoinedProducts} && rows > 0);
  constexpr bool kIsF32 = std::is_same_v<T, float>;
  const auto multiply = rows <= kMmaRows       ? Multiply<1, E4M3Matrix>
                        : rows <= 2 * kMmaRows ? Multiply<2, E4M3Matrix>
                                               : Multiply<4, E4M3Matrix>;
  return multiply(products, x.numbers, x.scales, {groups}, rows, kIsF32, num_multiprocessors,
                  stream);
}
template cudaError_t SmallMMatMul<float>(std::span<const SmallMProduct>, const Fp8Rows&,
                                         const QuantisedGroups&, int64_t, int, KernelStream);
template cudaError_t SmallMMatMul<uint16_t>(std::span<const SmallMProduct>, const Fp8Rows&,
                                            const QuantisedGroups&, int64_t, int, KernelStream);

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
