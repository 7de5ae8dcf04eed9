// SPDX-License-Identifier: Apache-2.0
// CudaDevice's ops on a device, at the shapes of Qwen3-0.6B, Llama-3.1-8B and a rank of eight of a
// 70B (model_sizes.h). This file has ops on rows and elements, and sampling; attention_test.cc,
// experts_test.cc and products_test.cc have the others; small_test.cc has a few of each for
// compute-sanitizer.
#include "kernels/device.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/device_fixture.h"
#include "tests/gpu/model_sizes.h"
#include "tests/kernels/cuda/cases/adapter_cases.h"
#include "tests/kernels/cuda/cases/kv_cases.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/kernels/cuda/cases/sampling_cases.h"

namespace continuo::testing {
namespace {

TEST_F(GpuDeviceTest, RowsAndElementsAreWhatTheReferenceSays) {
  CheckEmbed(b(), 5, {1, 7, 300}, 9);
  CheckF16(b());
  CheckRmsNorm(b(), 4, {1, 5, 64, 128, 257, 1024, 4096, 8192});
  CheckAddSum(b(), 5, {1, 9, 64, 520, 1024, 4096, 8192, 8200});
  CheckRopes(b());
  CheckGates(b(), 2, {1, 255, 264, 3072});
  CheckSoftCap(b(), 3, 333);
  CheckGatherRows(b(), 6, 300, 4);
  CheckLayerNorm(b(), 3, {2, 5, 64, 300});
  CheckRmsNormBySquares(b(), 3, 5, {1, 20, 64});
  CheckScale(b(), 3, 333);
  CheckScaleBy(b(), 3, 333);
  CheckGrowAngles(b());
  CheckPlainGates(b(), 2, {1, 264});
}

TEST_F(GpuDeviceTest, QueriesAndKeysAreRotatedAndKeptAsTheReferenceSays) {
  CheckRotateAndWriteKvs(b());
  CheckRoundingToE4M3(b());
  CheckWriteKv(b(), *cpu_, {.rows = 6, .kv_heads = 3, .head_dim = 40, .block_size = 5});
}

TEST_F(GpuDeviceTest, AdaptersAddWhatTheirDefinitionSaysToTheirOwnRows) {
  CheckAdapters(b(), 16, 16, 1024, 3072, 1);
  CheckAdapters(b(), 4, 64, 4096, 1024, 21);
  CheckAdapterSplits(b());
}

TEST_F(GpuDeviceTest, ModelsRowsAreEmbeddedAndGathered) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    CheckEmbed(b(), m.vocab, {m.hidden}, kPrompt);
    CheckGatherRows(b(), kPrompt, m.hidden, 256);
  }
}

TEST_F(GpuDeviceTest, ModelsRowsAreAddedAndNormed) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    CheckRmsNorm(b(), 1, {m.hidden});
    CheckRmsNorm(b(), 700, {m.hidden});  // of three
    CheckRmsNorm(b(), kPrompt * m.heads / 3, {kHeadDim});
    for (const int64_t rows : {int64_t{1}, int64_t{17}, kPrompt}) {
      CheckAddSum(b(), rows, {m.hidden});
    }
  }
}

TEST_F(GpuDeviceTest, ModelsGatesAreWhatTheReferenceSays) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    for (const int64_t rows : {int64_t{1}, int64_t{17}, kPrompt}) CheckGates(b(), rows, {m.ffn});
  }
  CheckSoftCap(b(), 64, kQwen.vocab);
}

TEST_F(GpuDeviceTest, ModelsHeadsAreRotatedAndKept) {
  std::vector<int32_t> positions = {8191, 32767, 40959, 131071};
  for (int32_t p = 0; p < kPrompt; ++p) positions.push_back(p);
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim; i += 2) {
      frequencies.push_back(std::pow(m.rope_base, -static_cast<float>(i) / kHeadDim));
    }
    CheckRopeAngles(b(), positions, frequencies, 1.0f);
    CheckRope(b(), kPrompt, m.heads, kHeadDim, kHeadDim / 2);
    for (const int64_t rows : {int64_t{1}, int64_t{17}, kPrompt}) {
      const KvSizes sizes = {
          .rows = rows, .kv_heads = m.kv_heads, .head_dim = kHeadDim, .block_size = 16};
      CheckRotateAndWriteKv(b(), sizes, m.heads, kHeadDim);
      if (rows > 1) CheckWriteKv(b(), *cpu_, sizes);
    }
  }
}

TEST_F(GpuDeviceTest, SamplesAreThoseOfTheHostBitByBit) {
  CheckRandomSamples(b(), {1, 33, 1024, 8195, 20011, 128256, 151936}, 10);
  CheckSums(b(), {1, 7, 50, 99, 333, 701, 1000, 1023, 1027, 3000, 8192, 20011, 151936});
  CheckPeakedSamples(b(), 151936);
  CheckManySamples(b());
  CheckStrangeSamples(b());
}

}  // namespace
}  // namespace continuo::testing
