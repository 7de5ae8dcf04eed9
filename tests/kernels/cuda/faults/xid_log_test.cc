// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/faults/xid_log.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::IsEmpty;

Xid Of(int device, uint64_t number, double seconds = 0) {
  return {.device = device, .number = number, .at = absl::Seconds(seconds)};
}

TEST(XidTest, CommonOnesAreDescribed) {
  for (const uint64_t number :
       {13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 172, 999}) {
    EXPECT_NE(XidText(number), "") << number;
  }
  for (const uint64_t number : {uint64_t{0}, uint64_t{12}, uint64_t{998}, ~uint64_t{0}}) {
    EXPECT_EQ(XidText(number), "") << number;
  }
  EXPECT_EQ(ToString(Of(3, 79)), "Xid 79 on cuda:3: GPU has fallen off the bus");
  EXPECT_EQ(ToString(Of(0, 998)), "Xid 998 on cuda:0");
  EXPECT_EQ(ToString(Of(0, 999)), "Xid 999 on cuda:0: one that NVML does not know");
  EXPECT_EQ(ToString({.device = 1, .number = 31, .gpu_instance = 5}),
            "Xid 31 on cuda:1 (GPU instance 5): GPU memory page fault");
}

TEST(XidTest, WhatNvmlDoesNotReachIsSaid) {
  EXPECT_EQ(ToString({.device = 2, .loss = Xid::Loss::kLost}), "NVML: GPU is lost (cuda:2)");
  EXPECT_EQ(ToString({.device = 0, .loss = Xid::Loss::kResetRequired}),
            "NVML: GPU requires a reset (cuda:0)");
}

TEST(XidLogTest, ReasonsAreInTheOrderInWhichTheyCame) {
  XidLog log;
  EXPECT_EQ(log.Reasons(absl::ZeroDuration()), "");
  EXPECT_FALSE(log.HasRecent({}, absl::ZeroDuration()));
  EXPECT_TRUE(log.Add(Of(1, 74, 10)));
  EXPECT_TRUE(log.Add(Of(0, 79, 11)));
  EXPECT_EQ(log.Reasons(absl::Seconds(12)),
            "; Xid 74 on cuda:1: NVLink error; Xid 79 on cuda:0: GPU has fallen off the bus");
}

TEST(XidLogTest, WhatIsNotRecentIsKeptWithItsAge) {
  XidLog log;
  log.Add(Of(0, 63, 10.25));
  EXPECT_EQ(log.Reasons(absl::Seconds(12)),
            "; Xid 63 on cuda:0: memory page retired or row remapped");
  EXPECT_EQ(log.Reasons(absl::Seconds(13)),
            "; Xid 63 on cuda:0: memory page retired or row remapped, 2s before");
  EXPECT_EQ(log.Reasons(absl::Seconds(3700)),
            "; Xid 63 on cuda:0: memory page retired or row remapped, 1h1m29s before");
}

TEST(XidLogTest, RecentIsWhatCameTwoSecondsBeforeOnTheDevice) {
  XidLog log;
  log.Add(Of(0, 63, 10));
  EXPECT_TRUE(log.HasRecent({}, absl::Seconds(12)));
  EXPECT_TRUE(log.HasRecent(std::vector{3, 0}, absl::Seconds(12)));
  EXPECT_FALSE(log.HasRecent(std::vector{1}, absl::Seconds(12)));
  EXPECT_FALSE(log.HasRecent({}, absl::Seconds(13)));
  log.Add(Of(0, 63, 20));  // a repetition is as recent as any other
  EXPECT_TRUE(log.HasRecent(std::vector{0}, absl::Seconds(22)));
}

TEST(XidLogTest, RepetitionsAreLoggedOnceAMinute) {
  XidLog log;
  EXPECT_TRUE(log.Add(Of(0, 31, 0)));
  EXPECT_FALSE(log.Add(Of(0, 31, 50)));
  EXPECT_TRUE(log.Add(Of(0, 31, 100)));  // 50 s after it came, 100 s after it was logged
  EXPECT_TRUE(log.Add(Of(1, 31, 100)));
  EXPECT_FALSE(log.Add(Of(0, 31, 159)));
  EXPECT_TRUE(log.Add(Of(0, 31, 160)));
}

// More different Xids than are kept are no reason to log them again.
TEST(XidLogTest, RepetitionsOfWhatIsNotKeptAreLoggedOnceAMinuteToo) {
  XidLog log;
  int lines = 0;
  for (int second = 0; second < 60; ++second) {
    lines += log.Add(Of(0, 43 + second % 6, second)) ? 1 : 0;
  }
  EXPECT_EQ(lines, 6);
}

TEST(XidLogTest, ACascadeKeepsItsFirstAndItsLastThree) {
  XidLog log;
  log.Add(Of(0, 79, 0));
  log.Add(Of(1, 74, 0));
  for (int i = 0; i < 7; ++i) log.Add(Of(0, 200 + i, 20.0 * (i + 1)));
  log.Add(Of(0, 205, 150));
  EXPECT_EQ(log.Reasons(absl::Seconds(150)),
            "; Xid 79 on cuda:0: GPU has fallen off the bus, 2m30s before"
            "; Xid 74 on cuda:1: NVLink error, 2m30s before"
            "; Xid 204 on cuda:0, 50s before; Xid 206 on cuda:0, 10s before; Xid 205 on cuda:0"
            "; 4 more on cuda:0");
}

TEST(XidLogTest, TheFirstOfACascadeStaysInFrontWhenItIsRepeated) {
  XidLog log;
  log.Add(Of(0, 31, 0));
  log.Add(Of(0, 200, 1));
  log.Add(Of(0, 31, 2));
  EXPECT_EQ(log.Reasons(absl::Seconds(2)),
            "; Xid 31 on cuda:0: GPU memory page fault; Xid 200 on cuda:0");
}

TEST(XidLogTest, ANewCascadeTakesThePlaceOfAnOldOne) {
  XidLog log;
  for (int i = 0; i < 6; ++i) log.Add(Of(0, 200 + i, 0));
  for (int i = 0; i < 4; ++i) log.Add(Of(0, 300 + i, 100));
  const std::string all =
      "; Xid 300 on cuda:0; Xid 301 on cuda:0; Xid 302 on cuda:0; Xid 303 on cuda:0";
  EXPECT_EQ(log.Reasons(absl::Seconds(100)), all);
}

TEST(XidLogTest, AFloodKeepsAFewAndLogsAFewAMinute) {
  XidLog log;
  std::mt19937_64 random(1);
  int lines = 0;
  constexpr int kMinutes = 10;
  for (int i = 0; i < 60'000; ++i) {
    Xid xid = Of(static_cast<int>(random() % 2), random() % 5000, i * kMinutes / 1000.0);
    if (random() % 2 == 0) xid.gpu_instance = static_cast<uint32_t>(random());
    lines += log.Add(xid) ? 1 : 0;
  }
  EXPECT_LE(lines, kMinutes * static_cast<int>(XidLog::kLines));
  const std::string reasons = log.Reasons(absl::Minutes(kMinutes));
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), ';'),
            2 * (XidLog::kKept + 1));  // each with the number of dropped ones
}

}  // namespace
}  // namespace continuo::kernels::cuda
