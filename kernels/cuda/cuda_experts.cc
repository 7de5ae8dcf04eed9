// SPDX-License-Identifier: Apache-2.0
// Mixture of experts on one device: rows are routed there. Where an expert has few, kernels read on
// the device how many; else the host learns it, so that a layer waits for the device once.
#include <utility>
#include <vector>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/expert_matmul.h"
#include "kernels/cuda/matmul/routing.h"
#include "kernels/cuda/ops/row_ops.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Up to so many rows an expert, in the mean, its matrix is read as it lies. Not measured on a
// device.
constexpr int64_t kFewRows = 16;

}  // namespace

void CudaBackend::RouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) {
  const int64_t rows = logits.rows(), num_experts = logits.cols(), k = routes.weights.cols();
  CONTINUO_CHECK(logits.dtype == DType::kF32 && routes.weights.dtype == DType::kF32);
  CONTINUO_CHECK(k >= 1 && k <= num_experts && routes.weights.rows() == rows);
  CONTINUO_CHECK(routes.entries.size() == rows * k && routes.rows.size() == rows * k);
  CONTINUO_CHECK(routes.expert_begin.size() == num_experts + 1);
  known_routes_ = {};
  if (num_experts > kMaxExperts || k > kMaxExpertsPerRow) {
    Keep(absl::UnimplementedError("more experts than the CUDA kernels take"));
  }
  Enqueue("RouteExperts", [&] {
    return cuda::RouteExperts({.weights = Data<float>(routes.weights),
                               .entries = Data<int32_t>(routes.entries),
                               .rows = Data<int32_t>(routes.rows),
                               .expert_begin = Data<int32_t>(routes.expert_begin)},
                              Data<const float>(logits), rows, static_cast<int>(num_experts),
                              static_cast<int>(k), normalise, stream());
  });
}

bool CudaBackend::WaitsForExperts(DType activations, std::span<const Weight> experts,
                                  int64_t num_entries) const {
  if (experts[0].format != WeightFormat::kDense) return false;
  const bool few =
      options_.deterministic || num_entries <= kFewRows * static_cast<int64_t>(experts.size());
  return !few || activations == DType::kF32 || experts[0].data.dtype != activations;
}

void CudaBackend::ExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                               const ExpertRoutes& routes, bool by_entry) {
  const int64_t pieces[] = {0, x.cols()};
  MultiplyExperts(out, x, experts, routes, pieces, by_entry);
}

void CudaBackend::ExpertMatMulPieces(Tensor out, Tensor x, std::span<const Weight> experts,
                                     const ExpertRoutes& routes,
                                     std::span<const int64_t> piece_begin) {
  CONTINUO_CHECK(out.dtype == DType::kF32 && piece_begin.back() == x.cols());
  MultiplyExperts(out, x, experts, routes, piece_begin, /*by_entry=*/true);
}

void CudaBackend::MultiplyExperts(Tensor out, Tensor x, std::span<const Weight> experts,
                                  const ExpertRoutes& routes, std::span<const int64_t> piece_begin,
                                  bool by_entry) {
  const int64_t num_entries = routes.rows.size();
  CONTINUO_CHECK(routes.expert_begin.size() == static_cast<int64_t>(experts.size()) + 1);
  CONTINUO_CHECK(out.rows() == num_entries);
  CONTINUO_CHECK(x.rows() == (by_entry ? num_entries : routes.weights.rows()));
  if (out.size() == 0 || !failure_.ok()) return;
  if (!WaitsForExperts(x.dtype, experts, num_entries)) {
    const bool quantised = experts[0].format != WeightFormat::kDense;
    CONTINUO_CHECK(!quantised || x.dtype == DType::kBF16);
    CONTINUO_CHECK(out.dtype == DType::kF32 || out.dtype == x.dtype);
    Enqueue("ExpertMatMul", [&] {
      return WithNumber(x.dtype, [&]<typename Number>() {
        const auto multiply = [&]<typename T>() {
          return cuda::ExpertMatMul(Data<T>(out), Data<const Number>(x),
                                    by_entry ? nullptr : Data<const int32_t>(routes.rows),
                                    Data<const int32_t>(routes.expert_begin), experts,
                                    GroupsOf(experts[0].format, piece_begin), num_entries,
                                    out.cols(), stream());
        };
        return out.dtype == DType::kF32 ? multiply.template operator()<float>()
                                        : multiply.template operator()<Number>();
      });
    });
    return;
  }
  const std::vector<int32_t>& begin = ReadExpertBegin(routes.expert_begin);
  if (!failure_.ok()) return;
  Tensor gathered = x;
  if (!by_entry) {
    gathered.shape = {num_entries, x.cols(), 1};
    gathered.data = host::Scratch(gathered.bytes());
    if (!failure_.ok()) return;
    GatherRows(gathered, x, routes.rows);
  }
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t n = begin[e + 1] - begin[e];
    if (n == 0) continue;
    CONTINUO_CHECK(experts[e].data.dtype == x.dtype);  // so that Multiply needs no scratch
    const Product product[] = {{RowsOf(out, begin[e], n), experts[e], Tensor()}};
    Multiply(RowsOf(gathered, begin[e], n), product, piece_begin, /*alike=*/true);
  }
}

const std::vector<int32_t>& CudaBackend::ReadExpertBegin(Tensor expert_begin) {
  if (known_routes_.device != expert_begin.data ||
      static_cast<int64_t>(known_routes_.expert_begin.size()) != expert_begin.size()) {
    known_routes_ = {};
    std::vector<int32_t> begin(static_cast<size_t>(expert_begin.size()));
    CopyOut(begin.data(), expert_begin);
    if (Synchronize().ok()) known_routes_ = {expert_begin.data, std::move(begin)};
  }
  return known_routes_.expert_begin;
}

void CudaBackend::CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) {
  const int64_t k = routes.weights.cols();
  CONTINUO_CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32 && x.cols() == out.cols());
  CONTINUO_CHECK(out.rows() == routes.weights.rows() && x.rows() == routes.rows.size());
  Enqueue("CombineExperts", [&] {
    return cuda::CombineExperts(
        Data<float>(out), Data<const float>(x), Data<const float>(routes.weights),
        Data<const int32_t>(routes.entries), out.rows(), out.cols(), static_cast<int>(k), stream());
  });
}

}  // namespace continuo::kernels::cuda
