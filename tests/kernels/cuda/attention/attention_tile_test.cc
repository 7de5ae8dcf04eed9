// SPDX-License-Identifier: Apache-2.0
// How a warp turns scores into weights, and how attention is cut for a device.
#include "kernels/cuda/attention/attention_tile.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention/tile_attention.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/stream.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using testing::CudaShim;
using ::testing::IsEmpty;

using Tile = Shape<uint16_t, uint16_t, 64, 1, 16>;

// The state of a lane.
struct State {
  float sum, max, weight;
};

// Weighs the scores of the first 16 positions, one of which is `largest`, then as many tiles of
// which no query sees anything.
void WeighAndSeeNothing(State* before, State* after, float largest, float scale, int tiles) {
  WaitForPreviousKernel();
  const int lane = static_cast<int>(threadIdx.x);
  AttentionStep step;
  step.scale = scale;
  Accumulator<Tile> acc;
  for (int half = 0; half < 2; ++half) {
    acc.first[half] = 0;
    acc.last[half] = 15;
  }
  float scores[2][4] = {{largest, -3, 0.3f, largest}, {1, -1, 2, 0.1f}};
  float shrink[2];
  Weigh<Tile>(acc, shrink, scores, step, 0, true, nullptr);
  for (int half = 0; half < 2; ++half) acc.sums[0][half * 2] = 0.1f * static_cast<float>(lane + 1);
  before[lane] = {acc.sums[0][0], acc.max[0], acc.weight[0]};
  for (int i = 0; i < tiles; ++i) {
    float unseen[2][4] = {{5, 6, 7, 8}, {9, 10, 11, 12}};
    Weigh<Tile>(acc, shrink, unseen, step, 64, false, nullptr);
    ShrinkSums<Tile>(acc, shrink);
  }
  after[lane] = {acc.sums[0][0], acc.max[0], acc.weight[0]};
}

TEST(AttentionTileTest, PositionsThatNobodySeesChangeNothing) {
  CudaShim::Reset({});
  Stream stream = *Stream::Make(0);
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const float largest = std::uniform_real_distribution<float>(0.01f, 300)(random);
    std::vector<State> before(kWarp), after(kWarp);
    ASSERT_EQ(Launch("kernel", WeighAndSeeNothing, dim3(1), kWarp, 0, stream.kernels(),
                     before.data(), after.data(), largest, 0.125f, 3),
              cudaSuccess);
    ASSERT_TRUE(stream.Synchronize().ok());
    for (int lane = 0; lane < kWarp; ++lane) {
      EXPECT_EQ(after[lane].sum, before[lane].sum) << largest;
      EXPECT_EQ(after[lane].max, before[lane].max) << largest;
      EXPECT_EQ(after[lane].weight, before[lane].weight) << largest;
    }
  }
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(DivisorTest, DividesAsTheHostDoes) {
  std::mt19937 random(2);
  std::vector<uint32_t> divisors = {1, 2, 3, 5, 7, 16, 64, 100, 1023, 1024, 1025, 0x7fffffff};
  for (int i = 0; i < 1000; ++i) divisors.push_back(1 + random() % (2u << random() % 30));
  for (const uint32_t d : divisors) {
    const Divisor divisor = Divisor::Of(d);
    std::vector<uint32_t> numbers = {
        0, 1, d - 1, d, 0x7fffffff, 0x7fffffff / d * d, 0x7fffffff / d * d - 1};
    for (int i = 0; i < 100; ++i) numbers.push_back(random());
    for (const uint32_t n : numbers) {
      EXPECT_EQ(divisor.Divide(n & 0x7fffffff), (n & 0x7fffffff) / d) << n << " / " << d;
    }
  }
}

// Returns a step of one row each of 32 heads over 8 key-value heads.
AttentionStep StepOf(int num_seqs) {
  AttentionStep step;
  step.rows = step.num_seqs = num_seqs;
  step.num_heads = 32;
  step.num_kv_heads = 8;
  step.head_dim = 128;
  step.heads_per_kv_head = 4;
  return step;
}

TileAttentionPlan PlanOf(int num_seqs, int64_t max_kv_len) {
  return PlanTileAttention(StepOf(num_seqs), max_kv_len, /*num_multiprocessors=*/132,
                           size_t{64} << 20, /*deterministic=*/false, /*wgmma=*/false);
}

TEST(TileAttentionPlanTest, FewSequencesAreSplitToFillTheDevice) {
  EXPECT_EQ(PlanOf(1, 1024).num_splits, 8);
  EXPECT_EQ(PlanOf(1, 65536).num_splits, 64);
  EXPECT_EQ(PlanOf(8, 4096).num_splits, 8);    // splits of 512 positions
  EXPECT_EQ(PlanOf(8, 4096).split_tokens, 0);  // splits follow each sequence's positions
  EXPECT_EQ(PlanOf(64, 1024).num_splits, 2);
  EXPECT_EQ(PlanOf(256, 1024).num_splits, 1);
  EXPECT_EQ(PlanOf(1, 64).num_splits, 1);
}

TEST(TileAttentionPlanTest, ALongSequenceIsSplitBesideManyOthers) {
  for (const int64_t max_kv_len : {8192, 16384, 131072}) {
    const TileAttentionPlan plan = PlanOf(256, max_kv_len);
    EXPECT_GE(plan.num_splits, 2);
    EXPECT_GE(plan.split_tokens, 4096);
    EXPECT_EQ(plan.split_tokens % 128, 0);
    EXPECT_GE(plan.split_tokens * plan.num_splits, max_kv_len);
  }
}

TEST(TileAttentionPlanTest, LaunchesFitTheScratch) {
  for (const int num_seqs : {1, 64, 512}) {
    for (const int64_t max_kv_len : {1024, 8192, 131072}) {
      const TileAttentionPlan plan = PlanOf(num_seqs, max_kv_len);
      EXPECT_EQ(plan.tile_size, 64);
      const int64_t floats =
          plan.tiles_per_launch * 8 * plan.num_splits * plan.tile_size * (128 + 2);
      EXPECT_TRUE(plan.num_splits == 1 || floats * 4 <= int64_t{64} << 20);
      EXPECT_GE(plan.tiles_per_launch, 1);
    }
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
