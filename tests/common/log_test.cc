// SPDX-License-Identifier: Apache-2.0
#include "services/common/log.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/version_info.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"

#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 65
#include "absl/log/log.h"
#else
#include <grpc/support/log.h>
#endif

namespace continuo::common {
namespace {

using ::nlohmann::json;

json Parse(std::string_view message, std::initializer_list<LogField> fields = {}) {
  return json::parse(FormatLogLine(absl::UnixEpoch(), LogSeverity::kInfo, message, fields));
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

TEST(LogTest, ALineIsOneObjectInAFixedOrder) {
  EXPECT_EQ(FormatLogLine(absl::UnixEpoch() + absl::Microseconds(1500), LogSeverity::kError, "lost",
                          {{"worker", "w0"}, {"after", absl::Milliseconds(250)}}),
            R"({"time":"1970-01-01T00:00:00.001500Z","severity":"ERROR","message":"lost",)"
            R"("worker":"w0","after":0.25})");
}

// Lines of one second share some of their text; lines of others do not.
TEST(LogTest, TimesAreThoseOfAbseil) {
  const absl::Time begin = absl::FromUnixSeconds(1764460799);  // the last second of an hour
  for (const absl::Duration after :
       {absl::ZeroDuration(), absl::Microseconds(1), absl::Nanoseconds(999999999), absl::Seconds(1),
        absl::Milliseconds(500), absl::Seconds(-1), absl::Nanoseconds(-1), absl::Hours(24 * 365),
        absl::Microseconds(123456)}) {
    const std::string line = FormatLogLine(begin + after, LogSeverity::kInfo, "x", {});
    EXPECT_EQ(json::parse(line)["time"],
              absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", begin + after, absl::UTCTimeZone()));
  }
}

TEST(LogTest, NumbersHaveNineDigits) {
  for (const auto& [number, text] : std::vector<std::pair<double, std::string>>{
           {0, "0"},
           {-0.25, "-0.25"},
           {1.0 / 3, "0.333333333"},
           {123456789.5, "123456790"},
           {1e9, "1e+09"},
           {1e-5, "1e-05"},
           {std::numeric_limits<double>::max(), "1.79769313e+308"}}) {
    const std::string line =
        FormatLogLine(absl::UnixEpoch(), LogSeverity::kInfo, "x", {{"n", number}});
    EXPECT_NE(line.find("\"n\":" + text + "}"), std::string::npos) << line;
  }
}

TEST(LogTest, EveryTypeOfValueKeepsItsType) {
  const json line = Parse("x", {{"text", std::string("a")},
                                {"yes", true},
                                {"negative", -1},
                                {"large", std::numeric_limits<uint64_t>::max()},
                                {"half", 0.5},
                                {"nan", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(line["text"], "a");
  EXPECT_EQ(line["yes"], true);
  EXPECT_EQ(line["negative"], -1);
  EXPECT_EQ(line["large"], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(line["half"], 0.5);
  EXPECT_TRUE(line["nan"].is_null());
}

TEST(LogTest, ControlCharactersAndQuotesStayInsideTheString) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  const std::string line = FormatLogLine(absl::UnixEpoch(), LogSeverity::kInfo, all, {{all, all}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(json::parse(line)["message"], all);
  EXPECT_EQ(json::parse(line)[all], all);
}

TEST(LogTest, CharactersOfEveryLengthStay) { EXPECT_EQ(Parse("aé€😀")["message"], "aé€😀"); }

TEST(LogTest, BytesThatAreNoCharacterBecomeReplacements) {
  EXPECT_EQ(Parse("a\xff"
                  "b")["message"],
            "a\ufffdb");
  EXPECT_EQ(Parse("\xc3")["message"], "\ufffd");
  EXPECT_EQ(Parse("\xc0\xaf")["message"], "\ufffd\ufffd");            // Overlong.
  EXPECT_EQ(Parse("\xed\xa0\x80")["message"], "\ufffd\ufffd\ufffd");  // A surrogate.
}

TEST(LogTest, LinesOfSeveralThreadsDoNotMix) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) Log(LogSeverity::kInfo, std::string(300, 'x'), {{"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = Lines(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(lines.size(), 200);
  for (const std::string& line : lines) EXPECT_TRUE(json::accept(line)) << line;
}

TEST(LogDeathTest, NoLineComesAfterTheOneThatEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_while_others_log = [] {
    constexpr int kThreads = 4;
    absl::BlockingCounter all_log(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      std::thread([&all_log] {
        Log(LogSeverity::kInfo, "first");
        all_log.DecrementCount();
        for (;;) Log(LogSeverity::kInfo, "more");
      }).detach();
    }
    all_log.Wait();
    LogAndExit(3, "the end", {{"reason", "a test"}});
  };
  EXPECT_EXIT(end_while_others_log(), ::testing::ExitedWithCode(3),
              "\"severity\":\"ERROR\",\"message\":\"the end\",\"reason\":\"a test\"\\}\n$");
}

TEST(LogTest, LinesOfGrpcAreJsonToo) {
  InstallGrpcLogSink();
  ::testing::internal::CaptureStderr();
#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 65
  LOG(ERROR).AtLocation("/somewhere/file.cc", 7) << "broken \"pipe\"";
#else
  gpr_log("/somewhere/file.cc", 7, GPR_LOG_SEVERITY_ERROR, "broken \"%s\"", "pipe");
#endif
  const std::vector<std::string> lines = Lines(::testing::internal::GetCapturedStderr());
  ASSERT_EQ(lines.size(), 1);
  const json line = json::parse(lines[0]);
  EXPECT_EQ(line["severity"], "ERROR");
  EXPECT_EQ(line["message"], "broken \"pipe\"");
  EXPECT_EQ(line["source"], "file.cc:7");
}

TEST(LogTest, LinesBelowTheLevelAreNotWritten) {
  ::testing::internal::CaptureStderr();
  SetLogLevel("warning");
  Log(LogSeverity::kInfo, "one");
  Log(LogSeverity::kWarning, "two");
  SetLogLevel("error");
  Log(LogSeverity::kWarning, "three");
  Log(LogSeverity::kError, "four");
  SetLogLevel("info");
  Log(LogSeverity::kInfo, "five");
  std::vector<std::string> messages;
  for (const std::string& line : Lines(::testing::internal::GetCapturedStderr())) {
    messages.push_back(json::parse(line)["message"]);
  }
  EXPECT_THAT(messages, ::testing::ElementsAre("two", "four", "five"));
}

}  // namespace
}  // namespace continuo::common
