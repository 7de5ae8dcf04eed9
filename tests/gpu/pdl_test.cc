// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch (docs/decisions/0112-cuda-pdl.md): graphs have its edges, and no
// bit depends on it.
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/runtime/device_info.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/cases/ops_cases.h"

namespace continuo::testing {
namespace {

class PdlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    if (!devices.ok()) GTEST_SKIP() << "skipped: no device: " << devices.status();
    device_ = devices->front();
    can_overlap_ = device_.major >= 9;
  }

  // Makes a device whose kernels use programmatic dependent launch, or do not.
  std::unique_ptr<kernels::cuda::CudaDevice> Make(bool pdl) {
    auto backend = kernels::cuda::CudaDevice::Make(
        {.device = device_, .options = {.pdl = pdl}, .small_m = true});
    CONTINUO_CHECK(backend.ok());
    return *std::move(backend);
  }

  kernels::cuda::DeviceInfo device_;
  bool can_overlap_ = false;
};

// Captures what work() enqueues on the device's stream.
template <typename Work>
cudaGraph_t Capture(kernels::cuda::CudaDevice& b, Work work) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(b.context().stream().get(), cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  work();
  EXPECT_EQ(cudaStreamEndCapture(b.context().stream().get(), &graph), cudaSuccess);
  return graph;
}

#if CUDART_VERSION >= 13000
constexpr auto& GetEdges = cudaGraphGetEdges;
#else
constexpr auto& GetEdges = cudaGraphGetEdges_v2;
#endif

std::vector<cudaGraphEdgeData> EdgesOf(cudaGraph_t graph) {
  size_t n = 0;
  EXPECT_EQ(GetEdges(graph, nullptr, nullptr, nullptr, &n), cudaSuccess);
  std::vector<cudaGraphNode_t> from(n), to(n);
  std::vector<cudaGraphEdgeData> edges(n);
  EXPECT_EQ(GetEdges(graph, from.data(), to.data(), edges.data(), &n), cudaSuccess);
  return edges;
}

TEST_F(PdlTest, EdgesBetweenKernelsInGraphsAreProgrammaticWhereAllowed) {
  for (const bool pdl : {true, false}) {
    const auto backend = Make(pdl);
    kernels::cuda::CudaDevice& b = *backend;
    Random random(70);
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, 3, 64, random);
    const DeviceTensor in(b, x), gain(b, HostTensor::Of(kernels::DType::kF32, 1, 64, random)),
        middle(b, x), out(b, x);
    const cudaGraph_t graph = Capture(b, [&] {
      b.ops().rows.RmsNorm(middle, in, gain, 1e-5f);
      b.ops().rows.RmsNorm(out, middle, gain, 1e-5f);
    });
    const auto edges = EdgesOf(graph);
    ASSERT_EQ(edges.size(), 1u);
    EXPECT_EQ(edges[0].type, pdl && can_overlap_ ? cudaGraphDependencyTypeProgrammatic
                                                 : cudaGraphDependencyTypeDefault);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
}

// The chain has kernels of ours behind one another, a memset, a copy, products of cuBLASLt (17
// rows) and small-M products of ours, which prefetch. Each writes what the next one reads.
TEST_F(PdlTest, ChainsHaveTheSameBitsWithAndWithoutInGraphsAndEagerly) {
  constexpr int64_t kK = 2048;
  constexpr int kRounds = 100;
  for (const int64_t rows : {1, 16, 17}) {
    std::optional<HostTensor> expected;  // of the first eager run without it
    for (const bool pdl : {false, true}) {
      const auto backend = Make(pdl);
      kernels::cuda::CudaDevice& b = *backend;
      Random random(71);
      const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, kK, random);
      const DeviceTensor in(b, x), gain(b, HostTensor::Of(kernels::DType::kF32, 1, kK, random)),
          up(b, HostTensor::Of(kernels::DType::kBF16, kK, kK, random)),
          gate(b, HostTensor::Of(kernels::DType::kBF16, kK, kK, random)), residual(b, x),
          normed(b, x), first(b, x), second(b, x),
          sum(b, HostTensor::Poisoned(kernels::DType::kF32, rows, kK));
      const kernels::Tensor none;
      const auto chain = [&] {
        const kernels::Tensor to = residual, from = in, sums = sum;
        EXPECT_EQ(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice,
                                  b.context().stream().get()),
                  cudaSuccess);
        EXPECT_EQ(cudaMemsetAsync(sums.data, 0, sums.bytes(), b.context().stream().get()),
                  cudaSuccess);
        for (int layer = 0; layer < 4; ++layer) {
          b.ops().rows.AddSumNorm(normed, residual, sum, none, gain, 1e-5f);
          const std::array products = {kernels::Product{first, gate.weight(), none},
                                       kernels::Product{second, up.weight(), none}};
          b.ops().matmul.MatMuls(normed, products);
          b.ops().rows.GateMul(kernels::GateFunction::kSilu, first, first, second);
          b.ops().matmul.MatMul(sum, first, gate.weight(), none);
        }
      };
      const auto is_expected = [&] {
        const HostTensor got = residual.Get();
        if (!expected.has_value()) expected = got;
        return std::memcmp(got.bytes().data(), expected->bytes().data(), got.bytes().size()) == 0;
      };
      for (int i = 0; i < kRounds; ++i) {
        chain();
        ASSERT_TRUE(is_expected()) << rows << " rows, round " << i << ", " << pdl;
      }
      const cudaGraph_t graph = Capture(b, chain);
      cudaGraphExec_t executable = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
      for (int i = 0; i < kRounds; ++i) {
        ASSERT_EQ(cudaGraphLaunch(executable, b.context().stream().get()), cudaSuccess);
        ASSERT_TRUE(is_expected()) << rows << " rows, graph, round " << i << ", " << pdl;
      }
      EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
}

}  // namespace
}  // namespace continuo::testing
