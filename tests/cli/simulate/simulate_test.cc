// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/simulate.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/testing/temp_folder.h"

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SimulateTest : public ::testing::Test {
 protected:
  SimulateTest() {
    flags_.requests = 50;
    flags_.prompt_tokens = "uniform:1:90";
    flags_.output_tokens = "20";
    flags_.json = "-";
  }
  int Run() {
    out_.str("");
    err_.str("");
    return RunSimulate(flags_, interrupt_, Console{in_, out_, err_});
  }
  nlohmann::json report() { return nlohmann::json::parse(out_.str()); }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() / name;
    std::ofstream(path) << text;
    return path;
  }

  testing::TempFolder folder_;
  SimulateFlags flags_;
  Interrupt interrupt_;
  std::istringstream in_;
  std::ostringstream out_, err_;
};

TEST_F(SimulateTest, AClosedLoopCountsEveryToken) {
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["ok"], 50);
  EXPECT_EQ(report()["tokens"]["output"], 50 * 20);
  EXPECT_EQ(report()["latency_seconds"]["inter_token"]["count"], 50 * 19);
  EXPECT_GT(report()["throughput"]["output_tokens_per_second"], 0);
}

TEST_F(SimulateTest, EqualFlagsGiveEqualReports) {
  flags_.rate = 30;
  flags_.workers = 2;
  flags_.gateways = 2;
  EXPECT_EQ(Run(), 0) << err_.str();
  const std::string first = out_.str();
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(out_.str(), first);
  flags_.seed = 1;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_NE(out_.str(), first);
}

TEST_F(SimulateTest, TheTableHasFleetAndLatencies) {
  flags_.json = "";
  flags_.workers = 3;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("3 workers, 1 gateway\n"));
  EXPECT_THAT(out_.str(), HasSubstr("50 ok\n"));
  EXPECT_THAT(out_.str(), HasSubstr("time to first token"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("error")));
}

TEST_F(SimulateTest, ATraceIsReplayedAtItsArrivals) {
  flags_.requests.reset();
  flags_.trace =
      Write("trace.csv", "arrival_s,input_tokens,output_tokens\n0,10,3\n100,20,4\n200,30,5\n");
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["ok"], 3);
  EXPECT_EQ(report()["tokens"]["output"], 12);
  EXPECT_GT(report()["seconds"], 200);
  flags_.trace_speed = 10;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_LT(report()["seconds"], 21);
  flags_.duration = absl::Seconds(15);
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["ok"], 2);
}

TEST_F(SimulateTest, BlocksOfEqualNamesComeFromTheCache) {
  flags_.requests.reset();
  flags_.trace =
      Write("trace.jsonl",
            R"({"timestamp": 0, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 3]}
{"timestamp": 9000, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 4]}
)");
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["tokens"]["cached_prompt"], 1024);
}

TEST_F(SimulateTest, TheCostOfAFileCounts) {
  flags_.concurrency = 1;
  flags_.prompt_tokens = "4";
  flags_.network_delay = absl::ZeroDuration();
  flags_.cost = Write("cost.json", R"({"step_seconds": {"fixed": 0.05}, "kv_blocks": 64})");
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_NEAR(report()["latency_seconds"]["inter_token"]["p50"], 0.05, 0.0005);
  EXPECT_NEAR(report()["seconds"], 50 * 20 * 0.05, 1e-6);
}

TEST_F(SimulateTest, RequestsAreCutToWhatTheCacheHolds) {
  flags_.cost = Write("cost.json", R"({"step_seconds": {"fixed": 0.01}, "kv_blocks": 4})");
  flags_.prompt_tokens = "500";
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["tokens"]["prompt"], 50 * 44);
}

TEST_F(SimulateTest, ErrorsNameTheFileAndTheMember) {
  flags_.cost = Write("cost.json", R"({"step_seconds": {"fixed": -1}, "kv_blocks": 64})");
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("cost.json: \"step_seconds.fixed\" must be"));
  flags_.cost = folder_.path() / "missing.json";
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("cannot read the cost"));
  flags_.cost = "";
  flags_.prompt_tokens = "many";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("lengths such as"));
}

TEST_F(SimulateTest, ADurationNeedsArrivals) {
  flags_.requests.reset();
  flags_.duration = absl::Seconds(10);
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--duration ends an open loop"));
  flags_.rate = 5;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_GT(report()["requests"]["ok"], 20);
}

TEST_F(SimulateTest, AFleetThatFailsGivesAnExitCode) {
  flags_.timeout = absl::Milliseconds(1);
  EXPECT_EQ(Run(), 1);
  EXPECT_GT(report()["requests"]["failed"], 0);
}

TEST_F(SimulateTest, ARollingUpdateMovesStreamsAndLosesNone) {
  flags_.workers = 3;
  flags_.rate = 20;
  flags_.requests = 400;
  flags_.output_tokens = "400";
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["migrations"], 0);
  flags_.rolling_update = absl::Seconds(4);
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["requests"]["ok"], 400);
  EXPECT_EQ(report()["tokens"]["output"], 400 * 400);
  EXPECT_GT(report()["migrations"], 5);
}

TEST_F(SimulateTest, AnAutoscalerFollowsTheLoad) {
  flags_.cost = Write("cost.json", R"({"step_seconds": {"fixed": 0.02, "per_token": 0.001},
                                       "kv_blocks": 64, "max_running": 8})");
  flags_.rate = 12;
  flags_.requests.reset();
  flags_.duration = absl::Minutes(4);
  flags_.autoscale = "1..6";
  flags_.autoscale_by = "keda";
  flags_.queued_tokens = 300;
  flags_.worker_start = absl::Seconds(20);
  flags_.slo = "ttft_p50=1s";
  flags_.svg = folder_.path() / "workers.svg";
  EXPECT_EQ(Run(), 0) << err_.str();
  const auto json = report();
  EXPECT_EQ(json["slo"]["holds"], true);
  EXPECT_EQ(json["workers"], 1);
  EXPECT_GT(json["scaling"]["most"], 1);
  EXPECT_EQ(json["scaling"]["workers"][0]["serving"], 1);
  EXPECT_GT(json["scaling"]["times_up"], 0);
  const double hours = json["worker_hours"], mean = json["scaling"]["mean"];
  EXPECT_GE(hours * 3600, 0.99 * mean * static_cast<double>(json["seconds"]));
  std::stringstream svg;
  svg << std::ifstream(flags_.svg).rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr("workers over time"));
  flags_.json = "";
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("scaling               1 to "));
  EXPECT_THAT(out_.str(), HasSubstr("worker hours"));
}

TEST_F(SimulateTest, APoolAtZeroStartsForItsFirstRequest) {
  flags_.autoscale = "0..2";
  flags_.autoscale_by = "keda";
  flags_.worker_start = absl::Seconds(30);
  flags_.requests = 1;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["workers"], 0);
  EXPECT_GT(report()["latency_seconds"]["time_to_first_token"]["max"], 30);
}

TEST_F(SimulateTest, TheSmallestMinimumOfAnAutoscalerIsFound) {
  flags_.cost = Write("cost.json", R"({"step_seconds": {"fixed": 0.02, "per_token": 0.001},
                                       "kv_blocks": 64, "max_running": 8})");
  flags_.rate = 12;
  flags_.requests = 600;
  flags_.autoscale = "0..6";
  flags_.autoscale_by = "keda";
  flags_.queued_tokens = 300;
  flags_.slo = "ttft_p99=1s";
  flags_.find = "workers";
  EXPECT_EQ(Run(), 0) << err_.str();
  // A start is longer than the limit, so the pool cannot begin at zero.
  const int minimum = report()["workers"];
  EXPECT_GE(minimum, 1);
  EXPECT_LE(minimum, 6);
  EXPECT_EQ(report()["fleets"][0]["workers"], 0);
  EXPECT_GT(report()["fleets"][0]["scaling"]["most"], 0);
}

TEST_F(SimulateTest, FlagsOfTheAutoscalerNeedEachOther) {
  const auto error_of = [&](auto change) {
    const SimulateFlags before = flags_;
    change();
    EXPECT_EQ(Run(), 2);
    flags_ = before;
    return err_.str();
  };
  EXPECT_THAT(error_of([&] { flags_.autoscale = "1-4"; }), HasSubstr("MIN..MAX such as"));
  EXPECT_THAT(error_of([&] { flags_.autoscale = "4..1"; }), HasSubstr("MIN..MAX such as"));
  EXPECT_THAT(error_of([&] { flags_.autoscale = "0..4"; }),
              HasSubstr("a minimum of 0 needs --autoscale_by=keda"));
  EXPECT_THAT(error_of([&] { flags_.scale_down = absl::Seconds(1); }),
              HasSubstr("--scale_down needs --autoscale"));
  EXPECT_THAT(error_of([&] { flags_.workers = 0; }), HasSubstr("no fleet without --autoscale"));
  EXPECT_THAT(error_of([&] {
                flags_.autoscale = "2..4";
                flags_.workers = 5;
              }),
              HasSubstr("--workers=5 is not within --autoscale"));
}

TEST_F(SimulateTest, TheSmallestFleetForAnSloIsFound) {
  flags_.cost = Write("cost.json", R"({"step_seconds": {"fixed": 0.02, "per_token": 0.001},
                                       "kv_blocks": 256, "max_running": 8})");
  flags_.rate = 40;
  flags_.requests = 400;
  flags_.slo = "ttft_p95=500ms,itl_p99=200ms";
  flags_.find = "workers";
  flags_.svg = folder_.path() / "plot.svg";
  EXPECT_EQ(Run(), 0) << err_.str();
  const int workers = report()["workers"];
  EXPECT_GT(workers, 1);
  std::stringstream svg;
  svg << std::ifstream(flags_.svg).rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr("ttft_p95"));

  // One worker fewer does not hold it.
  flags_.find = "none";
  flags_.svg = "";
  flags_.workers = static_cast<uint32_t>(workers);
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(report()["slo"]["holds"], true);
  *flags_.workers -= 1;
  EXPECT_EQ(Run(), 1) << err_.str();
  EXPECT_EQ(report()["slo"]["holds"], false);
}

TEST_F(SimulateTest, AnSloThatNoFleetHoldsGivesAnExitCode) {
  flags_.slo = "ttft_p50=1us";
  flags_.find = "workers";
  flags_.max_workers = 3;
  EXPECT_EQ(Run(), 1);
  EXPECT_TRUE(report()["workers"].is_null());
  EXPECT_EQ(report()["fleets"].size(), 3u);
}

TEST_F(SimulateTest, FlagsOfASearchNeedEachOther) {
  flags_.find = "workers";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--find needs --slo"));
  flags_.slo = "ttft_p50=1h";
  flags_.workers = 2000;
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--workers is more than --max_workers"));
  flags_.find = "none";
  flags_.svg = "plot.svg";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--svg needs --find or --autoscale"));
  flags_.slo = "fast";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("\"fast\": terms are"));
}

TEST_F(SimulateTest, AnInterruptEndsIt) {
  flags_.requests = uint64_t{1} << 40;
  flags_.rate = 10;
  std::thread signal([&] {
    while (!interrupt_.Signal()) std::this_thread::yield();
  });
  EXPECT_EQ(Run(), 130);
  signal.join();
  EXPECT_EQ(out_.str(), "");
}

}  // namespace
}  // namespace continuo::cli
