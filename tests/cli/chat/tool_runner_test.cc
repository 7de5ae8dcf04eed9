// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/tool_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ToolRunnerTest : public ::testing::Test {
 protected:
  ToolRunnerTest() {
    flags_.file = ::testing::TempDir() + "tools.json";
    flags_.limits.timeout = absl::Hours(1);
    std::ofstream(flags_.file) << R"([
      {"type": "function", "function": {"name": "echo"}, "command": ["cat"]},
      {"type": "function", "function": {"name": "fails"},
       "command": ["sh", "-c", "echo half; printf 'bad\\033[2J\\n' >&2; exit 7"]},
      {"type": "function", "function": {"name": "absent"}, "command": ["/no/such"]},
      {"type": "function", "function": {"name": "bytes"}, "command": ["printf", "\\377\\n\\n"]},
      {"type": "function", "function": {"name": "hangs"},
       "command": ["sh", "-c", "while :; do :; done"]}])";
  }
  // The results of calls of one runner; `typed` is what a person types.
  std::vector<std::string> Run(const std::vector<std::pair<std::string, std::string>>& calls,
                               const std::string& typed = "", bool interactive = false) {
    auto runner = ToolRunner::Open(flags_);
    EXPECT_TRUE(runner.ok()) << runner.status();
    std::istringstream in(typed);
    std::ostringstream out, err;
    const Console console{in, out, err, interactive};
    std::vector<std::string> results;
    for (const auto& [name, arguments] : calls) {
      v1::ToolCall call;
      call.set_name(name);
      call.set_arguments(arguments);
      auto result = runner->Run(call, interrupt_, console);
      EXPECT_TRUE(result.ok()) << result.status();
      results.push_back(*result);
    }
    shown_ = err.str();
    EXPECT_EQ(out.str(), "");
    return results;
  }

  ToolFlags flags_;
  Interrupt interrupt_;
  std::string shown_;
};

TEST_F(ToolRunnerTest, ArgumentsAreTheInputAndTheOutputIsTheResult) {
  flags_.allowed = {"echo"};
  const std::string arguments = R"json({ "x": "$(id)" })json";
  EXPECT_EQ(Run({{"echo", arguments}}).at(0), arguments);
  EXPECT_EQ(shown_, "[echo → { \"x\": \"$(id)\" }]\n");
}

TEST_F(ToolRunnerTest, NobodyAllowedItSoItDoesNotRun) {
  flags_.allowed = {"fails"};
  EXPECT_EQ(Run({{"echo", "{}"}}, "y\n").at(0), "error: not allowed");
}

TEST_F(ToolRunnerTest, APersonAllowsACommandOnceOrAlways) {
  const std::vector<std::string> results =
      Run({{"echo", "{}"}, {"echo", "{}"}, {"echo", "{}"}, {"echo", "{}"}, {"absent", "{}"}},
          "what\ny\nno\nalways\n", /*interactive=*/true);
  EXPECT_EQ(results[0], "{}");
  EXPECT_EQ(results[1], "error: not allowed");
  EXPECT_EQ(results[2], "{}");
  EXPECT_EQ(results[3], "{}");
  EXPECT_EQ(results[4], "error: not allowed") << "the end of the input agrees to nothing";
  EXPECT_THAT(shown_, StartsWith("Run cat? y(es), n(o), a(lways): Run cat? "));
}

TEST_F(ToolRunnerTest, FailuresAreResults) {
  flags_.allowed = {"fails", "absent", "bytes", "hangs"};
  flags_.limits.timeout = absl::Seconds(1);
  const std::vector<std::string> results =
      Run({{"fails", "{}"}, {"absent", "{}"}, {"bytes", "{}"}, {"hangs", "{}"}});
  EXPECT_EQ(results[0], "error: exit status 7\nhalf");
  EXPECT_EQ(results[1], "error: cannot start \"/no/such\": No such file or directory");
  EXPECT_EQ(results[2], "\ufffd");
  EXPECT_EQ(results[3], "error: no end within 1s");
  EXPECT_THAT(shown_, HasSubstr("[fails said: bad\ufffd[2J]\n"));
}

TEST_F(ToolRunnerTest, TooMuchIsCut) {
  flags_.allowed = {"echo"};
  flags_.limits.max_bytes = 4;
  EXPECT_EQ(Run({{"echo", R"({"a": 1})"}}).at(0), "error: cut off after 4 bytes\n{\"a\"");
}

TEST_F(ToolRunnerTest, WhatTheModelMadeUpIsAResult) {
  flags_.allowed = {"echo"};
  const std::vector<std::string> results =
      Run({{"nothing\x1b", "{}"}, {"echo", ""}, {"echo", "[]"}, {"echo", R"({"a": 1, "a": 2})"}});
  EXPECT_EQ(results[0], "error: there is no tool \"nothing\x1b\"");
  EXPECT_THAT(results[1], StartsWith("error: the arguments"));
  EXPECT_EQ(results[2], "error: the arguments are no JSON object");
  EXPECT_THAT(results[3], StartsWith("error: the arguments"));
  EXPECT_THAT(shown_, Not(HasSubstr("\x1b")));
}

TEST_F(ToolRunnerTest, ToolsThatAreAllowedExist) {
  flags_.allowed = {"echo", "ecko"};
  EXPECT_EQ(ToolRunner::Open(flags_).status().message(),
            "--allow_tools: " + flags_.file + " has no tool \"ecko\"");
  flags_.file = "";
  EXPECT_EQ(ToolRunner::Open(flags_).status().message(), "--allow_tools needs --tools");
}

}  // namespace
}  // namespace continuo::cli
