// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/fake_inference.h"

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;

class BenchTest : public ::testing::Test {
 protected:
  BenchTest() {
    auto server = common::GrpcServer::Start({.listen = "127.0.0.1:0"}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    flags_.connection.server = server_->address();
    flags_.concurrency = 4;
    flags_.requests = 20;
    flags_.prompt_tokens = "uniform:1:9";
    flags_.output_tokens = "8";
    flags_.json = "-";
  }
  int Run() {
    out_.str("");
    err_.str("");
    return RunBench(flags_, interrupt_, Console{in_, out_, err_});
  }
  nlohmann::json report() { return nlohmann::json::parse(out_.str()); }

  testing::FakeInference service_;
  std::unique_ptr<common::GrpcServer> server_;
  BenchFlags flags_;
  Interrupt interrupt_;
  std::istringstream in_;
  std::ostringstream out_, err_;
};

TEST_F(BenchTest, AClosedLoopCountsEveryToken) {
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["ok"], 20);
  EXPECT_EQ(report()["tokens"]["output"], 160);
  EXPECT_EQ(report()["tokens"]["cached_prompt"], 40);
  EXPECT_EQ(report()["latency_seconds"]["inter_token"]["count"], 140);
  EXPECT_EQ(report()["config"]["loop"], "closed");
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 20);
  std::set<uint64_t> seeds;
  for (const v1::GenerateRequest& request : requests) {
    EXPECT_TRUE(request.stopping().ignore_eos());
    EXPECT_GE(request.token_ids().ids_size(), 1);
    seeds.insert(request.sampling().seed());
  }
  EXPECT_EQ(seeds.size(), 20);
}

TEST_F(BenchTest, AClosedLoopTellsWhatItGaveBetweenItsBeginningAndItsEnd) {
  flags_.concurrency = 1;
  EXPECT_EQ(Run(), 0) << err_.str();
  // The steady part is from the first token of the first answer to that of the last of 20.
  EXPECT_EQ(report()["steady"]["begun"], 19);
  EXPECT_EQ(report()["steady"]["output_tokens"], 19 * 8);
  EXPECT_GT(report()["steady"]["output_tokens_per_second"], 0);
  flags_.concurrency = 20;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["steady"]["seconds"], 0);
}

TEST_F(BenchTest, AnOpenLoopSendsAtItsRate) {
  flags_.rate = 1000;
  flags_.warmup = 3;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["ok"], 20);
  EXPECT_EQ(report()["config"]["loop"], "open");
  EXPECT_EQ(service_.requests().size(), 23);
}

TEST_F(BenchTest, ADurationEndsIt) {
  flags_.requests.reset();
  flags_.duration = absl::Milliseconds(50);
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_GT(report()["requests"]["ok"], 0);
}

TEST_F(BenchTest, RejectedAndFailedAreCounted) {
  service_.SetScript({{0, absl::ResourceExhaustedError("full")}});
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["rejected"], 1);
  EXPECT_EQ(report()["requests"]["errors"]["RESOURCE_EXHAUSTED: full"], 1);
  service_.SetScript({{3, absl::UnavailableError("lost")}});
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(report()["requests"]["failed"], 1);
  EXPECT_EQ(report()["tokens"]["output"], 19 * 8 + 3);
}

TEST_F(BenchTest, AnInterruptStillReports) {
  service_.SetScript({{.num_responses = 2, .hang = true}});
  flags_.concurrency = 1;
  auto code = std::async(std::launch::async, [this] { return Run(); });
  service_.AwaitHanging();
  EXPECT_TRUE(interrupt_.Signal());
  EXPECT_EQ(code.get(), 130);
  EXPECT_EQ(report()["requests"]["sent"], 1);
  EXPECT_LE(report()["tokens"]["output"], 2);
}

TEST_F(BenchTest, BadLengthsAndTracesAreUsageErrors) {
  flags_.prompt_tokens = "some";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("uniform:1:512"));
}

TEST_F(BenchTest, AServerThatIsNotThereIsOneLine) {
  server_->Shutdown(absl::InfinitePast());
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("continuo bench: UNAVAILABLE"));
}

}  // namespace
}  // namespace continuo::cli
