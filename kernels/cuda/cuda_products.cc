// SPDX-License-Identifier: Apache-2.0
// Products with dense matrices, and which way any product goes.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/few_rows_matmul.h"
#include "kernels/cuda/ops/row_ops.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Up to so many rows a dense matrix may be multiplied by a kernel of ours: one row tile.
constexpr int64_t kFewDenseRows = 16;

bool AreAll(std::span<const Product> products, auto predicate) {
  return !products.empty() && std::all_of(products.begin(), products.end(), predicate);
}

void CheckProduct(Tensor x, const Product& product) {
  const int64_t columns = product.out.cols();
  CONTINUO_CHECK(product.w.data.rows() == columns && x.rows() == product.out.rows());
  CONTINUO_CHECK(columns == 0 || product.w.data.cols() == x.cols());
  CONTINUO_CHECK(product.bias.size() == 0 ||
                 (product.bias.dtype == DType::kF32 && product.bias.size() == columns));
}

}  // namespace

void CudaBackend::MatMul(Tensor out, Tensor x, const Weight& w, Tensor bias) {
  const int64_t pieces[] = {0, x.cols()};
  const Product product[] = {{out, w, bias}};
  Multiply(x, product, pieces, /*alike=*/true);
}

void CudaBackend::MatMuls(Tensor x, std::span<const Product> products) {
  const int64_t pieces[] = {0, x.cols()};
  Multiply(x, products, pieces, /*alike=*/false);
}

void CudaBackend::MatMulPieces(Tensor out, Tensor x, const Weight& w,
                               std::span<const int64_t> piece_begin) {
  CONTINUO_CHECK(out.dtype == DType::kF32 && piece_begin.back() == x.cols());
  const Product product[] = {{out, w, Tensor()}};
  Multiply(x, product, piece_begin, /*alike=*/false);
}

void CudaBackend::Multiply(Tensor x, std::span<const Product> products,
                           std::span<const int64_t> piece_begin, bool alike) {
  for (const Product& product : products) CheckProduct(x, product);
  if (!failure_.ok()) return;
  const auto is_some = [](const Product& p) { return p.out.size() > 0; };
  if (x.cols() > 0 && AreAll(products, is_some)) {
    const auto is_fp8 = [](const Product& p) { return p.w.format == WeightFormat::kFp8Rows; };
    if (AreAll(products, is_fp8)) {
      MultiplyFp8(x, products);
      return;
    }
    known_fp8_ = {};
    if (products.size() <= size_t{kMostJoined} && GoByFewRows(x, products, alike)) {
      MultiplyFewRows(x, products, piece_begin);
      return;
    }
  }
  for (const Product& product : products) {
    if (is_some(product)) MultiplyOne(x, product, piece_begin, alike);
  }
}

void CudaBackend::MultiplyOne(Tensor x, const Product& product,
                              std::span<const int64_t> piece_begin, bool alike) {
  const std::span<const Product> alone(&product, 1);
  if (x.cols() == 0) {
    CONTINUO_CHECK(product.bias.size() == 0);
    Enqueue("cudaMemsetAsync",
            [&] { return cudaMemsetAsync(product.out.data, 0, product.out.bytes(), stream()); });
  } else if (product.w.format == WeightFormat::kFp8Rows) {
    MultiplyFp8(x, alone);
  } else if (GoByFewRows(x, alone, alike)) {
    MultiplyFewRows(x, alone, piece_begin);
  } else if (product.w.format != WeightFormat::kDense) {
    MultiplyWidened(x, product, piece_begin);
  } else {
    MultiplyDense(x, product);
  }
}

// What is read as it lies: quantised matrices while their rows are few, dense ones of few rows
// where that takes less time than cuBLASLt.
bool CudaBackend::GoByFewRows(Tensor x, std::span<const Product> products, bool alike) {
  const Product& first = products[0];
  const auto is_alike = [&](const Product& p) {
    return p.w.format == first.w.format && p.out.dtype == first.out.dtype;
  };
  if (!AreAll(products, is_alike)) return false;
  if (first.w.format != WeightFormat::kDense) {
    return AreAll(products, [&](const Product& p) { return !GoesWidened(x, p); });
  }
  const bool fits = (x.dtype == DType::kBF16 || x.dtype == DType::kF16) &&
                    (first.out.dtype == DType::kF32 || first.out.dtype == x.dtype) &&
                    AreAll(products, [&](const Product& p) { return p.w.data.dtype == x.dtype; });
  if (!fits || options_.deterministic || x.rows() > kFewDenseRows) return false;
  if (options_.few_rows.has_value()) return *options_.few_rows;
  // Ranks may find out differently.
  return !alike && AreFewRowsFaster(x, products);
}

// Found once for a shape, rows counting as the next power of two, at the first step that has it,
// which is no graph yet. Each way is timed as a graph, as it will run: what the host takes to
// enqueue it is not counted.
bool CudaBackend::AreFewRowsFaster(Tensor x, std::span<const Product> products) {
  const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x.rows())));
  std::array<int64_t, 4 + kMostJoined> key = {rows, x.cols(), static_cast<int64_t>(x.dtype),
                                              static_cast<int64_t>(products[0].out.dtype)};
  for (size_t i = 0; i < products.size(); ++i) key[4 + i] = products[i].out.cols();
  if (const auto it = few_rows_faster_.find(key); it != few_rows_faster_.end()) return it->second;
  const int64_t pieces[] = {0, x.cols()};
  GraphCache graphs(device());
  const auto time_of = [&](int64_t joined) {
    constexpr int kTurns = 2;
    const auto turns = [&] {
      for (int i = 0; i < kTurns; ++i) {
        if (joined != 0) {
          MultiplyFewRows(x, products, pieces);
        } else {
          for (const Product& product : products) MultiplyDense(x, product);
        }
      }
      return failure_;
    };
    const auto begin = std::chrono::steady_clock::now();
    if (failure_.ok()) Keep(graphs.Run({&joined, 1}, turns, stream_));
    Keep(stream_.Synchronize());
    return std::chrono::steady_clock::now() - begin;
  };
  std::array<std::chrono::steady_clock::duration, 2> best;
  best.fill(std::chrono::steady_clock::duration::max());
  for (int run = 0; run < 5; ++run) {
    for (const int64_t joined : {0, 1}) {
      const auto time = time_of(joined);
      constexpr int kPrepared = 2;  // runs, after which it is a graph
      auto& least = best[static_cast<size_t>(joined)];
      if (run >= kPrepared) least = std::min(least, time);
    }
  }
  return few_rows_faster_[key] = best[1] < best[0];
}

void CudaBackend::MultiplyFewRows(Tensor x, std::span<const Product> products,
                                  std::span<const int64_t> piece_begin) {
  CONTINUO_CHECK(products.size() <= size_t{kMostJoined});
  const Product& first = products[0];
  std::array<FewRowsProduct, kMostJoined> all;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    all[i] = {p.out.data, p.w.data.data, p.bias.size() == 0 ? nullptr : Data<const float>(p.bias),
              p.out.cols()};
  }
  CONTINUO_CHECK(first.w.format == WeightFormat::kDense || x.dtype == DType::kBF16);
  CONTINUO_CHECK(first.out.dtype == DType::kF32 || first.out.dtype == x.dtype);
  Enqueue("FewRowsMatMul", [&] {
    return WithNumber(x.dtype, [&]<typename Number>() {
      const auto multiply = [&]<typename T>() {
        return FewRowsMatMul<T, Number>({all.data(), products.size()}, first.w.format,
                                        Data<const Number>(x),
                                        GroupsOf(first.w.format, piece_begin), x.rows(), stream());
      };
      return first.out.dtype == DType::kF32 ? multiply.template operator()<float>()
                                            : multiply.template operator()<Number>();
    });
  });
}

// What cuBLASLt does not take is prepared in scratch, as many rows at a time as it holds: bf16 x
// widened where w is f32, sums that a bias is added to.
void CudaBackend::MultiplyDense(Tensor x, const Product& product) {
  const auto& [out, w, bias] = product;
  const int64_t rows = out.rows(), columns = out.cols(), k = x.cols();
  const bool widen = x.dtype != w.data.dtype;
  CONTINUO_CHECK(!widen || (w.data.dtype == DType::kF32 && x.dtype == DType::kBF16));
  const bool apart = bias.size() > 0 || (widen && out.dtype != DType::kF32);
  const int64_t row_floats = (widen ? k : 0) + (apart ? columns : 0);
  const int64_t step =
      row_floats == 0
          ? rows
          : std::clamp<int64_t>(
                static_cast<int64_t>(options_.scratch_bytes / sizeof(float)) / row_floats, 1, rows);
  auto* const scratch =
      static_cast<float*>(host::Scratch(static_cast<size_t>(step * row_floats) * sizeof(float)));
  for (int64_t row = 0; row < rows && failure_.ok(); row += step) {
    const int64_t n = std::min(step, rows - row);
    Tensor in = RowsOf(x, row, n), to = RowsOf(out, row, n), sums = to;
    if (widen) {
      in = {scratch, DType::kF32, {n, k, 1}};
      Enqueue("ToFloats", [&] {
        return ToFloats(scratch, Data<const uint16_t>(RowsOf(x, row, n)), n * k, stream());
      });
    }
    if (apart) sums = {scratch + (widen ? step * k : 0), DType::kF32, {n, columns, 1}};
    Keep(SetDevice(device()));
    BeginPart();
    if (failure_.ok()) Keep(matmul_->Run(sums, in, w.data, stream()));
    if (!apart) continue;
    Enqueue("AddBias", [&] {
      return WithType(to.dtype, [&]<typename T>() {
        return AddBias(Data<T>(to), Data<const float>(sums), columns, Data<const float>(bias), n,
                       columns, stream());
      });
    });
  }
}

}  // namespace continuo::kernels::cuda
