// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/usage_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "services/protocol/error.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

std::vector<nlohmann::json> LinesOf(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(UsageLogTest, ARecordIsALine) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "usage";
  for (int run = 0; run < 2; ++run) {
    auto log = UsageLog::Open(path, nullptr);
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write({.call = "c",
                   .tenant = "t",
                   .key = "k",
                   .request_id = "a \"quoted\" id",
                   .model = "m",
                   .fingerprint = "F",
                   .prompt_tokens = 10,
                   .cached_tokens = 8,
                   .generated_tokens = 7,
                   .delivered_tokens = 5,
                   .reasoning_tokens = 2,
                   .migrations = 1,
                   .duration = absl::Milliseconds(1500)},
                  absl::OkStatus());
  }
  const std::vector<nlohmann::json> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 2u) << "a file is appended to";
  nlohmann::json line = lines[0];
  EXPECT_TRUE(line.erase("time"));
  EXPECT_EQ(line, nlohmann::json::parse(R"({"severity":"INFO","message":"usage","call":"c",
      "tenant":"t","key":"k","request_id":"a \"quoted\" id","again":false,"model":"m",
      "fingerprint":"F","outcome":"finished","code":"OK","reason":"","prompt_tokens":10,
      "prompt_estimated":false,"cached_tokens":8,"generated_tokens":7,"delivered_tokens":5,
      "reasoning_tokens":2,"migrations":1,"seconds":1.5})"));
}

TEST(UsageLogTest, BytesThatAreNoUtf8AreReplaced) {
  const std::string line = UsageLine(absl::UnixEpoch(),
                                     {.request_id = "a\xff"
                                                    "b",
                                      .model = "\n"},
                                     absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(line)["request_id"],
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(nlohmann::json::parse(line)["model"], "\n");
  EXPECT_THAT(line, ::testing::StartsWith(R"({"time":"1970-01-01T00:00:00.000000Z",)"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(UsageLogTest, WithoutAFileThereIsNoLine) {
  auto log = UsageLog::Open("", nullptr);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write({.call = "c"}, absl::OkStatus());
  (*log)->Stop();
  EXPECT_EQ((*log)->num_dropped(), 0);
}

TEST(UsageLogTest, LinesOfSeveralThreadsDoNotMix) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "usage";
  auto log = UsageLog::Open(path, nullptr);
  ASSERT_TRUE(log.ok()) << log.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) {
        (*log)->Write({.request_id = std::string(100, 'x')}, absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(LinesOf(path).size(), 400u);
}

TEST(UsageLogTest, ATornLineTakesNoOtherWithIt) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "usage";
  // A process that was killed while it wrote.
  std::ofstream(path) << R"({"call":"torn)";
  auto log = UsageLog::Open(path, nullptr);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write({.call = "a"}, absl::OkStatus());
  // A disk that is full within a line.
  const auto size = static_cast<rlim_t>(std::filesystem::file_size(path));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {size + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  (*log)->Write({.call = "b"}, absl::OkStatus());
  (*log)->Write({.call = "c"}, absl::OkStatus());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  (*log)->Write({.call = "d"}, absl::OkStatus());
  std::ifstream file(path);
  std::vector<std::string> calls;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    calls.push_back(json.is_object() ? json.value("call", "") : "torn");
  }
  EXPECT_THAT(calls, ::testing::ElementsAre("torn", "a", "torn", "d"));
}

TEST(UsageLogTest, AFileThatCannotBeOpenedIsNamed) {
  const absl::Status status = UsageLog::Open("/nowhere/usage", nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("--usage_log: \"/nowhere/usage\""));
}

TEST(UsageLogTest, EachEndHasAName) {
  const auto with = [](absl::Status status, std::string_view reason) {
    return OutcomeOf(protocol::WithReason(std::move(status), reason));
  };
  EXPECT_EQ(OutcomeOf(absl::OkStatus()), "finished");
  EXPECT_EQ(OutcomeOf(absl::CancelledError("")), "cancelled");
  EXPECT_EQ(OutcomeOf(absl::DeadlineExceededError("")), "expired");
  EXPECT_EQ(with(absl::AbortedError(""), protocol::kReasonAborted), "replaced");
  EXPECT_EQ(with(absl::AbortedError(""), protocol::kReasonModelChanged), "failed");
  EXPECT_EQ(with(absl::UnavailableError(""), protocol::kReasonContinue), "moved");
  EXPECT_EQ(with(absl::UnavailableError(""), protocol::kReasonWorkerLost), "failed");
}

}  // namespace
}  // namespace continuo::gateway
