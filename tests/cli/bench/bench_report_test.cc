// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/cli/bench/report_json.h"

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;

TEST(SummarizeTest, PercentilesAreByNearestRank) {
  std::vector<float> values;
  for (int i = 100; i >= 1; --i) values.push_back(static_cast<float>(i));
  const Distribution d = Summarize(values);
  EXPECT_EQ(d.count, 100);
  EXPECT_EQ(d.mean, 50.5);
  EXPECT_EQ(d.p50, 50);
  EXPECT_EQ(d.p90, 90);
  EXPECT_EQ(d.p95, 95);
  EXPECT_EQ(d.p99, 99);
  EXPECT_EQ(d.max, 100);
}

TEST(SummarizeTest, OneValueIsEveryPercentileAndNoneIsZero) {
  EXPECT_EQ(Summarize({3}).p50, 3);
  EXPECT_EQ(Summarize({3}).p99, 3);
  EXPECT_EQ(Summarize({}).count, 0);
  EXPECT_EQ(Summarize({}).p99, 0);
}

std::vector<RequestRecord> Records() {
  std::vector<RequestRecord> records(4);
  records[0] = {.time_to_first_token = 0.5,
                .duration = 2,
                .inter_token = {0.5f, 1.0f},
                .prompt_tokens = 10,
                .cached_prompt_tokens = 4,
                .output_tokens = 3,
                .migrations = 1};
  records[1] = {
      .time_to_first_token = 1.5, .duration = 1.5, .prompt_tokens = 20, .output_tokens = 1};
  records[2] = {.status = absl::ResourceExhaustedError("full"), .duration = 0.01};
  records[3] = {.status = absl::InternalError("broken"), .duration = 9, .output_tokens = 6};
  return records;
}

TEST(BenchReportTest, ErrorsThatDifferInNumbersAreOne) {
  std::vector<RequestRecord> records(3);
  records[0].status = absl::ResourceExhaustedError("full for 1.5s; try again in 20ms");
  records[1].status = absl::ResourceExhaustedError("full for 12s; try again in 7.25ms");
  records[2].status = absl::ResourceExhaustedError("full");
  const BenchReport report = MakeReport(records, 1);
  EXPECT_EQ(report.errors.size(), 2u);
  EXPECT_EQ(report.errors.at("RESOURCE_EXHAUSTED: full for Ns; try again in Nms"), 2u);
  EXPECT_EQ(report.errors.at("RESOURCE_EXHAUSTED: full"), 1u);
}

TEST(BenchReportTest, CountsByWhatBecameOfThem) {
  const BenchReport report = MakeReport(Records(), 2);
  EXPECT_EQ(report.sent, 4);
  EXPECT_EQ(report.ok, 2);
  EXPECT_EQ(report.rejected, 1);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.output_tokens, 10);
  EXPECT_EQ(report.cached_prompt_tokens, 4);
  EXPECT_EQ(report.migrations, 1);
  EXPECT_EQ(report.errors.at("INTERNAL: broken"), 1);
  EXPECT_EQ(report.good_tokens, 4);
  EXPECT_EQ(report.duration.max, 2);  // The failed one does not count.
  EXPECT_EQ(report.rejection.count, 1);
  EXPECT_FLOAT_EQ(static_cast<float>(report.rejection.p99), 0.01f);
  EXPECT_EQ(report.time_to_first_token.mean, 1);
  EXPECT_EQ(report.inter_token.count, 2);
}

TEST(BenchReportTest, JsonHasTheFigures) {
  const auto json = ReportJson(MakeReport(Records(), 2));
  EXPECT_EQ(json["requests"]["rejected"], 1);
  EXPECT_EQ(json["throughput"]["output_tokens_per_second"], 5);
  EXPECT_EQ(json["throughput"]["good_tokens_per_second"], 2);
  EXPECT_EQ(json["throughput"]["requests_per_second"], 1);
  EXPECT_EQ(json["latency_seconds"]["rejection"]["count"], 1);
  EXPECT_EQ(json["latency_seconds"]["time_to_first_token"]["p99"], 1.5);
  EXPECT_EQ(json["tokens"]["cached_prompt"], 4);
}

TEST(BenchReportTest, TheTableTellsThemToo) {
  const std::string table = FormatReport(MakeReport(Records(), 2));
  EXPECT_THAT(table, HasSubstr("2 ok, 1 rejected, 1 failed"));
  EXPECT_THAT(table, HasSubstr("5 output tokens/s"));
  EXPECT_THAT(table, HasSubstr("rejection"));
  EXPECT_THAT(table, HasSubstr("1× INTERNAL: broken"));
}

TEST(BenchReportTest, NothingMeasuredIsNoDivisionByZero) {
  EXPECT_EQ(ReportJson(MakeReport({}, 0))["throughput"]["output_tokens_per_second"], 0);
}

}  // namespace
}  // namespace continuo::cli
