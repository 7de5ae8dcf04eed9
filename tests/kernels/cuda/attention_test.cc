// SPDX-License-Identifier: Apache-2.0
// CudaAttention over the shim, which runs the kernels thread by thread.
#include "kernels/device.h"

#include <array>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/cases/attention_cases.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

// Attention by mma.sync alone, as on devices before compute capability 9.0.
kernels::DeviceOptions WithoutWgmma(bool deterministic) {
  return {.deterministic = deterministic, .wgmma_prefill = false};
}

// The cases are long sequences among short ones, chunks behind a prefix, and one row each.
TEST_F(CudaDeviceTest, AttentionOnTensorCoresIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    MakeWith({.options = WithoutWgmma(deterministic)});
    for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{
             {4, 1, 64}, {6, 2, 128}, {3, 1, 40}, {2, 1, 256}, {2, 2, 96}}) {
      for (const int window : {0, 70}) {
        for (const kernels::DType type : kNumbers) {
          CheckAttention(b(), {{1, 1}, {5, 5}, {129, 3}, {200, 37}},
                         Heads(heads, kv_heads, dim, window), type, 16);
          CheckAttention(b(), {{300, 1}, {7, 1}, {64, 1}}, Heads(heads, kv_heads, dim, window),
                         type, 7);
          if (HasFatalFailure()) return;
        }
      }
    }
    kernels::AttentionParams capped = Heads(4, 2, 64, 70);
    capped.softcap = 5;
    for (const kernels::DType type : kNumbers) {
      CheckAttention(b(), {{130, 40}, {90, 1}}, capped, type, 16);
      CheckAttention(b(), {{70, 9}}, Heads(70, 1, 16), type, 16);
      CheckAttention(b(), {{130, 1}, {3, 1}}, Heads(16, 1, 64), type, 16);
    }
  }
}

TEST_F(CudaDeviceTest, SinksTakeTheirPartOfTheWeights) {
  for (const bool deterministic : {false, true}) {
    MakeWith({.options = WithoutWgmma(deterministic)});
    CheckAllSinks(b());
  }
  MakeWith({});
  CheckAllSinks(b());
}

// The same over 8-bit keys and values; none of it goes the way of other types.
TEST_F(CudaDeviceTest, AttentionOverBytesOnTensorCoresIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    MakeWith({.options = WithoutWgmma(deterministic)});
    for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{
             {4, 1, 64}, {6, 2, 128}, {3, 1, 40}, {2, 1, 256}, {2, 2, 96}, {2, 1, 8}}) {
      for (const int window : {0, 70}) {
        const kernels::AttentionParams params = Heads(heads, kv_heads, dim, window);
        CheckAttentionOverBytes(b(), {{1, 1}, {5, 5}, {129, 3}, {200, 37}}, params, {16});
        CheckAttentionOverBytes(b(), {{300, 1}, {7, 1}, {64, 1}}, params, {7, 4});
        if (HasFatalFailure()) return;
      }
    }
    kernels::AttentionParams capped = Heads(4, 2, 64, 70);
    capped.softcap = 5;
    CheckAttentionOverBytes(b(), {{130, 40}, {90, 1}}, capped, {16, 2});
    CheckAttentionOverBytes(b(), {{70, 9}}, Heads(70, 1, 16), {16});
    CheckAttentionOverBytes(b(), {{130, 1}, {3, 1}}, Heads(16, 1, 64), {16});
    CheckAttentionOverBytes(b(), {{1100, 1}}, Heads(4, 2, 64), {16});  // in splits
    CheckAttentionOverBytes(b(), {{1100, 3}, {5, 1}}, Heads(4, 2, 64, 600), {5});
  }
  const std::vector<ShimCall> calls = CudaShim::Calls();
  EXPECT_THAT(calls, ::testing::Contains(ShimCall{0, "MergeSplits", 1}));
  for (const ShimCall& call : calls) EXPECT_NE(call.function, "SimpleAttention");
}

// With many rows only the sample's are compared.
TEST_F(CudaDeviceTest, AttentionOfSomeRowsIsWhatTheReferenceSays) {
  CheckAttention(b(), {{200, 1}, {90, 60}, {3, 3}, {150, 40}}, Heads(4, 2, 64),
                 kernels::DType::kBF16, 16, std::nullopt, /*most_checked=*/6);
}

TEST_F(CudaDeviceTest, AttentionIsSplitWhereTilesAreFew) {
  // 8 multiprocessors take 24 blocks at once, of which 2 key-value heads and one tile are 2.
  CheckAttention(b(), {{1100, 2}}, Heads(4, 2, 64), kernels::DType::kBF16, 16);
  EXPECT_THAT(CudaShim::Calls(), ::testing::Contains(ShimCall{0, "MergeSplits", 1}));
  for (const kernels::DType type : kNumbers) {
    CheckAttention(b(), {{1100, 3}, {5, 1}}, Heads(4, 2, 64, 600), type, 16);
  }
}

TEST_F(CudaDeviceTest, AttentionOfPromptsByWarpgroupsIsWhatTheReferenceSays) {
  CheckPromptAttention(b());
  CheckPromptAttention(b(), kernels::DType::kI8);
  CheckPromptAttention(b(), kernels::DType::kF8);
  EXPECT_EQ(CudaShim::NumCalls(0, "TileAttention"), 0);
  EXPECT_THAT(CudaShim::Calls(), ::testing::Contains(ShimCall{0, "MergeSplits", 1}));
  // These cases are not for the wgmma kernel.
  const int before = CudaShim::NumCalls(0, "WgmmaAttention");
  CheckAttention(b(), {{130, 1}, {3, 1}}, Heads(4, 2, 64), kernels::DType::kBF16, 16);
  CheckAttention(b(), {{40, 9}}, Heads(4, 2, 256), kernels::DType::kBF16, 16);
  Make(true);
  CheckAttention(b(), {{40, 9}}, Heads(4, 2, 64), kernels::DType::kBF16, 16);
  MakeWith({.options = WithoutWgmma(false)});
  CheckAttention(b(), {{40, 9}}, Heads(4, 2, 64), kernels::DType::kBF16, 16);
  EXPECT_EQ(CudaShim::NumCalls(0, "WgmmaAttention"), before);
}

TEST_F(CudaDeviceTest, SequencesOfOneRowHaveAKernelOfTheirOwnBesidePromptsToo) {
  // Launches of DecodeAttention and of TileAttention.
  using Launches = std::pair<int, int>;
  const auto launches = [&](std::vector<PagedCase::Sequence> sequences, bool deterministic,
                            int heads = 4) {
    MakeWith({.options = WithoutWgmma(deterministic)});
    const auto now = [] {
      return Launches(CudaShim::NumCalls(0, "DecodeAttention"),
                      CudaShim::NumCalls(0, "TileAttention"));
    };
    const Launches before = now();
    CheckAttention(b(), std::move(sequences), Heads(heads, 1, 64), kernels::DType::kBF16, 16);
    return Launches(now().first - before.first, now().second - before.second);
  };
  EXPECT_EQ(launches({{130, 1}, {3, 1}}, false), Launches(1, 0));
  EXPECT_EQ(launches({{130, 1}, {3, 1}, {90, 40}}, false), Launches(1, 1));
  // Only the first ones are known to be decodes.
  EXPECT_EQ(launches({{90, 40}, {3, 1}}, false), Launches(0, 1));
  EXPECT_EQ(launches({{130, 1}, {3, 1}, {90, 40}}, true), Launches(0, 1));
  EXPECT_EQ(launches({{130, 1}}, false, 16), Launches(1, 0));
  EXPECT_EQ(launches({{130, 1}}, false, 17), Launches(0, 1));
}

// Blocks begin and end inside of tiles, at their borders and near them, have parts of several, and
// several share one.
TEST_F(CudaDeviceTest, SharesOfDecodesAreMerged) {
  for (const auto& [heads, kv_heads, dim] :
       std::vector<std::array<int, 3>>{{4, 2, 64}, {12, 1, 128}, {6, 3, 256}}) {
    for (const int window : {0, 700}) {
      const kernels::AttentionParams params = Heads(heads, kv_heads, dim, window);
      const std::vector<PagedCase::Sequence> sequences = {{1500, 1}, {3, 1},   {129, 1}, {2000, 1},
                                                          {900, 1},  {256, 1}, {1, 1},   {640, 1}};
      for (const kernels::DType type : kNumbers) CheckAttention(b(), sequences, params, type, 16);
      CheckAttentionOverBytes(b(), sequences, params, {32});
    }
  }
  CheckAttention(b(), std::vector<PagedCase::Sequence>(300, {7, 1}), Heads(4, 2, 64),
                 kernels::DType::kBF16, 16);
}

TEST_F(CudaDeviceTest, AttentionOfOtherTypesIsWhatTheReferenceSays) {
  for (const int window : {0, 70}) {
    for (const auto& [heads, kv_heads, dim] :
         std::vector<std::array<int, 3>>{{1, 1, 1}, {4, 2, 20}, {3, 1, 33}}) {
      CheckAttention(b(), {{1, 1}, {5, 5}, {128, 1}, {129, 3}, {200, 7}},
                     Heads(heads, kv_heads, dim, window), kernels::DType::kF32, 7);
      for (const kernels::DType kept : {kernels::DType::kI8, kernels::DType::kF8}) {
        for (const kernels::DType type : kActivations) {
          CheckAttention(b(), {{129, 3}, {1, 1}}, Heads(heads, kv_heads, dim, window), type, 16,
                         kept);
        }
      }
      for (const kernels::DType type : kNumbers) {
        CheckAttention(b(), {{129, 3}}, Heads(heads, kv_heads, 33, window), type, 16);
      }
    }
  }
  kernels::AttentionParams capped = Heads(6, 2, 20, 70);
  capped.softcap = 5;
  CheckAttention(b(), {{130, 3}}, capped, kernels::DType::kF32, 16);
}

TEST_F(CudaDeviceTest, RowsSeeTheirOwnChunkAlone) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckChunkedAttention(b());
  }
}

TEST_F(CudaDeviceTest, AttentionOfAFewShapesIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFewShapes(b());
  }
}

TEST_F(CudaDeviceTest, StrangeKeysAndValuesReachTheRowsThatSeeThemAlone) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::DType type : kNumbers) CheckStrangeKeysAndValues(b(), type);
  }
}

TEST_F(CudaDeviceTest, EveryByteOfTheCacheStandsForItsNumber) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::DType type : kNumbers) {
      for (const bool is_decode : {true, false}) {
        for (const float scale : {1.0f, 0x1.02p-20f}) CheckEveryByte(b(), type, scale, is_decode);
      }
    }
  }
}

TEST_F(CudaDeviceTest, DeterministicAttentionDoesNotDependOnTheStep) {
  Make(true);
  CheckDeterministicAttention(b());
}

}  // namespace
}  // namespace continuo::testing
