// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/model/router_log.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "services/base/check.h"

namespace continuo::testing {
namespace {

using kernels::Routing;
using kernels::Tensor;

// A row's logits, and how experts are chosen by them.
struct Row {
  std::span<const float> logits, correction;  // the second may be empty
  const Routing& routing;
  std::span<const int> experts;  // the chosen ones
};

// Returns bounds of what an expert is chosen by, if logits move by up to delta.
struct Bounds {
  double low = 0, high = 0;
};
Bounds BoundsOf(const Row& row, size_t expert, double delta) {
  const double logit = row.logits[expert];
  const double correction = row.correction.empty() ? 0 : row.correction[expert];
  if (row.routing.scores == Routing::Scores::kSigmoid) {
    const auto score = [&](double moved) { return 1 / (1 + std::exp(-moved)) + correction; };
    return {score(logit - delta), score(logit + delta)};
  }
  // The order of a softmax's scores is that of the logits.
  if (row.correction.empty() && !row.routing.by_top_two) return {logit - delta, logit + delta};
  double sum = 0;
  for (const float other : row.logits) sum += std::exp(other - logit);
  // The sum moves, too.
  return {std::exp(-2 * delta) / sum + correction, std::exp(2 * delta) / sum + correction};
}

// A group is chosen by the largest of its scores, or by the sum of the two largest.
double ValueOf(std::vector<double> scores, bool by_top_two) {
  std::ranges::sort(scores, std::greater<>());
  return scores[0] + (by_top_two && scores.size() > 1 ? scores[1] : 0);
}

bool Stays(const Row& row, double delta) {
  const size_t count = row.logits.size(), num_groups = static_cast<size_t>(row.routing.num_groups);
  std::vector<Bounds> bounds;
  for (size_t e = 0; e < count; ++e) bounds.push_back(BoundsOf(row, e, delta));
  const size_t size = count / num_groups;
  std::vector<std::pair<double, size_t>> order;  // of groups, the best first
  std::vector<Bounds> groups;
  for (size_t g = 0; g < num_groups; ++g) {
    std::vector<double> scores, low, high;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      scores.push_back(BoundsOf(row, e, 0).low);
      low.push_back(bounds[e].low);
      high.push_back(bounds[e].high);
    }
    const bool by_top_two = row.routing.by_top_two;
    order.emplace_back(-ValueOf(scores, by_top_two), g);
    groups.push_back({ValueOf(low, by_top_two), ValueOf(high, by_top_two)});
  }
  std::ranges::sort(order);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double least = kInfinity, most = -kInfinity;  // of what is chosen, and of what is not
  std::vector<bool> is_kept(num_groups);
  for (size_t i = 0; i < num_groups; ++i) {
    const size_t g = order[i].second;
    is_kept[g] = i < static_cast<size_t>(row.routing.top_groups);
    if (is_kept[g]) {
      least = std::min(least, groups[g].low);
    } else {
      most = std::max(most, groups[g].high);
    }
  }
  if (most >= least) return false;
  least = kInfinity;
  most = -kInfinity;
  for (size_t e = 0; e < count; ++e) {
    if (!is_kept[e / size]) continue;
    if (std::ranges::binary_search(row.experts, static_cast<int>(e))) {
      least = std::min(least, bounds[e].low);
    } else {
      most = std::max(most, bounds[e].high);
    }
  }
  return most < least;
}

double MarginOf(const Row& row) {
  double low = 0, high = 1;
  if (!Stays(row, low)) return 0;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (Stays(row, middle) ? low : high) = middle;
  }
  return low;
}

class LoggedExperts : public kernels::ExpertOps {
 public:
  LoggedExperts(kernels::Device& device, RouterLog& log)
      : ExpertOps(device.ops().rows), device_(device), ops_(device.ops().experts), log_(log) {}

  bool NeedsHostRoutes(kernels::DType activations, std::span<const kernels::Weight> experts,
                       int64_t num_entries) const override {
    return ops_.NeedsHostRoutes(activations, experts, num_entries);
  }

 private:
  template <typename T>
  std::vector<T> CopyOut(const Tensor& tensor) {
    std::vector<T> host(static_cast<size_t>(tensor.size()));
    if (!host.empty()) device_.CopyOut(host.data(), tensor);
    CONTINUO_CHECK(device_.Synchronize().ok());
    return host;
  }

  void DoRouteExperts(const kernels::ExpertRoutes& routes, Tensor logits,
                      const Routing& routing) override {
    ops_.RouteExperts(routes, logits, routing);
    const std::vector<float> all = CopyOut<float>(logits);
    const std::vector<float> correction = CopyOut<float>(routing.correction);
    const std::vector<int32_t> entries = CopyOut<int32_t>(routes.entries);
    const std::vector<int32_t> begin = CopyOut<int32_t>(routes.expert_begin);
    const size_t count = static_cast<size_t>(logits.cols());
    const size_t per_row = static_cast<size_t>(routes.weights.cols());
    for (size_t r = 0; r < static_cast<size_t>(logits.rows()); ++r) {
      RouterChoice& choice = log_.emplace_back();
      const auto row = std::span(all).subspan(r * count, count);
      choice.logits.assign(row.begin(), row.end());
      for (const int32_t entry : std::span(entries).subspan(r * per_row, per_row)) {
        const auto after = std::ranges::upper_bound(begin, entry);
        choice.experts.push_back(static_cast<int>(after - begin.begin()) - 1);
      }
      choice.margin = MarginOf({row, correction, routing, choice.experts});
    }
  }
  void DoWeighInputs(Tensor out, Tensor x, const kernels::ExpertRoutes& routes) override {
    ops_.WeighInputs(out, x, routes);
  }
  void DoExpertMatMul(Tensor out, Tensor x, const kernels::ExpertMatrices& experts,
                      const kernels::ExpertRoutes& routes, bool by_entry) override {
    ops_.ExpertMatMul(out, x, experts, routes, by_entry);
  }
  void DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const kernels::ExpertMatrices& gates,
                           const kernels::ExpertMatrices& ups, const kernels::ExpertRoutes& routes,
                           kernels::GateFunction function) override {
    ops_.GatedExpertMatMul(gate, up, x, gates, ups, routes, function);
  }
  void DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const kernels::Weight> experts,
                            const kernels::ExpertRoutes& routes,
                            std::span<const int64_t> split_begin) override {
    ops_.ExpertMatMulSplitK(out, x, experts, routes, split_begin);
  }
  void DoCombineExperts(Tensor out, Tensor x, const kernels::ExpertRoutes& routes,
                        const kernels::ExpertAddends& addends) override {
    ops_.CombineExperts(out, x, routes, addends);
  }

  kernels::Device& device_;
  kernels::ExpertOps& ops_;
  RouterLog& log_;
};

class LoggedDevice : public kernels::Device {
 public:
  LoggedDevice(kernels::Device& device, RouterLog& log)
      : device_(device), experts_(device, log), ops_{device.ops().matmul,
                                                     device.ops().rows,
                                                     device.ops().attention,
                                                     experts_,
                                                     device.ops().states,
                                                     device.ops().sampling} {}

  std::string name() const override { return device_.name(); }
  const kernels::Ops& ops() const override { return ops_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return device_.Allocate(bytes); }
  void Free(void* data) override { device_.Free(data); }
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return device_.AllocateHost(bytes); }
  void FreeHost(void* data) override { device_.FreeHost(data); }
  bool SharesHostMemory() const override { return device_.SharesHostMemory(); }
  void CopyIn(Tensor dst, const void* host) override { device_.CopyIn(dst, host); }
  void CopyOut(void* host, Tensor src) override { device_.CopyOut(host, src); }
  absl::Status Synchronize() override { return device_.Synchronize(); }
  void ParallelFor(int n, absl::FunctionRef<void(int)> body) override {
    device_.ParallelFor(n, body);
  }

 private:
  kernels::Device& device_;
  LoggedExperts experts_;
  const kernels::Ops ops_;
};

}  // namespace

std::unique_ptr<kernels::Device> LogRouters(kernels::Device& device, RouterLog& log) {
  return std::make_unique<LoggedDevice>(device, log);
}

}  // namespace continuo::testing
