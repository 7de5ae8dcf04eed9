// SPDX-License-Identifier: Apache-2.0
// CudaAttention on a device.
#include "kernels/device.h"

#include <array>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/device_fixture.h"
#include "tests/gpu/model_sizes.h"
#include "tests/kernels/cuda/cases/attention_cases.h"

namespace continuo::testing {
namespace {

// The most rows of a sequence that are compared.
constexpr int64_t kChecked = 48;

kernels::AttentionParams HeadsOf(const ModelSizes& m) {
  return Heads(m.heads, m.kv_heads, kHeadDim);
}

// Calls check with the models' heads and other head sizes in use, with windows and several block
// sizes.
template <typename Check>
void WithHeads(Check check) {
  for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{{16, 8, 128},
                                                                            {32, 8, 128},
                                                                            {8, 1, 128},
                                                                            {32, 8, 64},
                                                                            {8, 4, 256},
                                                                            {6, 2, 96},
                                                                            {4, 2, 40},
                                                                            {70, 1, 16}}) {
    for (const int window : {0, 70}) {
      for (const int64_t block_size : {7, 16}) {
        check(Heads(heads, kv_heads, dim, window), block_size);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

kernels::AttentionParams Capped() {
  kernels::AttentionParams capped = Heads(8, 4, 256, 70);
  capped.softcap = 5;
  return capped;
}

void CheckHeads(kernels::Device& b) {
  WithHeads([&](const kernels::AttentionParams& params, int64_t block_size) {
    for (const kernels::DType type : kNumbers) {
      CheckAttention(b, {{1, 1}, {5, 5}, {129, 3}, {700, 137}}, params, type, block_size,
                     std::nullopt, kChecked);
      CheckAttention(b, {{1500, 1}, {7, 1}, {64, 1}}, params, type, block_size);
    }
    CheckAttention(b, {{200, 7}, {1, 1}}, params, kernels::DType::kF32, block_size);
    CheckAttention(b, {{200, 7}, {1, 1}}, params, kernels::DType::kF32, block_size,
                   kernels::DType::kF8);
  });
  for (const kernels::DType type : kNumbers) {
    CheckAttention(b, {{130, 40}, {1090, 1}}, Capped(), type, 16);
  }
}

TEST_F(GpuDeviceTest, AttentionIsWhatTheReferenceSays) { CheckHeads(b()); }

TEST_F(GpuDeviceTest, AttentionIsWhatTheReferenceSaysWhereDeterministic) {
  Make(true);
  CheckHeads(b());
}

void CheckHeadsOverBytes(kernels::Device& b) {
  WithHeads([&](const kernels::AttentionParams& params, int64_t block_size) {
    CheckAttentionOverBytes(b, {{1, 1}, {5, 5}, {129, 3}, {700, 137}}, params, {block_size},
                            kChecked);
    CheckAttentionOverBytes(b, {{1500, 1}, {7, 1}, {64, 1}}, params, {block_size});
  });
  CheckAttentionOverBytes(b, {{130, 40}, {1090, 1}}, Capped(), {16, 5});
}

TEST_F(GpuDeviceTest, AttentionIsWhatTheReferenceSaysOverBytes) { CheckHeadsOverBytes(b()); }

TEST_F(GpuDeviceTest, AttentionIsWhatTheReferenceSaysOverBytesWhereDeterministic) {
  Make(true);
  CheckHeadsOverBytes(b());
}

// A step of 64 sequences, with and without a prompt beside them.
void CheckManySequences(kernels::Device& b) {
  std::vector<PagedCase::Sequence> sequences;
  for (int i = 0; i < 64; ++i) sequences.push_back({1 + i * 61 % 800, 1});
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    for (const kernels::DType type : kNumbers) CheckAttention(b, sequences, HeadsOf(m), type, 16);
    CheckAttentionOverBytes(b, sequences, HeadsOf(m), {16});
  }
  sequences.push_back({900, 300});
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    CheckAttention(b, sequences, HeadsOf(m), kernels::DType::kBF16, 16, std::nullopt, kChecked);
  }
}

TEST_F(GpuDeviceTest, AttentionIsRightOfManySequences) { CheckManySequences(b()); }

TEST_F(GpuDeviceTest, AttentionIsRightOfManySequencesWhereDeterministic) {
  Make(true);
  CheckManySequences(b());
}

// One sequence has this many positions, beside a short one.
constexpr int64_t kLong = 32768;

void CheckLong(kernels::Device& b, int64_t rows, int64_t most_checked) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    const std::vector<PagedCase::Sequence> sequences = {{kLong, rows}, {37, 1}};
    for (const kernels::DType type : kNumbers) {
      CheckAttention(b, sequences, HeadsOf(m), type, 16, std::nullopt, most_checked);
    }
    for (const kernels::DType kept : {kernels::DType::kI8, kernels::DType::kF8}) {
      CheckAttention(b, sequences, HeadsOf(m), kernels::DType::kBF16, 16, kept, most_checked);
    }
  }
}

TEST_F(GpuDeviceTest, AttentionIsRightOfALongSequence) { CheckLong(b(), 1, kAll); }

TEST_F(GpuDeviceTest, AttentionIsRightOfALongSequenceWhereDeterministic) {
  Make(true);
  CheckLong(b(), 1, kAll);
}

TEST_F(GpuDeviceTest, AttentionIsRightOfALongPrompt) { CheckLong(b(), 300, /*most_checked=*/3); }

TEST_F(GpuDeviceTest, AttentionOfAFewShapesIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFewShapes(b());
  }
}

TEST_F(GpuDeviceTest, SinksTakeTheirPartOfTheWeights) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckAllSinks(b());
  }
}

TEST_F(GpuDeviceTest, AttentionOfPromptsIsWhatTheReferenceSays) {
  for (const bool wgmma : {false, true}) {
    MakeWith({.options = {.wgmma_prefill = wgmma}});
    CheckPromptAttention(b());
    CheckChunkedAttention(b());
    CheckPromptAttention(b(), kernels::DType::kI8);
    CheckPromptAttention(b(), kernels::DType::kF8);
  }
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    for (const kernels::DType type : kNumbers) {
      CheckAttention(b(), {{700, 700}, {2000, 130}}, HeadsOf(m), type, 16, std::nullopt, kChecked);
      CheckAttention(b(), {{kPrompt, kPrompt}}, HeadsOf(m), type, 16, std::nullopt, kChecked);
      CheckAttention(b(), {{9000, 300}}, HeadsOf(m), type, 16, std::nullopt, /*most_checked=*/12);
    }
    CheckAttentionOverBytes(b(), {{700, 700}, {2000, 130}}, HeadsOf(m), {16}, kChecked);
    CheckAttentionOverBytes(b(), {{9000, 300}}, HeadsOf(m), {16}, /*most_checked=*/12);
  }
}

TEST_F(GpuDeviceTest, StrangeKeysAndValuesReachTheRowsThatSeeThemAlone) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::DType type : kNumbers) CheckStrangeKeysAndValues(b(), type);
  }
}

TEST_F(GpuDeviceTest, EveryByteOfTheCacheStandsForItsNumber) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::DType type : kNumbers) {
      for (const bool is_decode : {true, false}) {
        for (const float scale : {1.0f, 0x1.02p-20f}) CheckEveryByte(b(), type, scale, is_decode);
      }
    }
  }
}

TEST_F(GpuDeviceTest, DeterministicAttentionDoesNotDependOnTheStep) {
  Make(true);
  ASSERT_TRUE(why_.ok());
  CheckDeterministicAttention(b());
}

}  // namespace
}  // namespace continuo::testing
