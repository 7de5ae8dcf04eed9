// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "services/cli/bench/workload_flags.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"

namespace continuo::cli {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

LengthDistribution Lengths(const char* text) {
  auto lengths = LengthDistribution::Parse(text);
  EXPECT_TRUE(lengths.ok()) << lengths.status();
  return *lengths;
}

std::vector<uint32_t> DrawMany(const char* text) {
  std::mt19937_64 random(1);
  const LengthDistribution lengths = Lengths(text);
  std::vector<uint32_t> drawn(10'000);
  for (uint32_t& length : drawn) length = lengths.Sample(random);
  return drawn;
}

double Mean(const std::vector<uint32_t>& values) {
  double sum = 0;
  for (const uint32_t value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

WorkloadOptions Options() {
  WorkloadOptions options;
  options.prompt = Lengths("uniform:1:64");
  options.output = Lengths("16");
  options.vocabulary_size = 1000;
  return options;
}

TEST(LengthDistributionTest, HasTheMomentsOfItsName) {
  EXPECT_THAT(DrawMany("7"), Each(7));
  const auto uniform = DrawMany("uniform:10:20");
  EXPECT_EQ(*std::min_element(uniform.begin(), uniform.end()), 10);
  EXPECT_EQ(*std::max_element(uniform.begin(), uniform.end()), 20);
  EXPECT_NEAR(Mean(uniform), 15, 0.2);
  const auto exponential = DrawMany("exponential:100");
  EXPECT_GE(*std::min_element(exponential.begin(), exponential.end()), 1);
  EXPECT_NEAR(Mean(exponential), 100.5, 5);  // Rounded up: half a token more.
}

TEST(LengthDistributionTest, RefusesTheRest) {
  for (const char* text : {"", "0", "-1", "x", "uniform:5", "uniform:9:5", "uniform:0:5",
                           "exponential:0", "normal:1:2", "99999999999", "1:2"}) {
    EXPECT_FALSE(LengthDistribution::Parse(text).ok()) << text;
  }
}

TEST(WorkloadTest, TheSameSeedIsTheSameLoad) {
  Workload a(Options()), b(Options());
  for (int i = 0; i < 100; ++i) {
    const PlannedRequest first = a.Next(), second = b.Next();
    EXPECT_EQ(first.prompt_tokens, second.prompt_tokens);
    EXPECT_EQ(a.PromptIds(first), b.PromptIds(second));
    EXPECT_EQ(a.PromptIds(first).size(), first.prompt_tokens);
    EXPECT_THAT(a.PromptIds(first), Each(::testing::Lt(1000)));
  }
  WorkloadOptions other = Options();
  other.seed = 1;
  Workload c(other);
  EXPECT_NE(Workload(Options()).PromptIds({.prompt_tokens = 20}),
            c.PromptIds({.prompt_tokens = 20}));
}

TEST(WorkloadTest, PoissonArrivalsHaveTheRate) {
  WorkloadOptions options = Options();
  options.rate = 50;
  Workload workload(options);
  absl::Duration last;
  double squares = 0;
  const int n = 10'000;
  for (int i = 0; i < n; ++i) {
    const absl::Duration arrival = workload.Next().arrival;
    EXPECT_GE(arrival, last);
    squares += std::pow(absl::ToDoubleSeconds(arrival - last) * 50, 2);
    last = arrival;
  }
  EXPECT_NEAR(absl::ToDoubleSeconds(last), n / 50.0, 10);
  EXPECT_NEAR(squares / n, 2, 0.2);  // Of an exponential distribution: twice its mean squared.
}

TEST(WorkloadTest, BurstyArrivalsHaveTheirVariationAndKeepTheRate) {
  for (const double variation : {2.0, 4.0}) {
    WorkloadOptions options = Options();
    options.rate = 50;
    options.burstiness = variation;
    Workload workload(options);
    const int n = 200'000;
    double squares = 0;
    absl::Duration last;
    for (int i = 0; i < n; ++i) {
      const absl::Duration arrival = workload.Next().arrival;
      squares += std::pow(absl::ToDoubleSeconds(arrival - last) * 50, 2);
      last = arrival;
    }
    EXPECT_NEAR(absl::ToDoubleSeconds(last) * 50 / n, 1, 0.05);
    EXPECT_NEAR(std::sqrt(squares / n - 1), variation, 0.1 * variation);
  }
}

WorkloadFlags TraceFlag(const std::string& trace, double rate = 0) {
  WorkloadFlags flags;
  flags.trace = trace;
  flags.rate = rate;
  return flags;
}

TEST(WorkloadFlagsTest, ATraceMayBeNamed) {
  EXPECT_EQ(MakeWorkloadOptions(TraceFlag("poisson", 5))->burstiness, 1);
  EXPECT_EQ(MakeWorkloadOptions(TraceFlag("bursty", 5))->burstiness, 4);
  EXPECT_EQ(MakeWorkloadOptions(TraceFlag("bursty:2.5", 5))->burstiness, 2.5);
  testing::TempFolder folder;
  const std::string azure = folder.path() / "azure.csv", mooncake = folder.path() / "mooncake";
  std::ofstream(azure) << "TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,107,15\n";
  std::ofstream(mooncake) << R"({"timestamp": 0, "input_length": 700, "output_length": 5})";
  EXPECT_EQ(MakeWorkloadOptions(TraceFlag("azure:" + azure))->trace.size(), 1u);
  EXPECT_EQ(MakeWorkloadOptions(TraceFlag("mooncake:" + mooncake))->trace.size(), 1u);

  const auto error = [](const WorkloadFlags& flags) {
    return std::string(MakeWorkloadOptions(flags).status().message());
  };
  EXPECT_THAT(error(TraceFlag("poisson")), HasSubstr("--trace=poisson needs --rate"));
  EXPECT_THAT(error(TraceFlag("bursty:nan", 5)), HasSubstr("a number from 1 to 20"));
  EXPECT_THAT(error(TraceFlag("bursty:0.5", 5)), HasSubstr("a number from 1 to 20"));
  EXPECT_THAT(error(TraceFlag("azure")), HasSubstr("--trace=azure:FILE reads it"));
  EXPECT_THAT(error(TraceFlag("azure:" + mooncake)), HasSubstr("no recording of Azure"));
  EXPECT_THAT(error(TraceFlag("mooncake:" + azure)), HasSubstr("no recording of Mooncake"));
}

TEST(WorkloadTest, PrefixesAreSharedInTurn) {
  WorkloadOptions options = Options();
  options.shared_prefix_tokens = 10;
  options.num_prefixes = 2;
  Workload workload(options);
  std::vector<std::vector<uint32_t>> prompts;
  for (int i = 0; i < 4; ++i) prompts.push_back(workload.PromptIds(workload.Next()));
  const auto prefix = [&](int i) {
    return std::vector<uint32_t>(prompts[i].begin(), prompts[i].begin() + 10);
  };
  EXPECT_EQ(prefix(0), prefix(2));
  EXPECT_EQ(prefix(1), prefix(3));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(prompts[0], prompts[2]);
}

TEST(WorkloadTest, RequestsAreCutToTheContext) {
  WorkloadOptions options = Options();
  options.prompt = Lengths("200");
  options.output = Lengths("100");
  options.max_context_tokens = 256;
  const PlannedRequest cut = Workload(options).Next();
  EXPECT_TRUE(cut.cut);
  EXPECT_EQ(cut.output_tokens, 100);
  EXPECT_EQ(cut.prompt_tokens, 156);
  options.output = Lengths("1000");
  EXPECT_EQ(Workload(options).Next().prompt_tokens, 1);
  options.max_context_tokens = 4096;
  EXPECT_FALSE(Workload(options).Next().cut);
}

TEST(TraceTest, CsvIsReadByItsTitles) {
  const auto rows =
      ParseTrace("arrival_s,client_id,input_tokens,output_tokens\n5.5,a,233,668\n\n4.5,b,10,0\r\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ((*rows)[0].prompt_tokens, 10);
  EXPECT_EQ((*rows)[0].output_tokens, 1);
  EXPECT_EQ((*rows)[0].arrival, absl::ZeroDuration());
  EXPECT_EQ((*rows)[1].arrival, absl::Seconds(1));
}

TEST(TraceTest, JsonLinesKnowSharedBlocks) {
  const auto rows = ParseTrace(
      R"({"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]})"
      "\n"
      R"({"timestamp": 1500, "input_length": 600, "output_length": 6, "hash_ids": [0, 2]})");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[1].arrival, absl::Milliseconds(1500));
  WorkloadOptions options = Options();
  options.trace = *rows;
  options.trace_speed = 3;
  Workload workload(options);
  const PlannedRequest first = workload.Next(), second = workload.Next(), third = workload.Next();
  EXPECT_EQ(second.arrival, absl::Milliseconds(500));
  EXPECT_EQ(third.arrival, absl::Milliseconds(500));  // Around again.
  EXPECT_EQ(third.prompt_tokens, 700);
  const auto a = workload.PromptIds(first), b = workload.PromptIds(second);
  EXPECT_EQ(a.size(), 700);
  EXPECT_EQ(b.size(), 600);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + kTraceBlockTokens, b.begin()));
  EXPECT_FALSE(
      std::equal(a.begin() + kTraceBlockTokens, a.begin() + 600, b.begin() + kTraceBlockTokens));
}

TEST(TraceTest, WithoutArrivalsThereAreNone) {
  const auto rows = ParseTrace("TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,107,15\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].arrival, std::nullopt);
}

TEST(TraceTest, NonsenseIsRefusedWithItsLine) {
  const auto error = [](const char* text) {
    return std::string(ParseTrace(text).status().message());
  };
  EXPECT_EQ(error(""), "no requests");
  EXPECT_THAT(error("input_tokens,output_tokens\n1,2\n1\n"), HasSubstr("line 3: 1 columns"));
  EXPECT_THAT(error("input_tokens,output_tokens\n1,many\n"), HasSubstr("\"many\" is not a number"));
  EXPECT_THAT(error("input_tokens,output_tokens\n1,-5\n"), HasSubstr("lengths are from 0"));
  EXPECT_THAT(error("input_tokens,output_tokens\n1,nan\n"), HasSubstr("lengths are from 0"));
  EXPECT_THAT(error("a,b\n1,2\n"), HasSubstr("no column of prompt"));
  EXPECT_THAT(error("{\"input_length\": 1}\n"), HasSubstr("no column of prompt"));
  EXPECT_THAT(error("{\"input_length\": \"x\"}\n"), HasSubstr("input_length is not a number"));
  EXPECT_THAT(error("{broken\n"), HasSubstr("line 1: not a JSON object"));
  EXPECT_THAT(error("arrival_s,input_tokens,output_tokens\n-1,2,3\n"), HasSubstr("arrivals are"));
  EXPECT_THAT(std::string(LoadTrace("/no/such/file").status().message()), HasSubstr("/no/such"));
}

TEST(TraceTest, PublishedTracesAreRead) {
  CONTINUO_NEED_SHARED("data/traces");
  for (const char* path : {"normalised/azure2023_conv.csv", "normalised/servegen_m-small_1h.csv",
                           "lengths/sharegpt.csv", "lengths/arxiv_summarization_llama2.csv",
                           "mooncake/conversation_trace.jsonl"}) {
    const auto rows = LoadTrace(testing::SharedPath("data/traces/" + std::string(path)));
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_GT(rows->size(), 1000) << path;
  }
}

TEST(TraceTest, DatesAreArrivals) {
  const auto rows = ParseTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 18:17:03.9799600,374,44\n"
      "2023-11-16 18:17:04.4800000,396,109\n"
      "2023-11-17 18:17:03.9799600,7,8\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 3u);
  EXPECT_EQ(*(*rows)[0].arrival, absl::ZeroDuration());
  EXPECT_EQ(*(*rows)[1].arrival, absl::Microseconds(500040));
  EXPECT_EQ(*(*rows)[2].arrival, absl::Hours(24));
  EXPECT_EQ((*rows)[1].output_tokens, 109u);
}

TEST(TraceTest, ARecordingWithoutDatesHasNoArrivals) {
  const auto rows =
      ParseTrace("TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,107,15\nXXX,396,513\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].arrival, std::nullopt);
}

}  // namespace
}  // namespace continuo::cli
