// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/expert_matmul.h"

#include <algorithm>

#include "kernels/cuda/block_matmul.h"
#include "kernels/cuda/launch.h"

namespace continuo::cuda {
namespace {

constexpr int kMatrices = 128;  // that a launch's parameters hold

struct Matrices {
  const void* data[kMatrices];
};

// Blocks [rows, columns, experts]: those of an expert take its tiles of rows in turns, and end at
// once where it has none.
template <bool kAligned, typename Matrix, typename T>
__global__ void CONTINUO_LARGE_BLOCK_OF(kBlockThreads)
    ExpertMatMulKernel(T* out, const uint16_t* x, const int32_t* x_rows,
                       const int32_t* expert_begin, const CONTINUO_READ_IN_PLACE Matrix like,
                       const CONTINUO_READ_IN_PLACE Matrices matrices, int64_t columns) {
  const int64_t begin = expert_begin[blockIdx.z], end = expert_begin[blockIdx.z + 1];
  const void* const data = matrices.data[blockIdx.z];
  const int64_t step = int64_t{gridDim.x} * kMmaRows;
  for (int64_t row = begin + int64_t{blockIdx.x} * kMmaRows; row < end; row += step) {
    MultiplyBlock<1, kAligned>(out, x, x_rows, like, data, nullptr, row, end,
                               static_cast<int64_t>(blockIdx.y) * kBlockColumns, columns);
    SyncBlock();  // before its shared memory is filled again
  }
}

template <typename Matrix, typename T>
cudaError_t Multiply(T* out, const uint16_t* x, const int32_t* x_rows, const int32_t* expert_begin,
                     std::span<const Weight> experts, const Matrix& like, int64_t num_entries,
                     int64_t columns, cudaStream_t stream) {
  const auto num_experts = static_cast<int64_t>(experts.size());
  bool aligned = Aligned(x, like.groups);
  for (const Weight& w : experts) aligned = aligned && Aligned(w.data.data, like.groups);
  // As many blocks as the rows of an expert that has twice its share want.
  const int64_t tiles = 2 * num_entries / num_experts / kMmaRows + 1;
  const auto columns_of = static_cast<unsigned>((columns + kBlockColumns - 1) / kBlockColumns);
  const auto kernel =
      aligned ? ExpertMatMulKernel<true, Matrix, T> : ExpertMatMulKernel<false, Matrix, T>;
  for (int64_t first = 0; first < num_experts; first += kMatrices) {
    const int64_t n = std::min<int64_t>(kMatrices, num_experts - first);
    Matrices matrices = {};
    for (int64_t i = 0; i < n; ++i) {
      matrices.data[i] = experts[static_cast<size_t>(first + i)].data.data;
    }
    const dim3 grid(static_cast<unsigned>(tiles), columns_of, static_cast<unsigned>(n));
    const cudaError_t error =
        Launch("ExpertMatMul", kernel, grid, kBlockThreads, SharedOfBlock(1), stream, out, x,
               x_rows, expert_begin + first, like, matrices, columns);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

QuantisedGroups DenseGroups(int64_t k) {
  QuantisedGroups groups;
  groups.num = 1;
  groups.begin[1] = k;
  groups.first[1] =
      static_cast<int>((k + DenseMatrix::Format::kGroup - 1) / DenseMatrix::Format::kGroup);
  return groups;
}

template <typename T>
cudaError_t ExpertMatMul(T* out, const uint16_t* x, const int32_t* x_rows,
                         const int32_t* expert_begin, std::span<const Weight> experts,
                         const QuantisedGroups& groups, int64_t num_entries, int64_t columns,
                         cudaStream_t stream) {
  const auto multiply = [&](const auto& like) {
    return Multiply(out, x, x_rows, expert_begin, experts, like, num_entries, columns, stream);
  };
  switch (experts[0].format) {
    case WeightFormat::kInt8Panels:
      return multiply(QuantisedMatrix<false>{nullptr, groups});
    case WeightFormat::kInt4Panels:
      return multiply(QuantisedMatrix<true>{nullptr, groups});
    default:
      return multiply(DenseMatrix{groups, columns});
  }
}

template cudaError_t ExpertMatMul(float*, const uint16_t*, const int32_t*, const int32_t*,
                                  std::span<const Weight>, const QuantisedGroups&, int64_t, int64_t,
                                  cudaStream_t);
template cudaError_t ExpertMatMul(uint16_t*, const uint16_t*, const int32_t*, const int32_t*,
                                  std::span<const Weight>, const QuantisedGroups&, int64_t, int64_t,
                                  cudaStream_t);

}  // namespace continuo::cuda
