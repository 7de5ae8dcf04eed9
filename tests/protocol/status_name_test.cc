// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/status_name.h"

#include <gtest/gtest.h>

namespace continuo::protocol {
namespace {

TEST(StatusNameTest, EachCodeHasTheNameThatAbseilGivesIt) {
  for (size_t number = 0; number < kStatusNames.size(); ++number) {
    const auto code = static_cast<absl::StatusCode>(number);
    EXPECT_EQ(StatusName(code), absl::StatusCodeToString(code));
  }
  EXPECT_EQ(kStatusNames.size(), static_cast<size_t>(absl::StatusCode::kUnauthenticated) + 1);
}

TEST(StatusNameTest, ANumberThatIsNoCodeIsUnknown) {
  EXPECT_EQ(StatusName(static_cast<absl::StatusCode>(99)), "UNKNOWN");
  EXPECT_EQ(StatusName(static_cast<absl::StatusCode>(-1)), "UNKNOWN");
}

}  // namespace
}  // namespace continuo::protocol
