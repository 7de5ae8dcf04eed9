// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/fleet_search.h"

#include <gmock/gmock.h>

#include <regex>

namespace continuo::cli {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

// A fleet in which the first token takes 60 s over the number of workers.
simulate::Results FleetOf(int workers) {
  simulate::Results results;
  results.workers = workers;
  results.ok = 10;
  results.duration = absl::Seconds(10);
  results.time_to_first_token.Record(absl::Seconds(60) / workers);
  results.inter_token.Record(absl::Milliseconds(20));
  return results;
}

std::vector<int> Tried(const FleetSearch& search) {
  std::vector<int> workers;
  for (const simulate::Results& results : search.tried) workers.push_back(results.workers);
  return workers;
}

FleetSearch Search(const char* slo, int least, int most) {
  auto search =
      FindSmallestFleet(*ParseSlo(slo), least, most, [](int workers) { return FleetOf(workers); });
  EXPECT_TRUE(search.ok());
  return *std::move(search);
}

TEST(FleetSearchTest, TheSmallestFleetThatHoldsIsFound) {
  for (int limit = 1; limit <= 60; ++limit) {
    const std::string slo = "ttft_max=" + std::to_string(limit) + "s";
    const FleetSearch search = Search(slo.c_str(), 1, 1000);
    int expected = 1;
    while (60.0 / expected > limit) ++expected;
    EXPECT_EQ(search.smallest, expected) << limit;
    EXPECT_LE(search.tried.size(), 12u);
    EXPECT_TRUE(std::ranges::is_sorted(Tried(search)));
  }
}

TEST(FleetSearchTest, ItDoublesAndThenHalvesTheGap) {
  // 60 / 11 s is the first below 5.5 s.
  EXPECT_THAT(Tried(Search("ttft_max=5.5s", 1, 1000)), ElementsAre(1, 2, 4, 8, 10, 11, 12, 16));
  EXPECT_THAT(Tried(Search("ttft_max=5.5s", 20, 1000)), ElementsAre(20));
}

TEST(FleetSearchTest, NoFleetIsLargerThanTheMost) {
  const FleetSearch search = Search("ttft_max=1s", 1, 50);
  EXPECT_EQ(search.smallest, std::nullopt);
  EXPECT_THAT(Tried(search), Each(Le(50)));
  EXPECT_THAT(FormatSearch(search), HasSubstr("no fleet of at most 50 workers holds the SLO"));
  EXPECT_EQ(Search("ttft_max=1s", 1, 60).smallest, 60);
}

TEST(FleetSearchTest, AnErrorEndsIt) {
  const auto search = FindSmallestFleet(*ParseSlo("ttft_max=1s"), 1, 50, [](int workers) {
    return workers < 8 ? absl::StatusOr<simulate::Results>(FleetOf(workers))
                       : absl::CancelledError("interrupted");
  });
  EXPECT_TRUE(absl::IsCancelled(search.status()));
}

TEST(FleetSearchTest, TheTableMarksWhatHolds) {
  const std::string table = FormatSearch(Search("ttft_max=20s,itl_p50=50ms", 1, 10));
  EXPECT_THAT(table, HasSubstr("workers    ttft_max     itl_p50"));
  EXPECT_TRUE(std::regex_search(table, std::regex("\n +2 +30.0 s .*[0-9]\n +3 +20.0 s .*holds\n")))
      << table;
  EXPECT_THAT(table, HasSubstr("smallest fleet that holds the SLO: 3 workers\n"));
}

TEST(FleetSearchTest, ThePlotHasALineForEachTermAndAPointForEachFleet) {
  const FleetSearch search = Search("ttft_max=20s,itl_p50=50ms", 1, 10);
  const std::string svg = PlotSearch(search);
  const auto count = [&](const std::string& part) {
    int n = 0;
    for (size_t at = 0; (at = svg.find(part, at)) != std::string::npos; at += part.size()) ++n;
    return n;
  };
  EXPECT_EQ(count("<polyline"), 2);
  EXPECT_EQ(count("<circle"), 2 * static_cast<int>(search.tried.size()));
  EXPECT_THAT(svg, HasSubstr("ttft_max &#8804; 20.0 s"));
  EXPECT_THAT(svg, HasSubstr("3 hold"));
  // Every number is finite, and every element is closed.
  EXPECT_EQ(count("nan") + count("inf"), 0);
  EXPECT_EQ(count("<text"), count("</text>"));
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
}

TEST(FleetSearchTest, OneFleetHasAPlot) {
  const std::string svg = PlotSearch(Search("ttft_max=1h", 5, 10));
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace continuo::cli
