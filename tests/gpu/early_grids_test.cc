// SPDX-License-Identifier: Apache-2.0
// Kernels that are started while the ones before them end (kernels/cuda/README.md, "Grids that
// begin early"): that they are, and that no bit depends on it.
#include "kernels/cuda/runtime/early_grids.h"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/runtime/device.h"
#include "tests/kernels/cuda/cases/backend_cases.h"

namespace continuo::testing {
namespace {

using kernels::cuda::AllowEarlyGrids;

class EarlyGridsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    if (!devices.ok()) GTEST_SKIP() << "skipped: no device: " << devices.status();
    auto backend = kernels::cuda::CudaBackend::Make({.device = devices->front(), .few_rows = true});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    cudaDeviceProp properties = {};
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    can_be_early_ = properties.major >= 9;
  }
  void TearDown() override { kernels::cuda::AllowEarlyGrids(true); }

  kernels::cuda::CudaBackend& b() { return *backend_; }

  // What is enqueued meanwhile, as a graph.
  template <typename Work>
  cudaGraph_t Capture(Work work) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(b().stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    work();
    EXPECT_EQ(cudaStreamEndCapture(b().stream(), &graph), cudaSuccess);
    return graph;
  }

  std::unique_ptr<kernels::cuda::CudaBackend> backend_;
  bool can_be_early_ = false;
};

std::vector<cudaGraphEdgeData> EdgesOf(cudaGraph_t graph) {
  size_t n = 0;
  EXPECT_EQ(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &n), cudaSuccess);
  std::vector<cudaGraphNode_t> from(n), to(n);
  std::vector<cudaGraphEdgeData> edges(n);
  EXPECT_EQ(cudaGraphGetEdges(graph, from.data(), to.data(), edges.data(), &n), cudaSuccess);
  return edges;
}

TEST_F(EarlyGridsTest, EdgesBetweenKernelsInGraphsAreProgrammaticWhereAllowed) {
  Random random(70);
  const HostTensor x = HostTensor::Of(kernels::DType::kBF16, 3, 64, random);
  const DeviceTensor in(b(), x), gain(b(), HostTensor::Of(kernels::DType::kF32, 1, 64, random)),
      middle(b(), x), out(b(), x);
  for (const bool allowed : {true, false}) {
    kernels::cuda::AllowEarlyGrids(allowed);
    const cudaGraph_t graph = Capture([&] {
      b().RmsNorm(middle, in, gain, 1e-5f);
      b().RmsNorm(out, middle, gain, 1e-5f);
    });
    const auto edges = EdgesOf(graph);
    ASSERT_EQ(edges.size(), 1u);
    EXPECT_EQ(edges[0].type, allowed && can_be_early_ ? cudaGraphDependencyTypeProgrammatic
                                                      : cudaGraphDependencyTypeDefault);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
}

// Kernels of ours behind one another, a memset, a copy and products of cuBLASLt (17 rows) and of
// ours (few rows, which prefetch), each writing what the next one reads.
TEST_F(EarlyGridsTest, ChainsHaveTheSameBitsEarlyAndLateInGraphsAndWithout) {
  constexpr int64_t kK = 2048;
  constexpr int kRounds = 100;
  for (const int64_t rows : {1, 16, 17}) {
    Random random(71);
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, kK, random);
    const DeviceTensor in(b(), x), gain(b(), HostTensor::Of(kernels::DType::kF32, 1, kK, random)),
        up(b(), HostTensor::Of(kernels::DType::kBF16, kK, kK, random)),
        gate(b(), HostTensor::Of(kernels::DType::kBF16, kK, kK, random)), residual(b(), x),
        normed(b(), x), first(b(), x), second(b(), x),
        sum(b(), HostTensor::Poisoned(kernels::DType::kF32, rows, kK));
    const kernels::Tensor none;
    const auto chain = [&] {
      const kernels::Tensor to = residual, from = in, sums = sum;
      EXPECT_EQ(
          cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, b().stream()),
          cudaSuccess);
      EXPECT_EQ(cudaMemsetAsync(sums.data, 0, sums.bytes(), b().stream()), cudaSuccess);
      for (int layer = 0; layer < 4; ++layer) {
        b().AddSumNorm(normed, residual, sum, none, gain, 1e-5f);
        const std::array products = {kernels::Product{first, gate.weight(), none},
                                     kernels::Product{second, up.weight(), none}};
        b().MatMuls(normed, products);
        b().SiluMul(first, first, second);
        b().MatMul(sum, first, gate.weight(), none);
      }
    };
    const auto result = [&] { return residual.Get(); };
    const auto same = [](const HostTensor& a, const HostTensor& c) {
      return std::memcmp(a.bytes().data(), c.bytes().data(), a.bytes().size()) == 0;
    };
    kernels::cuda::AllowEarlyGrids(false);
    chain();
    const HostTensor expected = result();
    for (const bool allowed : {false, true}) {
      kernels::cuda::AllowEarlyGrids(allowed);
      for (int i = 0; i < kRounds; ++i) {
        chain();
        ASSERT_TRUE(same(result(), expected)) << rows << " rows, round " << i << ", " << allowed;
      }
      const cudaGraph_t graph = Capture(chain);
      cudaGraphExec_t executable = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
      for (int i = 0; i < kRounds; ++i) {
        ASSERT_EQ(cudaGraphLaunch(executable, b().stream()), cudaSuccess);
        ASSERT_TRUE(same(result(), expected))
            << rows << " rows, graph, round " << i << ", " << allowed;
      }
      EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
}

}  // namespace
}  // namespace continuo::testing
