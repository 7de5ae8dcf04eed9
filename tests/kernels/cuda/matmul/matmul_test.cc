// SPDX-License-Identifier: Apache-2.0
// The algorithms of cuBLASLt that CublasLtMatMul takes, over the shim.
#include "kernels/cuda/matmul/cublaslt_matmul.h"

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/stream.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/cases/matmul_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using testing::CudaShim;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ShimOptions;
using testing::ShimProduct;

constexpr int64_t kMiB = 1 << 20;

class CublasLtMatMulTest : public ::testing::Test {
 protected:
  ~CublasLtMatMulTest() override {
    matmul_.reset();
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
  void Make(bool deterministic, const ShimOptions& options = {}, bool fast = false) {
    matmul_.reset();
    CudaShim::Reset(options);
    auto made =
        CublasLtMatMul::Make(0, {.deterministic = deterministic, .fp8_fast_accumulation = fast});
    ASSERT_TRUE(made.ok()) << made.status();
    matmul_ = *std::move(made);
  }
  // Multiplies zeros that lie this many bytes behind a multiple of 256.
  absl::Status Run(int64_t rows, int64_t columns, int64_t k, DType type = DType::kBF16,
                   int64_t x_offset = 0, int64_t out_offset = 0) {
    auto stream = Stream::Make(0);
    const auto zeros = [&](int64_t n) {
      auto buffer = DeviceBuffer::Make(0, static_cast<size_t>(n * 4) + 512);
      CONTINUO_CHECK(buffer.ok());
      CONTINUO_CHECK(cudaMemsetAsync(buffer->data(), 0, buffer->bytes(), stream->get()) ==
                     cudaSuccess);
      return *std::move(buffer);
    };
    const auto at = [](const DeviceBuffer& buffer, int64_t offset) -> void* {
      return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(buffer.data()) + 255) / 256 *
                                     256) +
             offset;
    };
    const DeviceBuffer x = zeros(rows * k), w = zeros(columns * k), out = zeros(rows * columns);
    const absl::Status status = matmul_->Run({at(out, out_offset), type, {rows, columns, 1}},
                                             {at(x, x_offset), type, {rows, k, 1}},
                                             {at(w, 0), type, {columns, k, 1}}, stream->get());
    CONTINUO_CHECK(stream->Synchronize().ok());
    return status;
  }

  std::unique_ptr<CublasLtMatMul> matmul_;
};

// The place of a row among others does not change how it is computed.
TEST_F(CublasLtMatMulTest, DeterministicAlgorithmsDoNotDependOnWhereRowsLie) {
  Make(true);
  const auto num_picked = [] { return CudaShim::NumCalls(0, "cublasLtMatmulAlgoGetHeuristic"); };
  for (const int64_t offset : {0, 16, 32, 48, 128})
    EXPECT_TRUE(Run(2, 8, 64, DType::kBF16, offset, offset).ok());
  EXPECT_EQ(num_picked(), 1);
  for (int64_t row = 0; row < 9; ++row) {  // rows of 6 and 10 bytes
    EXPECT_TRUE(Run(2, 5, 3, DType::kBF16, 6 * row, 10 * row).ok());
  }
  EXPECT_EQ(num_picked(), 2);
}

// Prompts have any number of rows; few of them ask for an algorithm.
TEST_F(CublasLtMatMulTest, NeighbouringNumbersOfRowsShareAnAlgorithm) {
  Make(false, {.num_algorithms = 2, .workspace_of = [](const ShimProduct& product) {
                 return product.rows == 23 && product.algorithm == 0 ? -1 : 0;
               }});
  const auto picked_by = [&](std::initializer_list<int64_t> row_counts) {
    const int before = CudaShim::NumCalls(0, "cublasLtMatmulAlgoGetHeuristic");
    for (const int64_t rows : row_counts) EXPECT_EQ(Run(rows, 8, 64), absl::OkStatus()) << rows;
    return CudaShim::NumCalls(0, "cublasLtMatmulAlgoGetHeuristic") - before;
  };
  EXPECT_EQ(picked_by({1}), 1);
  EXPECT_EQ(picked_by({9, 16, 12}), 1);
  EXPECT_EQ(picked_by({17, 31, 32, 20}), 1);
  EXPECT_EQ(picked_by({23, 23}), 1);  // which the others' does not compute
  EXPECT_EQ(picked_by({257, 300, 320}), 1);
  EXPECT_EQ(picked_by({321}), 1);
}

TEST_F(CublasLtMatMulTest, NoAlgorithmIsLookedUpWhileAStreamIsCaptured) {
  Make(false);
  auto stream = Stream::Make(0);
  ASSERT_TRUE(stream.ok());
  const CublasLtShape shape = {.rows = 3, .columns = 16, .k = 64};
  EXPECT_TRUE(matmul_->Has(shape, stream->get()).ok());
  ASSERT_EQ(cudaStreamBeginCapture(stream->get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_TRUE(matmul_->Has(shape, stream->get()).ok());  // it is known
  EXPECT_DEATH((void)matmul_->Has({.rows = 17, .columns = 16, .k = 64}, stream->get()),
               "capturing");
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream->get(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CublasLtMatMulTest, DeterministicAlgorithmsComputeAnyNumberOfRows) {
  Make(true, {.num_algorithms = 5, .workspace_of = [](const ShimProduct& product) -> int64_t {
                const int64_t refused[] = {1, 2, 129, 4096, 0};
                return product.rows == refused[product.algorithm] ? -1 : 0;
              }});
  for (const int64_t rows : {128, 129, 1, 2, 16, 17, 4096}) {
    EXPECT_EQ(Run(rows, 8, 64), absl::OkStatus()) << rows;
  }
}

TEST_F(CublasLtMatMulTest, AlgorithmsThatWantALargerWorkspaceAreNotTaken) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic, {.num_algorithms = 2, .workspace_of = [](const ShimProduct& product) {
                           return product.algorithm == 0 ? 33 * kMiB : 31 * kMiB;
                         }});
    EXPECT_EQ(Run(3, 8, 64), absl::OkStatus());
  }
  Make(true, {.num_algorithms = 2, .workspace_of = [](const ShimProduct& product) {
                return product.algorithm == 0 ? product.rows * kMiB : 0;
              }});
  EXPECT_EQ(Run(40, 8, 64), absl::OkStatus());
  EXPECT_EQ(Run(3, 8, 64), absl::OkStatus());
}

// A deterministic algorithm that computes some numbers of rows computes all, with the same bits.
TEST_F(CublasLtMatMulTest, RowsThatADeterministicAlgorithmRefusesAreMultipliedInParts) {
  constexpr int64_t kColumns = 16, kK = 64;
  const auto all_of = [&](int64_t rows, DType type) {
    auto stream = Stream::Make(0);
    const int64_t width = static_cast<int64_t>(SizeOf(type)), stride = kColumns + 16;
    std::vector<char> numbers(static_cast<size_t>((rows + kColumns) * kK * width));
    for (size_t i = 0; i < numbers.size(); ++i) {
      // Bytes of e4m3, or the upper halves of bf16: numbers between 2^-4 and 2 with either sign.
      numbers[i] = static_cast<char>((type == DType::kF8 ? 0x20 : 0x3d) + i * 7 % 5 + i % 3 * 128);
    }
    std::vector<float> scales(static_cast<size_t>(rows + kColumns));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 1.0f / static_cast<float>(1 + i);
    std::vector<float> sums(static_cast<size_t>(rows * stride), -77.0f);
    const auto on_device = [&](const auto& host) {
      auto buffer = DeviceBuffer::Make(0, host.size() * sizeof(host[0]));
      CONTINUO_CHECK(buffer.ok());
      CONTINUO_CHECK(cudaMemcpyAsync(buffer->data(), host.data(), buffer->bytes(),
                                     cudaMemcpyHostToDevice, stream->get()) == cudaSuccess);
      return *std::move(buffer);
    };
    const DeviceBuffer factors = on_device(numbers), scaled = on_device(scales),
                       out = on_device(sums);
    auto* const x = static_cast<uint8_t*>(factors.data());
    const auto* const x_scales = static_cast<const float*>(scaled.data());
    uint8_t* const w = x + rows * kK * width;
    const absl::Status status =
        type == DType::kF8
            ? matmul_->Run({out.data(), DType::kF32, {rows, kColumns, 1}}, {x, x_scales, rows, kK},
                           {w, x_scales + rows, kColumns, kK}, stream->get())
            : matmul_->Run({out.data(), DType::kF32, {rows, kColumns, 1}}, {x, type, {rows, kK, 1}},
                           {w, type, {kColumns, kK, 1}}, stream->get(), stride);
    CONTINUO_CHECK(status.ok());
    CONTINUO_CHECK(cudaMemcpyAsync(sums.data(), out.data(), out.bytes(), cudaMemcpyDeviceToHost,
                                   stream->get()) == cudaSuccess);
    CONTINUO_CHECK(stream->Synchronize().ok());
    return sums;
  };
  for (const DType type : {DType::kBF16, DType::kF8}) {
    for (const int64_t rows : {77, 3, 64, 131}) {
      Make(true);
      const std::vector<float> whole = all_of(rows, type);
      Make(true, {.workspace_of = [rows](const ShimProduct& product) {
             return product.rows == rows || product.rows == 13 ? -1 : 0;
           }});
      EXPECT_EQ(all_of(rows, type), whole) << rows;
      EXPECT_GT(CudaShim::NumCalls(0, "cublasLtMatmul"), 1);
    }
  }
}

TEST_F(CublasLtMatMulTest, AShapeWithoutAnAlgorithmIsNamed) {
  for (const bool deterministic : {false, true}) {
    for (const bool finds_none : {false, true}) {
      Make(deterministic,
           {.workspace_of = [](const ShimProduct&) { return -1; }, .finds_none = finds_none});
      const absl::Status status = Run(3, 8, 64);
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(status.message()), HasSubstr("[3, 64] · [8, 64]ᵀ"));
    }
  }
}

TEST_F(CublasLtMatMulTest, OnlyProductsInFp8AreAddedUpFast) {
  for (const bool deterministic : {false, true}) {
    for (const bool fast : {false, true}) {
      std::vector<ShimProduct> asked;
      Make(deterministic,
           {.workspace_of =
                [&](const ShimProduct& product) {
                  asked.push_back(product);
                  return 0;
                }},
           fast);
      for (const bool has_scales : {false, true}) {
        const absl::StatusOr<bool> has = matmul_->Has(
            {.rows = 3, .columns = 16, .k = 64, .in = DType::kF8, .has_scales = has_scales});
        EXPECT_TRUE(has.ok() && *has);
      }
      EXPECT_TRUE(matmul_->Has({.rows = 3, .columns = 16, .k = 64}).ok());
      EXPECT_FALSE(asked.empty());
      for (const ShimProduct& product : asked) {
        EXPECT_EQ(product.is_fast, fast && product.is_fp8);
      }
    }
  }
}

// The test on devices prints the shapes that are refused.
TEST_F(CublasLtMatMulTest, MissingAlgorithmsAreThoseThatThereAreNone) {
  for (const bool deterministic : {false, true}) {
    std::vector<std::string> without_scales;
    Make(deterministic);
    EXPECT_THAT(testing::MissingAlgorithms(*matmul_, true, &without_scales), IsEmpty());
    EXPECT_THAT(without_scales, IsEmpty());
    Make(deterministic, {.workspace_of = [](const ShimProduct& product) {
           const bool refused = product.k == 9216 && product.is_fp8 && product.rows <= 256 &&
                                (product.has_scales || product.rows == 127);
           return refused ? -1 : 0;
         }});
    // Deterministic algorithms are not checked for 127 rows, so they are multiplied in parts.
    EXPECT_EQ(testing::MissingAlgorithms(*matmul_, true, &without_scales).size(),
              deterministic ? 0u : 2u);
    EXPECT_EQ(without_scales.size(), deterministic ? 16u : 12u);
    EXPECT_THAT(without_scales, Each(HasSubstr("k 9216")));
    without_scales.clear();
    EXPECT_THAT(testing::MissingAlgorithms(*matmul_, false, &without_scales), IsEmpty());
    EXPECT_THAT(without_scales, IsEmpty());
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
