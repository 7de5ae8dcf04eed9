// SPDX-License-Identifier: Apache-2.0
#include "services/common/shutdown.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>

namespace continuo::common {
namespace {

TEST(ShutdownSignalTest, TellsWhichSignalCame) {
  ShutdownSignal shutdown;
  kill(getpid(), SIGTERM);
  EXPECT_EQ(shutdown.Wait(), SIGTERM);
  kill(getpid(), SIGINT);
  EXPECT_EQ(shutdown.Wait(), SIGINT);
}

TEST(ShutdownSignalTest, ASignalWakesAThreadThatWaits) {
  ShutdownSignal shutdown;
  std::future<int> waited = std::async(std::launch::async, [&] { return shutdown.Wait(); });
  kill(getpid(), SIGTERM);
  EXPECT_EQ(waited.get(), SIGTERM);
}

TEST(ShutdownSignalTest, ASignalBeforeTheWaitIsKept) {
  ShutdownSignal shutdown;
  kill(getpid(), SIGTERM);
  EXPECT_EQ(shutdown.Wait(), SIGTERM);
  EXPECT_EQ(shutdown.WaitFor(absl::ZeroDuration()), std::nullopt);
}

TEST(ShutdownSignalTest, EachSignalWakesOneWait) {
  ShutdownSignal shutdown;
  kill(getpid(), SIGTERM);
  kill(getpid(), SIGINT);
  EXPECT_EQ(shutdown.Wait() + shutdown.Wait(), SIGTERM + SIGINT);
  EXPECT_EQ(shutdown.WaitFor(absl::ZeroDuration()), std::nullopt);
}

TEST(ShutdownSignalTest, WaitForEndsWithoutASignal) {
  ShutdownSignal shutdown;
  EXPECT_EQ(shutdown.WaitFor(absl::Milliseconds(1)), std::nullopt);
}

// A clock whose wall time is set back each time that it is read.
class FallingWallClock : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch() - ++looks_ * absl::Hours(1); }
  absl::Duration Elapsed() const override { return ++looks_ * absl::Milliseconds(1); }

 private:
  mutable std::atomic<int> looks_ = 0;
};

TEST(ShutdownSignalTest, WaitForIsNotHeldUpByTheClockOnTheWall) {
  const FallingWallClock clock;
  ShutdownSignal shutdown(&clock);
  EXPECT_EQ(shutdown.WaitFor(absl::Milliseconds(5)), std::nullopt);
}

TEST(ShutdownSignalTest, TheSignalActsAgainAfterTheDestructor) {
  const pid_t child = fork();
  if (child == 0) {
    { ShutdownSignal shutdown; }
    raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

}  // namespace
}  // namespace continuo::common
