// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/best_product.h"
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

struct Shape {
  std::string name;
  std::vector<int64_t> columns;  // of each product of one x
  int64_t k;
  kernels::DType out = kernels::DType::kBF16;

  int64_t all_columns() const {
    return std::accumulate(columns.begin(), columns.end(), int64_t{0});
  }
};

kernels::DType NumberOf(kernels::WeightType type) {
  return type == kernels::WeightType::kF16 ? kernels::DType::kF16 : kernels::DType::kBF16;
}

// Products of one x each by the fastest of cuBLASLt's candidates, with copies of everything as the
// case has.
Calls BestProducts(OpsSource& s, const Shape& shape, kernels::DType number, int64_t rows,
                   int copies) {
  using kernels::cuda::BestProduct;
  const kernels::Tensor x = s.Random(number, {rows, shape.k, 1});
  std::vector<std::vector<BestProduct::Arguments>> arguments;  // of each product
  std::vector<std::shared_ptr<BestProduct>> best;
  for (const int64_t columns : shape.columns) {
    auto& of_copies = arguments.emplace_back();
    for (int i = 0; i < copies; ++i) {
      of_copies.push_back(
          {s.Zeros(shape.out == kernels::DType::kF32 ? kernels::DType::kF32 : number,
                   {rows, columns, 1}),
           x, s.Random(number, {columns, shape.k, 1})});
    }
    auto made = BestProduct::Make(s.cuda->index(), of_copies);
    EndOnFailure(made.status());
    best.push_back(*std::move(made));
  }
  Calls calls;
  for (int i = 0; i < copies; ++i) {
    calls.push_back([=, &s] {
      for (size_t p = 0; p < best.size(); ++p) {
        EndOnFailure(
            best[p]->Run(arguments[p][static_cast<size_t>(i)], s.cuda->context().stream().get()));
      }
    });
  }
  return calls;
}

// Adds MatMul of one matrix, or MatMuls, with random bytes: any scales and elements of quantised
// weights will do.
void AddProduct(OpsSource& s, const Shape& shape, kernels::WeightType type, int64_t rows,
                bool joined) {
  const bool dense = type == kernels::WeightType::kBF16 || type == kernels::WeightType::kF16;
  const kernels::DType number = NumberOf(type);
  const int64_t splits[] = {0, shape.k};
  std::vector<kernels::Weight> weights;
  int64_t weight_bytes = 0;
  for (const int64_t columns : shape.columns) {
    weights.push_back({{nullptr, dense ? number : kernels::DType::kI8, {columns, shape.k, 1}},
                       dense ? kernels::WeightFormat::kDense : s.b.ops().matmul.FormatOf(type)});
    weight_bytes += static_cast<int64_t>(s.b.ops().matmul.WeightBytes(weights.back(), splits));
  }
  const int copies = CopiesOf(static_cast<double>(weight_bytes));
  const kernels::DType out = shape.out == kernels::DType::kF32 ? kernels::DType::kF32 : number;
  Case& c = s.Add(
      {.group = "products",
       .name = std::string(joined ? "MatMuls " : "MatMul ") + shape.name +
               (type == kernels::WeightType::kBF16 ? "" : std::string(" ") + NameOf(type)) +
               ", rows " + std::to_string(rows),
       .bytes = static_cast<double>(weight_bytes) + 2.0 * static_cast<double>(rows * shape.k) +
                static_cast<double>(rows * shape.all_columns()) *
                    static_cast<double>(kernels::SizeOf(out)),
       .flops = 2.0 * static_cast<double>(rows * shape.all_columns() * shape.k),
       .make =
           [=, &s] {
             const kernels::Tensor x = s.Random(number, {rows, shape.k, 1});
             Calls calls;
             for (int i = 0; i < copies; ++i) {
               std::vector<kernels::Product> products;
               for (kernels::Weight w : weights) {
                 const auto bytes = static_cast<int64_t>(s.b.ops().matmul.WeightBytes(w, splits));
                 w.data.data = s.Random(number, {1, (bytes + 1) / 2, 1}).data;
                 products.push_back({s.Zeros(out, {rows, w.data.rows(), 1}), w, kernels::Tensor()});
               }
               calls.push_back([=, &s] {
                 if (joined) {
                   s.b.ops().matmul.MatMuls(x, products);
                 } else {
                   s.b.ops().matmul.MatMul(products[0].out, x, products[0].w, kernels::Tensor());
                 }
               });
             }
             return calls;
           },
       .ceilings = {kReading, PeakOf(type)}});
  if (s.cuda == nullptr || !dense) return;
  c.rival = "cuBLASLt";
  c.make_rival = [=, &s] { return BestProducts(s, shape, number, rows, copies); };
}

}  // namespace

// The shapes are those of Qwen3-0.6B and Llama-3.1-8B.
void AddProducts(OpsSource& s) {
  const Shape q8 = {"8B q", {4096}, 4096}, gate8 = {"8B gate", {14336}, 4096},
              down8 = {"8B down", {4096}, 14336};
  for (const Shape& shape : {Shape{"0.6B gate", {3072}, 1024}, q8, gate8, down8}) {
    for (const int64_t rows : {1, 8, 64, 256, 2048}) {
      AddProduct(s, shape, kernels::WeightType::kBF16, rows, /*joined=*/false);
    }
  }
  // Several products of one x may be one launch, such as gate and up. One product may go the same
  // way by itself; queries, keys and values have one matrix.
  const Shape qkv8 = {"8B q, k, v", {6144}, 4096};
  for (const Shape& shape : {qkv8, Shape{"8B gate, up", {14336, 14336}, 4096},
                             Shape{"0.6B q, k, v", {4096}, 1024}, down8}) {
    for (const int64_t rows : {1, 8, 16}) {
      AddProduct(s, shape, kernels::WeightType::kBF16, rows, /*joined=*/true);
    }
  }
  for (const int64_t rows : {64, 256, 2048}) {
    AddProduct(s, qkv8, kernels::WeightType::kBF16, rows, /*joined=*/true);
  }
  for (const Shape& shape : {Shape{"8B vocabulary", {128256}, 4096, kernels::DType::kF32},
                             Shape{"0.6B vocabulary", {151936}, 1024, kernels::DType::kF32}}) {
    for (const int64_t rows : {1, 16, 64}) {
      AddProduct(s, shape, kernels::WeightType::kBF16, rows, /*joined=*/false);
    }
  }
  for (const int64_t rows : {1, 64, 2048}) {
    if (s.b.ops().matmul.SupportsWeights(kernels::WeightType::kF16)) {
      AddProduct(s, gate8, kernels::WeightType::kF16, rows, /*joined=*/false);
    }
  }
  for (const kernels::WeightType type :
       {kernels::WeightType::kInt8, kernels::WeightType::kInt4, kernels::WeightType::kFp8}) {
    if (!s.b.ops().matmul.SupportsWeights(type)) continue;
    for (const Shape& shape : {qkv8, gate8, down8}) {
      for (const int64_t rows : {1, 8, 32, 64, 256, 2048}) {
        AddProduct(s, shape, type, rows, /*joined=*/false);
      }
    }
  }
}

}  // namespace continuo
