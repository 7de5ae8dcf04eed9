// SPDX-License-Identifier: Apache-2.0
// A whole worker whose step does not end.
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/server/grpc/worker_server_harness.h"

namespace continuo::server {
namespace {

// The parts that outlive the server.
struct Surroundings {
  ManualClock manual_clock_;
  absl::Notification told_;
};

class HungEngineTest : protected Surroundings, public testing::WorkerServerTest {
 protected:
  HungEngineTest() : WorkerServerTest({.on_hang = [this] { Tell(); }}, &manual_clock_) {}

 private:
  void Tell() {
    if (!told_.HasBeenNotified()) told_.Notify();
  }
};

TEST_F(HungEngineTest, TheProcessIsToldOfAStepThatDoesNotEnd) {
  Serve();
  Generate(BaseRequest());
  manual_clock_.Advance(absl::Hours(1));
  Generate(BaseRequest());
  EXPECT_FALSE(told_.HasBeenNotified());
  executor_.SetOpen(false);
  auto call = Start(BaseRequest());
  WaitUntil([&] {
    manual_clock_.Advance(absl::Milliseconds(100));
    return told_.HasBeenNotified();
  });
  executor_.SetOpen(true);
  EXPECT_TRUE(call->Finish().ok());
}

}  // namespace
}  // namespace continuo::server
