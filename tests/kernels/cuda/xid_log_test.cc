// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/xid_log.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace continuo::cuda {
namespace {

using ::testing::IsEmpty;

Xid Of(int device, uint64_t number, double seconds = 0) {
  return {.device = device, .number = number, .at = absl::Seconds(seconds)};
}

TEST(XidTest, CommonOnesAreDescribed) {
  for (const uint64_t number :
       {13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 172}) {
    EXPECT_NE(XidText(number), "") << number;
  }
  for (const uint64_t number : {uint64_t{0}, uint64_t{12}, uint64_t{999}, ~uint64_t{0}}) {
    EXPECT_EQ(XidText(number), "") << number;
  }
  EXPECT_EQ(ToString(Of(3, 79)), "Xid 79 on cuda:3: GPU has fallen off the bus");
  EXPECT_EQ(ToString(Of(0, 999)), "Xid 999 on cuda:0");
  EXPECT_EQ(ToString({.device = 1, .number = 31, .gpu_instance = 5}),
            "Xid 31 on cuda:1 (GPU instance 5): GPU memory page fault");
}

TEST(XidLogTest, ReasonsAreInTheOrderInWhichTheyCame) {
  XidLog log;
  EXPECT_EQ(log.Reasons(absl::ZeroDuration()), "");
  EXPECT_FALSE(log.HasRecent(absl::ZeroDuration()));
  EXPECT_TRUE(log.Add(Of(1, 74, 10)));
  EXPECT_TRUE(log.Add(Of(0, 79, 11)));
  EXPECT_EQ(log.Reasons(absl::Seconds(12)),
            "; Xid 74 on cuda:1: NVLink error; Xid 79 on cuda:0: GPU has fallen off the bus");
}

TEST(XidLogTest, OldOnesAreKeptWithTheirAge) {
  XidLog log;
  log.Add(Of(0, 63, 10.25));
  EXPECT_TRUE(log.HasRecent(absl::Seconds(70)));
  EXPECT_FALSE(log.HasRecent(absl::Seconds(3700)));
  EXPECT_EQ(log.Reasons(absl::Seconds(3700)),
            "; Xid 63 on cuda:0: memory page retired or row remapped, 1h1m29s before");
}

TEST(XidLogTest, RepetitionsAreLoggedOnceAMinute) {
  XidLog log;
  EXPECT_TRUE(log.Add(Of(0, 31, 0)));
  EXPECT_FALSE(log.Add(Of(0, 31, 50)));
  EXPECT_FALSE(log.Add(Of(0, 31, 100)));  // of the one 50 s ago
  EXPECT_TRUE(log.Add(Of(1, 31, 100)));
  EXPECT_TRUE(log.Add(Of(0, 31, 161)));
  EXPECT_EQ(log.Reasons(absl::Seconds(161)),
            "; Xid 31 on cuda:1: GPU memory page fault, 1m1s before"
            "; Xid 31 on cuda:0: GPU memory page fault");
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
  EXPECT_LE(lines, kMinutes * XidLog::kLines);
  const std::string reasons = log.Reasons(absl::Minutes(kMinutes));
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), ';'), 2 * XidLog::kKept);
}

}  // namespace
}  // namespace continuo::cuda
