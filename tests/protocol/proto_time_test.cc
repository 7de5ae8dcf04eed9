// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/proto_time.h"

#include <gtest/gtest.h>

#include <limits>

namespace continuo::protocol {
namespace {

TEST(ProtoTimeTest, TimesAndDurationsComeBackToTheNanosecond) {
  for (const int64_t nanos :
       {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{1'500'000'000}, int64_t{-1'500'000'000}}) {
    const absl::Time time = absl::FromUnixNanos(nanos);
    EXPECT_EQ(FromProto(ToProto(time)), time);
    const absl::Duration duration = absl::Nanoseconds(nanos);
    EXPECT_EQ(FromProto(ToProto(duration)), duration);
  }
}

TEST(ProtoTimeTest, NanosOfATimeAreNeverNegativeAndThoseOfADurationHaveItsSign) {
  const google::protobuf::Timestamp time = ToProto(absl::FromUnixNanos(-1));
  EXPECT_EQ(time.seconds(), -1);
  EXPECT_EQ(time.nanos(), 999'999'999);
  const google::protobuf::Duration duration = ToProto(-absl::Milliseconds(1500));
  EXPECT_EQ(duration.seconds(), -1);
  EXPECT_EQ(duration.nanos(), -500'000'000);
}

TEST(ProtoTimeTest, ValuesThatTheTypesForbidAreTaken) {
  google::protobuf::Timestamp time;
  time.set_seconds(std::numeric_limits<int64_t>::max());
  time.set_nanos(std::numeric_limits<int32_t>::max());
  EXPECT_GT(FromProto(time), absl::UnixEpoch());
  google::protobuf::Duration duration;
  duration.set_seconds(std::numeric_limits<int64_t>::min());
  EXPECT_LT(FromProto(duration), absl::ZeroDuration());
}

}  // namespace
}  // namespace continuo::protocol
