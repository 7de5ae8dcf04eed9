// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/cuda_experts.h"

#include <algorithm>

#include "absl/status/status.h"
#include "kernels/cuda/experts/expert_matmul.h"
#include "kernels/cuda/experts/routing.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/cuda/runtime/scratch_layout.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Up to this many rows an expert, on average, one launch reads each expert's matrix as it is. The
// limit has not been measured.
constexpr int64_t kMaxSmallMRows = 16;

const float* DataOrNull(const Tensor& tensor) {
  return tensor.size() == 0 ? nullptr : Data<const float>(tensor);
}

}  // namespace

bool CudaExperts::NeedsHostRoutes(DType activations, std::span<const Weight> experts,
                                  int64_t num_entries) const {
  if (experts[0].format != WeightFormat::kDense) return false;
  const bool is_small =
      deterministic_ || num_entries <= kMaxSmallMRows * static_cast<int64_t>(experts.size());
  return !is_small || activations == DType::kF32 || experts[0].data.dtype != activations;
}

void CudaExperts::DoRouteExperts(const ExpertRoutes& routes, Tensor logits,
                                 const Routing& routing) {
  const int64_t rows = logits.rows(), num_experts = logits.cols(), k = routes.weights.cols();
  if (num_experts > kMaxExperts || k > kMaxExpertsPerRow) {
    context_.Keep(absl::UnimplementedError("more experts than the CUDA kernels take"));
  }
  context_.Enqueue("RouteExperts", [&] {
    return cuda::RouteExperts({.weights = Data<float>(routes.weights),
                               .entries = Data<int32_t>(routes.entries),
                               .rows = Data<int32_t>(routes.rows),
                               .expert_begin = Data<int32_t>(routes.expert_begin)},
                              Data<const float>(logits), rows, static_cast<int>(num_experts),
                              static_cast<int>(k),
                              {.by_sigmoid = routing.scores == Routing::Scores::kSigmoid,
                               .normalise = routing.normalise,
                               .chooses_by_logits = routing.chooses_by_logits,
                               .correction = DataOrNull(routing.correction),
                               .num_groups = routing.num_groups,
                               .top_groups = routing.top_groups,
                               .by_top_two = routing.by_top_two,
                               .factor = routing.factor,
                               .expert_factors = DataOrNull(routing.expert_factors)},
                              context_.kernels());
  });
}

void CudaExperts::DoWeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes) {
  context_.Enqueue("WeighInputs", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::WeighInputs(Data<T>(out), Data<const T>(x), Data<const float>(routes.weights),
                               Data<const int32_t>(routes.entries), x.rows(), x.cols(),
                               static_cast<int>(routes.weights.cols()), context_.kernels());
    });
  });
}

void CudaExperts::DoExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts,
                                 const ExpertRoutes& routes, bool by_entry) {
  const int64_t splits[] = {0, x.cols()};
  Multiply(out, x, experts, routes, splits, by_entry);
}

void CudaExperts::DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                                       const ExpertRoutes& routes,
                                       std::span<const int64_t> split_begin) {
  Multiply(out, x, experts, routes, split_begin, /*by_entry=*/true);
}

void CudaExperts::Multiply(Tensor out, Tensor x, const ExpertMatrices& matrices,
                           const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                           bool by_entry) {
  const std::span<const Weight> experts = matrices.weights;
  const int64_t num_entries = routes.rows.size();
  if (!context_.ok()) return;
  if (NeedsHostRoutes(x.dtype, experts, num_entries)) {
    MultiplyOneByOne(out, x, matrices, routes, split_begin, by_entry);
    return;
  }
  const WeightFormat format = experts[0].format;
  CONTINUO_CHECK(format == WeightFormat::kDense || x.dtype == DType::kBF16);
  CONTINUO_CHECK(out.dtype == DType::kF32 || out.dtype == x.dtype);
  context_.Enqueue("ExpertMatMul", [&] {
    return WithNumber(x.dtype, [&]<typename Number>() {
      const auto multiply = [&]<typename T>() {
        return cuda::ExpertMatMul(Data<T>(out), Data<const Number>(x),
                                  by_entry ? nullptr : Data<const int32_t>(routes.rows),
                                  Data<const int32_t>(routes.expert_begin), experts,
                                  DataOrNull(matrices.bias), GroupsOf(format, split_begin),
                                  num_entries, out.cols(), context_.kernels());
      };
      return out.dtype == DType::kF32 ? multiply.template operator()<float>()
                                      : multiply.template operator()<Number>();
    });
  });
}

void CudaExperts::MultiplyOneByOne(Tensor out, Tensor x, const ExpertMatrices& matrices,
                                   const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                                   bool by_entry) {
  const std::span<const Weight> experts = matrices.weights;
  const int64_t num_entries = routes.rows.size(), columns = out.cols();
  const std::span<const int32_t> begin = routes.host_expert_begin;
  const bool has_bias = matrices.bias.size() > 0;
  int64_t most = 0;  // rows of an expert
  for (size_t e = 0; e < experts.size(); ++e)
    most = std::max<int64_t>(most, begin[e + 1] - begin[e]);
  // Scratch holds the gathered rows of x, and one expert's sums that a bias is added to.
  const size_t gathered_bytes =
      by_entry ? 0 : static_cast<size_t>(num_entries * x.cols()) * SizeOf(x.dtype);
  void *gathered_rows = nullptr, *sum_rows = nullptr;
  const auto lay_out = [&](ScratchLayout layout) {
    gathered_rows = layout.Add<char>(gathered_bytes);
    sum_rows = layout.Add<float>(has_bias ? static_cast<size_t>(most * columns) : 0);
    return layout.bytes();
  };
  lay_out(ScratchLayout(context_.Scratch(lay_out(ScratchLayout()))));
  if (!context_.ok()) return;
  Tensor gathered = x;
  if (!by_entry) {
    gathered.shape = {num_entries, x.cols(), 1};
    gathered.data = gathered_rows;
    context_.Enqueue("GatherRows", [&] {
      return WithType(x.dtype, [&]<typename T>() {
        return GatherRows(Data<T>(gathered), Data<const T>(x), Data<const int32_t>(routes.rows),
                          num_entries, x.cols(), context_.kernels());
      });
    });
  }
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t n = begin[e + 1] - begin[e];
    if (n == 0) continue;
    CONTINUO_CHECK(experts[e].data.dtype == x.dtype);  // so that the product needs no scratch
    const Tensor to = RowsOf(out, begin[e], n);
    const Tensor sums = has_bias ? Tensor{sum_rows, DType::kF32, {n, columns, 1}} : to;
    matmul_.Multiply(RowsOf(gathered, begin[e], n), {sums, experts[e], Tensor()}, split_begin);
    if (!has_bias) continue;
    const Tensor bias = RowsOf(matrices.bias, static_cast<int64_t>(e), 1);
    context_.Enqueue("AddBias", [&] {
      return WithType(to.dtype, [&]<typename T>() {
        return AddBias(Data<T>(to), Data<const float>(sums), columns, Data<const float>(bias), n,
                       columns, context_.kernels());
      });
    });
  }
}

void CudaExperts::DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                                   const ExpertAddends& addends) {
  context_.Enqueue("CombineExperts", [&] {
    return cuda::CombineExperts(Data<float>(out), Data<const float>(x),
                                {.weights = Data<float>(routes.weights),
                                 .entries = Data<int32_t>(routes.entries),
                                 .expert_begin = Data<int32_t>(routes.expert_begin)},
                                {.bias = DataOrNull(addends.bias),
                                 .shared = DataOrNull(addends.shared),
                                 .shared_gate = DataOrNull(addends.shared_gate)},
                                out.rows(), out.cols(), static_cast<int>(routes.weights.cols()),
                                static_cast<int>(routes.expert_begin.size()) - 1,
                                context_.kernels());
  });
}

}  // namespace continuo::kernels::cuda
