// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_plan.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

DeviceInfo Of(int index, int64_t free_bytes) {
  return {.index = index, .name = "H100", .total_bytes = 80 * kGiB, .free_bytes = free_bytes};
}

TEST(CheckFitsTest, WeightsScratchAndMarginFitToTheByte) {
  const std::vector<RankNeed> needs = {{.weight_bytes = 1000, .scratch_bytes = 200}};
  EXPECT_TRUE(CheckFits(std::vector<DeviceInfo>{Of(0, 1230)}, needs, 30).ok());
  const absl::Status status = CheckFits(std::vector<DeviceInfo>{Of(0, 1229)}, needs, 30);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(CheckFitsTest, TheLineNamesTheDeviceAndTheNumbers) {
  const absl::Status status =
      CheckFits(std::vector<DeviceInfo>{Of(0, 79 * kGiB), Of(3, 70 * kGiB)},
                std::vector<RankNeed>{{70 * kGiB, kGiB}, {70 * kGiB, kGiB}}, kGiB);
  EXPECT_EQ(status.message(),
            "out of memory: cuda:3 (H100) has 70.00 GiB free of 80.00 GiB; weights take 70.00 GiB, "
            "activations and workspace 1.00 GiB, and 1.00 GiB stay free");
}

TEST(PlanKvBlocksTest, TheDeviceWithTheLeastRoomDecides) {
  const std::vector<DeviceInfo> devices = {Of(0, 10'000), Of(1, 7'050)};
  EXPECT_EQ(*PlanKvBlocks(devices, std::vector<int64_t>{100, 100},
                          {.max_blocks = 1000, .margin_bytes = 50}),
            70);
  // A rank with twice the heads has twice the bytes of a block.
  EXPECT_EQ(*PlanKvBlocks(devices, std::vector<int64_t>{200, 100},
                          {.max_blocks = 1000, .margin_bytes = 50}),
            49);
}

TEST(PlanKvBlocksTest, RanksWithoutHeadsTakeNoRoom) {
  const std::vector<DeviceInfo> devices = {Of(0, 1000), Of(1, 0)};
  EXPECT_EQ(
      *PlanKvBlocks(devices, std::vector<int64_t>{100, 0}, {.max_blocks = 1000, .margin_bytes = 0}),
      10);
}

TEST(PlanKvBlocksTest, SlotsAndWishesAreLimits) {
  const std::vector<DeviceInfo> devices = {Of(0, 10'000)};
  const std::vector<int64_t> block = {100};
  EXPECT_EQ(*PlanKvBlocks(devices, block, {.max_blocks = 30, .margin_bytes = 0}), 30);
  EXPECT_EQ(
      *PlanKvBlocks(devices, block, {.max_blocks = 300, .wanted_blocks = 100, .margin_bytes = 0}),
      100);
  const absl::Status status =
      PlanKvBlocks(devices, block, {.max_blocks = 300, .wanted_blocks = 101, .margin_bytes = 0})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("holds 100 KV blocks of 100 B, and 101 were asked for"));
}

TEST(PlanKvBlocksTest, OneSequenceOfTheLongestContextMustFit) {
  const std::vector<DeviceInfo> devices = {Of(2, kMemoryMargin + 999)};
  const std::vector<int64_t> block = {100};
  EXPECT_EQ(*PlanKvBlocks(devices, block, {.min_blocks = 9, .max_blocks = 1000}), 9);
  const absl::Status status =
      PlanKvBlocks(devices, block, {.min_blocks = 10, .max_blocks = 1000}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status.message(),
      "out of memory: cuda:2 (H100) has 0.75 GiB free of 80.00 GiB beside weights and activations; "
      "0.75 GiB stay free for graphs and the driver, the rest holds 9 KV blocks of 100 B, and 10 "
      "are needed for one sequence of the longest context");
}

TEST(PlanKvBlocksTest, ADeviceFullerThanTheMarginHoldsNone) {
  const absl::Status status =
      PlanKvBlocks(std::vector<DeviceInfo>{Of(0, 5)}, std::vector<int64_t>{1},
                   {.max_blocks = 10, .margin_bytes = 6})
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds 0 KV blocks"));
}

}  // namespace
}  // namespace continuo::kernels::cuda
