// SPDX-License-Identifier: Apache-2.0
// Formats of weights; int8 and int4 matrices: packed on the host, multiplied as they are or, for
// many rows, as bf16.
#include <algorithm>
#include <vector>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/quantised_layout.h"
#include "kernels/cuda/matmul/quantised_matmul.h"
#include "kernels/cuda/runtime/fp8.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Up to so many rows a matrix is read as it is: it would have to be read again for more, and its
// numbers made of integers each time. Not measured on a device.
constexpr int64_t kFewRows = 64;

// call<kFour>(matrix).
template <typename Call>
auto WithMatrix(const Weight& w, std::span<const int64_t> piece_begin, Call call) {
  const auto* const tiles = Data<const uint8_t>(w.data);
  const QuantisedGroups groups = GroupsOf(w.format, piece_begin);
  return w.format == WeightFormat::kInt4Panels ? call(QuantisedMatrix<true>{tiles, groups})
                                               : call(QuantisedMatrix<false>{tiles, groups});
}

}  // namespace

bool CudaBackend::Computes(WeightType type) const {
  // cuBLASLt has scales by row for Hopper alone.
  return type != WeightType::kFp8 || (options_.device.major == 9 && options_.device.minor == 0);
}

WeightFormat CudaBackend::FormatOf(WeightType type) const {
  if (type == WeightType::kFp8) return WeightFormat::kFp8Rows;
  if (type == WeightType::kInt8) return WeightFormat::kInt8Panels;
  if (type == WeightType::kInt4) return WeightFormat::kInt4Panels;
  return WeightFormat::kDense;
}

size_t CudaBackend::WeightBytes(const Weight& w, std::span<const int64_t> piece_begin) const {
  if (w.format == WeightFormat::kDense) return w.data.bytes();
  if (w.data.size() == 0) return 0;
  if (w.format == WeightFormat::kFp8Rows) {
    return static_cast<size_t>(Fp8Layout{w.data.rows(), w.data.cols()}.Bytes());
  }
  return static_cast<size_t>(
      QuantisedBytes(w.format, GroupsOf(w.format, piece_begin), w.data.rows()));
}

void CudaBackend::PackRows(const Weight& w, std::span<const int64_t> piece_begin, int64_t first_row,
                           const float* rows, int64_t n) {
  static_assert(kPackedRows % kTileColumns == 0);
  CONTINUO_CHECK(w.format != WeightFormat::kDense && first_row % kPackedRows == 0);
  if (n == 0 || w.data.cols() == 0) return;
  if (w.format == WeightFormat::kFp8Rows) {
    PackFp8(w, first_row, rows, n);
    return;
  }
  const QuantisedGroups groups = GroupsOf(w.format, piece_begin);
  const int64_t tile_bytes = QuantisedBytes(w.format, groups, kTileColumns);
  const int64_t num_tiles = (n + kTileColumns - 1) / kTileColumns;
  std::vector<uint8_t> packed(static_cast<size_t>(num_tiles * tile_bytes));
  ParallelFor(static_cast<int>(num_tiles), [&](int tile) {
    const int64_t column = int64_t{tile} * kTileColumns;
    PackQuantised(w.format, groups, rows + column * groups.k(),
                  std::min<int64_t>(kTileColumns, n - column), packed.data() + tile * tile_bytes);
  });
  const Tensor to = {Data<uint8_t>(w.data) + first_row / kTileColumns * tile_bytes,
                     DType::kI8,
                     {num_tiles * tile_bytes, 1, 1}};
  CopyIn(to, packed.data());
  Keep(Synchronize());  // `packed` goes
}

// Columns of k elements that are widened at a time, whole tiles.
int64_t CudaBackend::SliceColumns(int64_t k) const {
  const auto bytes = static_cast<int64_t>(std::min(scratch_.bytes(), options_.slice_bytes));
  return bytes / (k * 2) / kTileColumns * kTileColumns;
}

bool CudaBackend::GoesWidened(Tensor x, const Product& product) const {
  return !options_.deterministic && x.rows() > kFewRows && product.bias.size() == 0 &&
         SliceColumns(x.cols()) > 0;
}

void CudaBackend::MultiplyWidened(Tensor x, const Product& product,
                                  std::span<const int64_t> piece_begin) {
  const auto& [out, w, bias] = product;
  const int64_t rows = x.rows(), columns = out.cols(), k = x.cols();
  CONTINUO_CHECK(x.dtype == DType::kBF16 && IsF32OrBF16(out.dtype));
  const int64_t slice = SliceColumns(k);
  for (int64_t first = 0; first < columns && failure_.ok(); first += slice) {
    const int64_t n = std::min(slice, columns - first);
    const Tensor wide = {scratch_.data(), DType::kBF16, {n, k, 1}};
    Enqueue("Dequantise", [&] {
      return WithMatrix(w, piece_begin, [&](const auto& matrix) {
        return Dequantise(Data<uint16_t>(wide), matrix, first, n, stream());
      });
    });
    Tensor part = out;
    part.data = static_cast<char*>(out.data) + first * static_cast<int64_t>(SizeOf(out.dtype));
    part.shape = {rows, n, 1};
    if (failure_.ok()) Keep(matmul_->Run(part, x, wide, stream(), /*out_stride=*/columns));
  }
}

void CudaBackend::EmbedQuantised(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                                 float scale) {
  const int64_t pieces[] = {0, out.cols()};
  Enqueue("EmbedQuantised", [&] {
    return WithF32OrBF16(out.dtype, [&]<typename T>() {
      return WithMatrix(table, pieces, [&](const auto& matrix) {
        return cuda::EmbedQuantised(Data<T>(out), matrix, Data<const int32_t>(token_ids),
                                    out.rows(), table.data.rows(), first_id, scale, stream());
      });
    });
  });
}

}  // namespace continuo::kernels::cuda
