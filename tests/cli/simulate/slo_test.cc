// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/slo.h"

#include <gmock/gmock.h>

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;

simulate::Results ResultsOf(uint64_t ok, uint64_t rejected, uint64_t failed) {
  simulate::Results results;
  results.ok = ok;
  results.rejected = rejected;
  results.failed = failed;
  for (int i = 1; i <= 100; ++i) {
    results.time_to_first_token.Record(absl::Milliseconds(i));
    results.inter_token.Record(absl::Milliseconds(10 * i));
    results.whole.Record(absl::Seconds(i));
  }
  return results;
}

bool HoldsIn(const char* slo, const simulate::Results& results) {
  const auto parsed = ParseSlo(slo);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() && Holds(*parsed, results);
}

TEST(SloTest, EachTermLimitsItsLatency) {
  const simulate::Results r = ResultsOf(100, 0, 0);
  EXPECT_TRUE(HoldsIn("ttft_p50=51ms", r));
  EXPECT_FALSE(HoldsIn("ttft_p50=49ms", r));
  EXPECT_TRUE(HoldsIn("itl_p99=1s", r));
  EXPECT_FALSE(HoldsIn("itl_p99=980ms", r));
  EXPECT_TRUE(HoldsIn("e2e_mean=50.6s", r));
  EXPECT_FALSE(HoldsIn("e2e_mean=50.4s", r));
  EXPECT_TRUE(HoldsIn("e2e_max=100s", r));
  EXPECT_FALSE(HoldsIn("e2e_max=99s", r));
  EXPECT_TRUE(HoldsIn("ttft_p50=1h,itl_p99=1s", r));
  EXPECT_FALSE(HoldsIn("ttft_p50=1h,itl_p99=1ms", r));
}

TEST(SloTest, ErrorsBreakItUnlessAShareIsAllowed) {
  EXPECT_FALSE(HoldsIn("ttft_max=1h", ResultsOf(999, 1, 0)));
  EXPECT_FALSE(HoldsIn("ttft_max=1h", ResultsOf(999, 0, 1)));
  EXPECT_TRUE(HoldsIn("ttft_max=1h,errors=0.1%", ResultsOf(999, 1, 0)));
  EXPECT_TRUE(HoldsIn("errors=0.002,ttft_max=1h", ResultsOf(998, 1, 1)));
  EXPECT_FALSE(HoldsIn("errors=0.1%,ttft_max=1h", ResultsOf(998, 1, 1)));
  EXPECT_FALSE(HoldsIn("errors=100%,ttft_max=1h", ResultsOf(0, 9, 0)));
}

TEST(SloTest, AnythingElseIsAnErrorThatNamesTheTerm) {
  for (const char* bad :
       {"", "ttft", "ttft_p99", "ttft_p98=1s", "tpot_p99=1s", "ttft_p99=1", "ttft_p99=-1s",
        "ttft_p99=0s", "ttft_p99=inf", "ttft_p99=1s=2s", "ttft_p99=1s,", "errors=x,ttft_p99=1s",
        "errors=101%,ttft_p99=1s", "errors=-1%,ttft_p99=1s", "ttft_p99_max=1s"}) {
    const auto slo = ParseSlo(bad);
    ASSERT_TRUE(absl::IsInvalidArgument(slo.status())) << bad;
    EXPECT_THAT(std::string(slo.status().message()), HasSubstr("terms are {ttft, itl, e2e}"));
  }
  EXPECT_THAT(std::string(ParseSlo("errors=1%").status().message()), HasSubstr("no latency"));
}

}  // namespace
}  // namespace continuo::cli
