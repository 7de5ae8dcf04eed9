// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/cuda_matmul.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// SmallMMatMul can multiply dense products of one row tile of tensor cores, and fp8 products of
// four.
constexpr int64_t kMaxDenseSmallMRows = 16, kMaxFp8SmallMRows = 64;
// Up to these numbers of rows it is the faster one, unless columns are as many as a vocabulary's.
// On an H200 steps of 8 and 16 rows of an 8B model took 5.9 and 6.9 ms by it, and 17 rows 5.0 ms by
// cuBLASLt: all blocks read all rows from the L2 cache beside their columns. fp8's rows are half as
// long, and cuBLASLt's kernel for it is slow with few rows.
constexpr int64_t kFasterDenseRows = 2, kFasterFp8Rows = 16;
constexpr int64_t kFasterColumns = 256;  // for each multiprocessor: 16 column tiles of each block

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

int64_t CudaMatMul::MaxFp8SmallMRows(const CudaMatMulOptions& options) {
  if (options.deterministic) return 0;
  if (!options.small_m.has_value()) return kFasterFp8Rows;
  return *options.small_m ? kMaxFp8SmallMRows : 0;
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
  MultiplyAll(x, {&product, 1}, splits);
}

void CudaMatMul::DoMatMuls(const MatMulInput& x, std::span<const Product> products) {
  const int64_t splits[] = {0, x.x.cols()};
  MultiplyAll(x, products, splits);
}

void CudaMatMul::DoMatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                                std::span<const int64_t> split_begin) {
  const Product product = {out, w, Tensor()};
  MultiplyAll(x, {&product, 1}, split_begin);
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
  CONTINUO_CHECK(function == GateFunction::kSilu || function == GateFunction::kGelu ||
                 function == GateFunction::kClampedSwiglu);
  const bool is_silu = function == GateFunction::kSilu, is_gelu = function == GateFunction::kGelu;
  const char* const name = is_silu   ? "SiluMulInFp8"
                           : is_gelu ? "GeluMulInFp8"
                                     : "ClampedSwigluInFp8";
  context_.Enqueue(name, [&] {
    const auto launch = is_silu ? SiluMulInFp8 : is_gelu ? GeluMulInFp8 : ClampedSwigluInFp8;
    return launch(Data<uint16_t>(out), PreparedFp8Rows(prepared, out.rows(), out.cols()),
                  Data<const uint16_t>(out), Data<const uint16_t>(up.out), out.rows(), out.cols(),
                  context_.kernels());
  });
}

void CudaMatMul::MultiplyAll(const MatMulInput& x, std::span<const Product> products,
                             std::span<const int64_t> split_begin) {
  if (!context_.ok()) return;
  const auto is_some = [](const Product& p) { return p.out.size() > 0; };
  if (x.x.cols() > 0 && AreAll(products, is_some)) {
    if (AreAll(products, IsFp8)) {
      fp8_.Multiply(x, products);
      return;
    }
    if (products.size() <= size_t{kMaxJoinedProducts} && UsesSmallM(x.x, products)) {
      MultiplySmallM(x.x, products, split_begin);
      return;
    }
  }
  for (const Product& product : products) {
    if (is_some(product)) MultiplyOne(x, product, split_begin);
  }
}

void CudaMatMul::MultiplyOne(const MatMulInput& x, const Product& product,
                             std::span<const int64_t> split_begin) {
  const std::span<const Product> one(&product, 1);
  if (x.x.cols() == 0) {
    CONTINUO_CHECK(product.bias.size() == 0);
    context_.Enqueue("cudaMemsetAsync", [&] {
      return cudaMemsetAsync(product.out.data, 0, product.out.bytes(), context_.stream().get());
    });
  } else if (IsFp8(product)) {
    fp8_.Multiply(x, one);
  } else if (UsesSmallM(x.x, one)) {
    MultiplySmallM(x.x, one, split_begin);
  } else if (product.w.format != WeightFormat::kDense) {
    quantised_.Multiply(x.x, product, split_begin);
  } else {
    MultiplyDense(x.x, product);
  }
}

bool CudaMatMul::UsesSmallM(Tensor x, std::span<const Product> products) {
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
  int64_t columns = 0;
  for (const Product& p : products) columns += p.out.cols();
  return x.rows() <= kFasterDenseRows &&
         columns <= kFasterColumns * context_.device().num_multiprocessors;
}

void CudaMatMul::MultiplySmallM(Tensor x, std::span<const Product> products,
                                std::span<const int64_t> split_begin) {
  CONTINUO_CHECK(products.size() <= size_t{kMaxJoinedProducts});
  const Product& first = products[0];
  std::array<SmallMProduct, kMaxJoinedProducts> all;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    all[i] = {.out = p.out.data,
              .data = p.w.data.data,
              .bias = p.bias.size() == 0 ? nullptr : Data<const float>(p.bias),
              .scales = nullptr,
              .columns = p.out.cols()};
  }
  CONTINUO_CHECK(first.w.format == WeightFormat::kDense || x.dtype == DType::kBF16);
  CONTINUO_CHECK(first.out.dtype == DType::kF32 || first.out.dtype == x.dtype);
  context_.Enqueue("SmallMMatMul", [&] {
    return WithNumber(x.dtype, [&]<typename Number>() {
      const auto multiply = [&]<typename T>() {
        return SmallMMatMul<T, Number>({all.data(), products.size()}, first.w.format,
                                       Data<const Number>(x), GroupsOf(first.w.format, split_begin),
                                       x.rows(), context_.device().num_multiprocessors,
                                       context_.kernels());
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
