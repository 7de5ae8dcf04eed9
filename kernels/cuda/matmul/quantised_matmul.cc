// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/quantised_matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/matmul/dequantise.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Up to this many rows SmallMMatMul reads the matrix as it is. With more rows it would read the
// matrix again for every 32 rows, and dequantise it each time. The limit has not been measured.
constexpr int64_t kMaxSmallMRows = 64;

}  // namespace

void QuantisedMatMul::Pack(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                           const float* rows, int64_t n) {
  static_assert(kPackedRows % kTileColumns == 0);
  const QuantisedGroups groups = GroupsOf(w.format, split_begin);
  const int64_t tile_bytes = QuantisedBytes(w.format, groups, kTileColumns);
  const int64_t num_tiles = (n + kTileColumns - 1) / kTileColumns;
  std::vector<uint8_t> packed(static_cast<size_t>(num_tiles * tile_bytes));
  context_.ParallelFor(static_cast<int>(num_tiles), [&](int tile) {
    const int64_t column = int64_t{tile} * kTileColumns;
    PackQuantised(w.format, groups, rows + column * groups.k(),
                  std::min<int64_t>(kTileColumns, n - column), packed.data() + tile * tile_bytes);
  });
  const Tensor to = {Data<uint8_t>(w.data) + first_row / kTileColumns * tile_bytes,
                     DType::kI8,
                     {num_tiles * tile_bytes, 1, 1}};
  context_.CopyIn(to, packed.data());
  context_.Keep(context_.Synchronize());  // `packed` ends here
}

int64_t QuantisedMatMul::SliceColumns(int64_t k) const {
  const auto bytes = static_cast<int64_t>(std::min(context_.scratch_capacity(), slice_bytes_));
  return bytes / (k * 2) / kTileColumns * kTileColumns;
}

bool QuantisedMatMul::IsUsedFor(Tensor x, const Product& product) const {
  return !deterministic_ && x.rows() > kMaxSmallMRows && product.bias.size() == 0 &&
         SliceColumns(x.cols()) > 0;
}

void QuantisedMatMul::Multiply(Tensor x, const Product& product,
                               std::span<const int64_t> split_begin) {
  const auto& [out, w, bias] = product;
  const int64_t rows = x.rows(), columns = out.cols(), k = x.cols();
  CONTINUO_CHECK(x.dtype == DType::kBF16 && IsF32OrBF16(out.dtype) && bias.size() == 0);
  const int64_t slice = SliceColumns(k);
  void* const scratch = context_.Scratch(static_cast<size_t>(slice * k * 2));
  for (int64_t first = 0; first < columns && context_.ok(); first += slice) {
    const int64_t n = std::min(slice, columns - first);
    const Tensor wide = {scratch, DType::kBF16, {n, k, 1}};
    context_.Enqueue("Dequantise", [&] {
      return WithQuantised(w, split_begin, [&](const auto& matrix) {
        return Dequantise(Data<uint16_t>(wide), matrix, first, n, context_.kernels());
      });
    });
    Tensor part = out;
    part.data = static_cast<char*>(out.data) + first * static_cast<int64_t>(SizeOf(out.dtype));
    part.shape = {rows, n, 1};
    context_.EnqueueStatus([&] {
      return cublaslt_.Run(part, x, wide, context_.stream().get(), /*out_stride=*/columns);
    });
  }
}

}  // namespace continuo::kernels::cuda
