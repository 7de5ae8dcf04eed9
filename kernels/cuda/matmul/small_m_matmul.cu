// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/small_m_matmul.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/matmul/block_matmul.h"
#include "kernels/cuda/runtime/launch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

struct Products {
  SmallMProduct at[kMaxJoinedProducts];
  int first_block[kMaxJoinedProducts];  // the first block of each product's columns
  int num;
};

// Blocks are [rows, columns], and the columns of the products follow one another. Blocks of the
// same columns are neighbours and share the matrix in caches. Bound by reading it; two blocks on a
// multiprocessor double the loads in flight.
template <typename Matrix, int kRowTiles, bool kAligned, typename T>
__global__ void CONTINUO_BLOCKS_OF(kBlockThreads, kRowTiles == 1 ? 2 : 1)
    SmallMMatMulKernel(const CONTINUO_READ_IN_PLACE Products products,
                       const typename Matrix::Number* x, const CONTINUO_READ_IN_PLACE Matrix like,
                       int64_t rows) {
  const auto block = static_cast<int>(blockIdx.y);
  int i = 0;
  while (i + 1 < products.num && block >= products.first_block[i + 1]) ++i;
  const SmallMProduct& product = products.at[i];
  const int64_t first_column =
      static_cast<int64_t>(block - products.first_block[i]) * kBlockColumns;
  // Weights are prefetched before the kernel waits for x, since no kernel writes them.
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < like.groups.num_groups()) {
    PrefetchColumns(like, product.data, warp, first_column, product.columns,
                    static_cast<int>(threadIdx.x) % kWarp);
  }
  WaitForPreviousKernel();
  MultiplyBlock<kRowTiles, kAligned>(
      static_cast<T*>(product.out), x, nullptr, like, product.data, product.bias,
      static_cast<int64_t>(blockIdx.x) * kMmaRows * kRowTiles, rows, first_column, product.columns);
}

template <int kRowTiles, typename T, typename Matrix>
cudaError_t Multiply(std::span<const SmallMProduct> all, const typename Matrix::Number* x,
                     const Matrix& like, int64_t rows, KernelStream stream) {
  constexpr int kBlockRows = kMmaRows * kRowTiles;
  Products products = {};
  int64_t blocks = 0;
  bool aligned = Aligned(x, like.groups);
  for (const SmallMProduct& product : all) {
    products.first_block[products.num] = static_cast<int>(blocks);
    products.at[products.num++] = product;
    blocks += (product.columns + kBlockColumns - 1) / kBlockColumns;
    aligned = aligned && IsAligned(product.data);
  }
  const dim3 grid(static_cast<unsigned>((rows + kBlockRows - 1) / kBlockRows),
                  static_cast<unsigned>(blocks));
  return Launch("SmallMMatMul",
                aligned ? SmallMMatMulKernel<Matrix, kRowTiles, true, T>
                        : SmallMMatMulKernel<Matrix, kRowTiles, false, T>,
                grid, kBlockThreads, SharedOfBlock(kRowTiles), stream, products, x, like, rows);
}

}  // namespace

template <typename T, typename Number>
cudaError_t SmallMMatMul(std::span<const SmallMProduct> products, WeightFormat format,
                         const Number* x, const QuantisedGroups& groups, int64_t rows,
                         KernelStream stream) {
  CONTINUO_CHECK(!products.empty() && products.size() <= size_t{kMaxJoinedProducts} && rows > 0);
  const auto multiply = [&](const auto& like) {
    return rows <= kMmaRows ? Multiply<1, T>(products, x, like, rows, stream)
                            : Multiply<2, T>(products, x, like, rows, stream);
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
                                               KernelStream)
INSTANTIATE(float, uint16_t);
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(float, Half);
INSTANTIATE(Half, Half);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
