// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <future>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace continuo::cli {
namespace {

using End = CommandResult::End;

class CommandTest : public ::testing::Test {
 protected:
  absl::StatusOr<CommandResult> Sh(const std::string& script, const std::string& input = "") {
    return RunCommand({"sh", "-c", script}, input, limits_, interrupt_);
  }
  CommandLimits limits_{.timeout = absl::Hours(1)};
  Interrupt interrupt_;
};

TEST_F(CommandTest, InputAndBothOutputsArrive) {
  const std::string input = std::string(200'000, 'x') + "\n";
  limits_.max_bytes = 300'000;
  const auto result = Sh("cat; echo why >&2; exit 3", input);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kExit);
  EXPECT_EQ(result->code, 3);
  EXPECT_EQ(result->output, input);
  EXPECT_EQ(result->message, "why\n");
}

TEST_F(CommandTest, WordsAreNotInterpreted) {
  const auto result =
      RunCommand({"printf", "%s|", "$HOME; `id`", "", "*"}, "", limits_, interrupt_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output, "$HOME; `id`||*|");
}

TEST_F(CommandTest, AProgramThatIsNotThereIsNamed) {
  const auto result = RunCommand({"/no/such program"}, "", limits_, interrupt_);
  EXPECT_EQ(result.status().message(),
            "cannot start \"/no/such program\": No such file or directory");
}

TEST_F(CommandTest, ASignalIsNoExit) {
  const auto result = Sh("kill -TERM $$");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kSignal);
  EXPECT_EQ(result->code, SIGTERM);
}

// The command neither ends nor writes, so only the limit can end it.
TEST_F(CommandTest, TimeIsLimited) {
  limits_.timeout = absl::Milliseconds(1);
  const auto result = Sh("while :; do :; done");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kTimeout);
}

TEST_F(CommandTest, OutputIsLimited) {
  limits_.max_bytes = 1000;
  const auto result = Sh("while :; do echo 123456789; done");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kCut);
  EXPECT_EQ(result->output.size(), 1000);
  const auto exactly = Sh("i=0; while [ $i -lt 100 ]; do echo 123456789; i=$((i+1)); done");
  ASSERT_TRUE(exactly.ok()) << exactly.status();
  EXPECT_EQ(exactly->end, End::kExit);
  EXPECT_EQ(exactly->output.size(), 1000);
}

TEST_F(CommandTest, MessagesAreCutWithoutAnEnd) {
  limits_.max_bytes = 1000;
  const auto result =
      Sh("i=0; while [ $i -lt 20000 ]; do echo 123456789; i=$((i+1)); done >&2; echo done");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kExit);
  EXPECT_EQ(result->output, "done\n");
  EXPECT_EQ(result->message.size(), 1000);
}

// A process in the background holds the output open, and ends with the command.
TEST_F(CommandTest, NothingIsLeftRunning) {
  const auto result = Sh("sh -c 'while :; do :; done' & echo $!");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kExit);
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(result->output, &pid));
  // Its parent is gone, so that another process reaps it; a zombie can be signalled until then.
  while (kill(pid, 0) == 0) {
    const auto state = RunCommand({"sh", "-c", absl::StrCat("cut -d' ' -f3 /proc/", pid, "/stat")},
                                  "", limits_, interrupt_);
    ASSERT_TRUE(state.ok()) << state.status();
    if (state->output == "Z\n") break;
  }
}

TEST_F(CommandTest, AnInterruptEndsIt) {
  auto result = std::async(std::launch::async, [this] { return Sh("while :; do :; done"); });
  while (!interrupt_.Signal()) std::this_thread::yield();
  EXPECT_EQ(result.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(interrupt_.Signal());
}

TEST_F(CommandTest, SignalsThatThisProcessBlocksEndTheCommand) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto result = Sh("kill -TERM $$; echo alive");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end, End::kSignal);
}

}  // namespace
}  // namespace continuo::cli
