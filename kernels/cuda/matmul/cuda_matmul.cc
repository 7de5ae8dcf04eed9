// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/cuda_matmul.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/cuda/runtime/graph_cache.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// Dense products of at most this many rows, one row tile of tensor cores, may go to SmallMMatMul.
constexpr int64_t kMaxDenseSmallMRows = 16;

bool AreAll(std::span<const Product> products, auto predicate) {
  return !products.empty() && std::all_of(products.begin(), products.end(), predicate);
}

bool IsFp8(const Product& p) { return p.w.format == WeightFormat::kFp8Rows; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMatMul>> CudaMatMul::Make(CudaContext& context, RowOps& rows,
                                                             const CudaMatMulOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CublasLtMatMul> cublaslt,
                   CublasLtMatMul::Make(context.device().index,
                                        {.deterministic = options.deterministic,
                                         .fp8_fast_accumulation = options.fp8_fast_accumulation}));
  return std::unique_ptr<CudaMatMul>(new CudaMatMul(context, rows, options, std::move(cublaslt)));
}

bool CudaMatMul::SupportsWeights(WeightType type) const {
  // cuBLASLt has scales by row for compute capability 9.0 alone.
  const DeviceInfo& device = context_.device();
  return type != WeightType::kFp8 || (device.major == 9 && device.minor == 0);
}

WeightFormat CudaMatMul::FormatOf(WeightType type) const {
  if (type == WeightType::kFp8) return WeightFormat::kFp8Rows;
  if (type == WeightType::kInt8) return WeightFormat::kInt8Panels;
  if (type == WeightType::kInt4) return WeightFormat::kInt4Panels;
  return WeightFormat::kDense;
}

size_t CudaMatMul::WeightBytes(const Weight& w, std::span<const int64_t> split_begin) const {
  if (w.format == WeightFormat::kDense) return w.data.bytes();
  if (w.data.size() == 0) return 0;
  if (w.format == WeightFormat::kFp8Rows) {
    return static_cast<size_t>(Fp8Layout{w.data.rows(), w.data.cols()}.Bytes());
  }
  return static_cast<size_t>(
      QuantisedBytes(w.format, GroupsOf(w.format, split_begin), w.data.rows()));
}

size_t CudaMatMul::PreparedBytes(WeightFormat format, int64_t rows, int64_t k) const {
  return format == WeightFormat::kFp8Rows ? PreparedFp8Bytes(rows, k) : 0;
}

void CudaMatMul::DoPackRows(const Weight& w, std::span<const int64_t> split_begin,
                            int64_t first_row, const float* rows, int64_t n) {
  if (w.format == WeightFormat::kFp8Rows) {
    fp8_.Pack(w, first_row, rows, n);
  } else {
    quantised_.Pack(w, split_begin, first_row, rows, n);
  }
}

void CudaMatMul::DoMatMul(const MatMulInput& x, const Product& product) {
  const int64_t splits[] = {0, x.x.cols()};
  MultiplyAll(x, {&product, 1}, splits, /*same_on_all_ranks=*/true);
}

void CudaMatMul::DoMatMuls(const MatMulInput& x, std::span<const Product> products) {
  const int64_t splits[] = {0, x.x.cols()};
  MultiplyAll(x, products, splits, /*same_on_all_ranks=*/false);
}

void CudaMatMul::DoMatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                                std::span<const int64_t> split_begin) {
  const Product product = {out, w, Tensor()};
  MultiplyAll(x, {&product, 1}, split_begin, /*same_on_all_ranks=*/false);
}

void CudaMatMul::DoGatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                               GateFunction function, void* prepared) {
  if (prepared == nullptr) {
    MatMulOps::DoGatedMatMul(x, gate, up, function, prepared);
    return;
  }
  DoMatMuls(x, std::array<Product, 2>{gate, up});
  const Tensor& out = gate.out;
  CONTINUO_CHECK(out.dtype == DType::kBF16);
  const bool is_silu = function == GateFunction::kSilu;
  context_.Enqueue(is_silu ? "SiluMulInFp8" : "GeluMulInFp8", [&] {
    const auto launch = is_silu ? SiluMulInFp8 : GeluMulInFp8;
    return launch(Data<uint16_t>(out), PreparedFp8Rows(prepared, out.rows(), out.cols()),
                  Data<const uint16_t>(out), Data<const uint16_t>(up.out), out.rows(), out.cols(),
                  context_.kernels());
  });
}

void CudaMatMul::MultiplyAll(const MatMulInput& x, std::span<const Product> products,
                             std::span<const int64_t> split_begin, bool same_on_all_ranks) {
  if (!context_.ok()) return;
  const auto is_some = [](const Product& p) { return p.out.size() > 0; };
  if (x.x.cols() > 0 && AreAll(products, is_some)) {
    if (AreAll(products, IsFp8)) {
      fp8_.Multiply(x, products);
      return;
    }
    if (products.size() <= size_t{kMaxJoinedProducts} &&
        UsesSmallM(x.x, products, same_on_all_ranks)) {
      MultiplySmallM(x.x, products, split_begin);
      return;
    }
  }
  for (const Product& product : products) {
    if (is_some(product)) MultiplyOne(x, product, split_begin, same_on_all_ranks);
  }
}

void CudaMatMul::MultiplyOne(const MatMulInput& x, const Product& product,
                             std::span<const int64_t> split_begin, bool same_on_all_ranks) {
  const std::span<const Product> one(&product, 1);
  if (x.x.cols() == 0) {
    CONTINUO_CHECK(product.bias.size() == 0);
    context_.Enqueue("cudaMemsetAsync", [&] {
      return cudaMemsetAsync(product.out.data, 0, product.out.bytes(), context_.stream().get());
    });
  } else if (IsFp8(product)) {
    fp8_.Multiply(x, one);
  } else if (UsesSmallM(x.x, one, same_on_all_ranks)) {
    MultiplySmallM(x.x, one, split_begin);
  } else if (product.w.format != WeightFormat::kDense) {
    quantised_.Multiply(x.x, product, split_begin);
  } else {
    MultiplyDense(x.x, product);
  }
}

bool CudaMatMul::UsesSmallM(Tensor x, std::span<const Product> products, bool same_on_all_ranks) {
  const Product& first = products[0];
  const auto is_like_first = [&](const Product& p) {
    return p.w.format == first.w.format && p.out.dtype == first.out.dtype;
  };
  if (!AreAll(products, is_like_first)) return false;
  if (first.w.format != WeightFormat::kDense) {
    return AreAll(products, [&](const Product& p) { return !quantised_.IsUsedFor(x, p); });
  }
  const bool fits = (x.dtype == DType::kBF16 || x.dtype == DType::kF16) &&
                    (first.out.dtype == DType::kF32 || first.out.dtype == x.dtype) &&
                    AreAll(products, [&](const Product& p) { return p.w.data.dtype == x.dtype; });
  if (!fits || options_.deterministic || x.rows() > kMaxDenseSmallMRows) return false;
  if (options_.small_m.has_value()) return *options_.small_m;
  // Ranks may measure differently.
  return !same_on_all_ranks && IsSmallMFaster(x, products);
}

// The result is kept for a shape, rows counting as the next power of two. It is measured at the
// first step that has it, which is no graph yet. Each way is timed as a graph, as it will run, so
// that the host's time to enqueue it does not count.
bool CudaMatMul::IsSmallMFaster(Tensor x, std::span<const Product> products) {
  const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x.rows())));
  std::array<int64_t, 4 + kMaxJoinedProducts> key = {rows, x.cols(), static_cast<int64_t>(x.dtype),
                                                     static_cast<int64_t>(products[0].out.dtype)};
  for (size_t i = 0; i < products.size(); ++i) key[4 + i] = products[i].out.cols();
  if (const auto it = is_small_m_faster_.find(key); it != is_small_m_faster_.end()) {
    return it->second;
  }
  const int64_t splits[] = {0, x.cols()};
  GraphCache graphs(context_.device().index);
  const auto time_of = [&](int64_t small_m) {
    constexpr int kRepetitions = 2;
    const auto enqueue = [&] {
      for (int i = 0; i < kRepetitions; ++i) {
        if (small_m != 0) {
          MultiplySmallM(x, products, splits);
        } else {
          for (const Product& product : products) MultiplyDense(x, product);
        }
      }
      return context_.failure();
    };
    const auto begin = std::chrono::steady_clock::now();
    context_.RunGraphOf(graphs, {&small_m, 1}, enqueue);
    context_.Keep(context_.stream().Synchronize());
    return std::chrono::steady_clock::now() - begin;
  };
  std::array<std::chrono::steady_clock::duration, 2> best;
  best.fill(std::chrono::steady_clock::duration::max());
  for (int run = 0; run < 5; ++run) {
    for (const int64_t small_m : {0, 1}) {
      const auto time = time_of(small_m);
      constexpr int kEagerRuns = 2;  // the runs after them replay a graph
      auto& least = best[static_cast<size_t>(small_m)];
      if (run >= kEagerRuns) least = std::min(least, time);
    }
  }
  return is_small_m_faster_[key] = best[1] < best[0];
}

void CudaMatMul::MultiplySmallM(Tensor x, std::span<const Product> products,
                                std::span<const int64_t> split_begin) {
  CONTINUO_CHECK(products.size() <= size_t{kMaxJoinedProducts});
  const Product& first = products[0];
  std::array<SmallMProduct, kMaxJoinedProducts> all;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    all[i] = {p.out.data, p.w.data.data, p.bias.size() == 0 ? nullptr : Data<const float>(p.bias),
              p.out.cols()};
  }
  CONTINUO_CHECK(first.w.format == WeightFormat::kDense || x.dtype == DType::kBF16);
  CONTINUO_CHECK(first.out.dtype == DType::kF32 || first.out.dtype == x.dtype);
  context_.Enqueue("SmallMMatMul", [&] {
    return WithNumber(x.dtype, [&]<typename Number>() {
      const auto multiply = [&]<typename T>() {
        return SmallMMatMul<T, Number>({all.data(), products.size()}, first.w.format,
                                       Data<const Number>(x), GroupsOf(first.w.format, split_begin),
                                       x.rows(), context_.kernels());
      };
      return first.out.dtype == DType::kF32 ? multiply.template operator()<float>()
                                            : multiply.template operator()<Number>();
    });
  });
}

// Scratch holds what cuBLASLt does not take, as many rows at a time as fit: bf16 x widened to f32
// where w is f32, and sums that a bias is added to.
void CudaMatMul::MultiplyDense(Tensor x, const Product& product) {
  const auto& [out, w, bias] = product;
  const int64_t rows = out.rows(), columns = out.cols(), k = x.cols();
  const bool widen = x.dtype != w.data.dtype;
  CONTINUO_CHECK(!widen || (w.data.dtype == DType::kF32 && x.dtype == DType::kBF16));
  const bool needs_sums = bias.size() > 0 || (widen && out.dtype != DType::kF32);
  const int64_t row_floats = (widen ? k : 0) + (needs_sums ? columns : 0);
  const int64_t step =
      row_floats == 0
          ? rows
          : std::clamp<int64_t>(
                static_cast<int64_t>(context_.scratch_budget() / sizeof(float)) / row_floats, 1,
                rows);
  auto* const scratch =
      static_cast<float*>(context_.Scratch(static_cast<size_t>(step * row_floats) * sizeof(float)));
  for (int64_t row = 0; row < rows && context_.ok(); row += step) {
    const int64_t n = std::min(step, rows - row);
    Tensor in = RowsOf(x, row, n), to = RowsOf(out, row, n), sums = to;
    if (widen) {
      in = {scratch, DType::kF32, {n, k, 1}};
      context_.Enqueue("ToFloats", [&] {
        return ToFloats(scratch, Data<const uint16_t>(RowsOf(x, row, n)), n * k,
                        context_.kernels());
      });
    }
    if (needs_sums) sums = {scratch + (widen ? step * k : 0), DType::kF32, {n, columns, 1}};
    context_.EnqueueStatus(
        [&] { return cublaslt_->Run(sums, in, w.data, context_.stream().get()); });
    if (!needs_sums) continue;
    context_.Enqueue("AddBias", [&] {
      return WithType(to.dtype, [&]<typename T>() {
        return AddBias(Data<T>(to), Data<const float>(sums), columns, Data<const float>(bias), n,
                       columns, context_.kernels());
      });
    });
  }
}

}  // namespace continuo::kernels::cuda
