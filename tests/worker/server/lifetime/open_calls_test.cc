// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/open_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr absl::Duration kStart = absl::Seconds(1000);

// A request that records its ends.
class FakeCall {
 public:
  std::vector<std::string> events;
  std::shared_ptr<RequestControl> control = std::make_shared<RequestControl>(
      RequestControl::Hooks{.cancel = [this](absl::Status why) { Note("cancel", why); },
                            .cut = [this](const absl::Status& why) { Note("cut", why); }});

 private:
  void Note(const char* what, const absl::Status& why) {
    events.push_back(std::string(what) + " " + std::string(why.message()));
  }
};

TEST(RequestControlTest, AnEndBeforeTheEngineHasTheRequestIsPassedOnLater) {
  FakeCall call;
  call.control->End(absl::CancelledError("first"));
  call.control->End(absl::AbortedError("second"));
  EXPECT_THAT(call.events, IsEmpty());
  ASSERT_TRUE(call.control->reason().has_value());
  call.control->Submitted();
  EXPECT_THAT(call.events, ElementsAre("cancel first"));
}

TEST(OpenCallsTest, ACallThatWasToldToEndAndDoesNotIsCutOnceAfterThePatience) {
  FakeCall call;
  OpenCalls calls(kPatience);
  calls.Add(call.control);
  calls.Tick(kStart);
  call.control->Submitted();
  call.control->End(absl::AbortedError("why"));
  const absl::Duration told = kStart + absl::Seconds(100);
  calls.Tick(told);
  calls.Tick(told + kPatience - absl::Milliseconds(1));
  EXPECT_THAT(call.events, ElementsAre("cancel why"));
  calls.Tick(told + kPatience);
  calls.Tick(told + 2 * kPatience);
  EXPECT_THAT(call.events, ElementsAre("cancel why", "cut why"));
}

TEST(OpenCallsTest, ACallThatNobodyEndsMayTakeAsLongAsItLikes) {
  FakeCall call;
  OpenCalls calls(kPatience);
  calls.Add(call.control);
  calls.Tick(kStart);
  calls.Tick(kStart + 1000 * kPatience);
  EXPECT_THAT(call.events, IsEmpty());
}

TEST(OpenCallsTest, ACallThatHasEndedIsNotCut) {
  FakeCall call;
  OpenCalls calls(kPatience);
  calls.Add(call.control);
  EXPECT_EQ(calls.size(), 1u);
  call.control->End(absl::AbortedError("why"));
  calls.Tick(kStart);
  calls.Remove(call.control.get());
  calls.Tick(kStart + kPatience);
  EXPECT_THAT(call.events, IsEmpty());
  EXPECT_EQ(calls.size(), 0u);
}

TEST(OpenCallsTest, ACallMayBeOverBeforeItsCutReturns) {
  OpenCalls calls(kPatience);
  std::shared_ptr<RequestControl> control;
  control = std::make_shared<RequestControl>(
      RequestControl::Hooks{.cancel = [](absl::Status) {},
                            .cut = [&](const absl::Status&) { calls.Remove(control.get()); }});
  calls.Add(control);
  control->End(absl::AbortedError("why"));
  calls.Tick(kStart);
  calls.Tick(kStart + kPatience);
  EXPECT_EQ(calls.size(), 0u);
}

}  // namespace
}  // namespace continuo::server
