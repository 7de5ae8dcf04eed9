// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/cuda_experts.h"

#include "absl/status/status.h"
#include "kernels/cuda/experts/expert_matmul.h"
#include "kernels/cuda/experts/routing.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Up to this many rows an expert, on average, one launch reads each expert's matrix as it is. The
// limit has not been measured.
constexpr int64_t kMaxSmallMRows = 16;

}  // namespace

bool CudaExperts::NeedsHostRoutes(DType activations, std::span<const Weight> experts,
                                  int64_t num_entries) const {
  if (experts[0].format != WeightFormat::kDense) return false;
  const bool is_small =
      deterministic_ || num_entries <= kMaxSmallMRows * static_cast<int64_t>(experts.size());
  return !is_small || activations == DType::kF32 || experts[0].data.dtype != activations;
}

void CudaExperts::DoRouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) {
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
                              static_cast<int>(k), normalise, context_.kernels());
  });
}

void CudaExperts::DoExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                                 const ExpertRoutes& routes, bool by_entry) {
  const int64_t splits[] = {0, x.cols()};
  Multiply(out, x, experts, routes, splits, by_entry);
}

void CudaExperts::DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                                       const ExpertRoutes& routes,
                                       std::span<const int64_t> split_begin) {
  Multiply(out, x, experts, routes, split_begin, /*by_entry=*/true);
}

void CudaExperts::Multiply(Tensor out, Tensor x, std::span<const Weight> experts,
                           const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                           bool by_entry) {
  const int64_t num_entries = routes.rows.size();
  if (!context_.ok()) return;
  if (NeedsHostRoutes(x.dtype, experts, num_entries)) {
    MultiplyOneByOne(out, x, experts, routes, split_begin, by_entry);
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
                                  GroupsOf(format, split_begin), num_entries, out.cols(),
                                  context_.kernels());
      };
      return out.dtype == DType::kF32 ? multiply.template operator()<float>()
                                      : multiply.template operator()<Number>();
    });
  });
}

void CudaExperts::MultiplyOneByOne(Tensor out, Tensor x, std::span<const Weight> experts,
                                   const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                                   bool by_entry) {
  const int64_t num_entries = routes.rows.size();
  const std::span<const int32_t> begin = routes.host_expert_begin;
  Tensor gathered = x;
  if (!by_entry) {
    gathered.shape = {num_entries, x.cols(), 1};
    gathered.data = context_.Scratch(gathered.bytes());
    if (!context_.ok()) return;
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
    matmul_.Multiply(RowsOf(gathered, begin[e], n),
                     {RowsOf(out, begin[e], n), experts[e], Tensor()}, split_begin);
  }
}

void CudaExperts::DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) {
  context_.Enqueue("CombineExperts", [&] {
    return cuda::CombineExperts(Data<float>(out), Data<const float>(x),
                                Data<const float>(routes.weights),
                                Data<const int32_t>(routes.entries), out.rows(), out.cols(),
                                static_cast<int>(routes.weights.cols()), context_.kernels());
  });
}

}  // namespace continuo::kernels::cuda
