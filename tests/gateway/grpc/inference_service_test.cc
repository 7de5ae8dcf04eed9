// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/inference_service.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/openai/generation_queue.h"
#include "services/protocol/error.h"
#include "tests/gateway/relay/clock_with_hook.h"

namespace continuo::gateway {
namespace {

class KeptClient : public RelayClient {
 public:
  void Write(const v1::GenerateResponse&) override {}
  void Finish(const absl::Status& end, const RelayReport&) override { status = end; }

  std::optional<absl::Status> status;
};

class NoTimer : public Timer {
 public:
  void After(absl::Duration, std::function<void()>) override {}
};

v1::GenerateRequest Request() {
  v1::GenerateRequest request;
  request.set_text("once");
  return request;
}

// A service without workers, so that a stream that is opened stays open.
class InferenceServiceTest : public ::testing::Test {
 protected:
  const ClientCall call_ = {.metadata = [](const char*) { return std::string(); }, .num_bytes = 10};
  ClockWithHook clock_;
  LoadView view_;
  std::mt19937_64 random_{7};
  Router router_{&LeastLoadedOfTwo, &view_, &clock_, random_};
  NoTimer timer_;
  ManualClock queue_clock_;
  Admission admission_{AdmissionLimits{}, &queue_clock_}, forwarded_{AdmissionLimits{}};
  GatewayMetrics metrics_{&admission_, &view_, &clock_};
  std::unique_ptr<Authenticator> auth_ = *Authenticator::Open({});
  KeyLimiter key_limiter_{&queue_clock_};
  OpenCalls open_calls_;
  InferenceService service_{InferenceService::Dependencies{
      .relay = {.router = &router_, .timer = &timer_, .clock = &clock_, .observer = &metrics_},
      .admission = &admission_,
      .forwarded = &forwarded_,
      .metrics = &metrics_,
      .open_calls = &open_calls_,
      .auth = auth_.get(),
      .key_limiter = &key_limiter_}};
};

TEST_F(InferenceServiceTest, AnOpenStreamIsEnded) {
  KeptClient client;
  auto relay = service_.Open(call_, Request(), &client);
  ASSERT_TRUE(relay.ok());
  (*relay)->Start();
  EXPECT_EQ(service_.num_streams(), 1);
  EXPECT_FALSE(client.status.has_value());
  service_.EndStreams(
      protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(protocol::ReasonOf(*client.status), protocol::kReasonContinue);
  EXPECT_EQ(service_.num_streams(), 0);
}

TEST_F(InferenceServiceTest, AStreamThatIsOpenedWhileAllAreEndedDoesNotStay) {
  KeptClient client;
  // The hook runs after the request was admitted, and before its stream is among those that end.
  clock_.OnNextUse([&] {
    service_.BeginDrain();
    service_.EndStreams(
        protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
  });
  const auto relay = service_.Open(call_, Request(), &client);
  EXPECT_EQ(protocol::ReasonOf(relay.status()), protocol::kReasonContinue);
  EXPECT_EQ(service_.num_streams(), 0);
  EXPECT_EQ(admission_.counts().open_requests, 0);
}

TEST_F(InferenceServiceTest, AStreamThatIsEndedBeforeItsStartHearsOfItThen) {
  KeptClient client;
  auto relay = service_.Open(call_, Request(), &client);
  service_.EndStreams(
      protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
  EXPECT_FALSE(client.status.has_value());
  (*relay)->Start();
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(protocol::ReasonOf(*client.status), protocol::kReasonContinue);
}

TEST_F(InferenceServiceTest, AnIdleWorkerIsEnoughForADeadlineThatTheQueueDoesNotHold) {
  // Ten requests wait, and one begins each second.
  std::vector<Admission::Ticket> tickets;
  for (int i = 0; i < 40; ++i) {
    if (i >= 10) {
      queue_clock_.Advance(absl::Seconds(1));
      tickets.front().MarkStarted();
      tickets.erase(tickets.begin());
    }
    tickets.push_back(*admission_.Admit({.tokens = 100, .tenant = "default", .model = "m"}));
    tickets.back().SetSent(true);
  }
  WorkerLoad busy = {.address = "busy:1",
                     .model = "m",
                     .state = WorkerState::kServing,
                     .waiting_requests = 10,
                     .report_time = clock_.Elapsed()};
  const auto publish = [&](const std::vector<WorkerLoad>& loads) {
    LoadSnapshot snapshot = {.known_models = {"m"}, .discovery_complete = true};
    for (const WorkerLoad& load : loads) {
      snapshot.workers.push_back(std::make_shared<const WorkerLoad>(load));
    }
    view_.Set(std::move(snapshot));
  };
  v1::GenerateRequest request = Request();
  request.set_model("m");
  ClientCall call = call_;
  call.deadline = clock_.Now() + absl::Seconds(4);
  KeptClient client;
  publish({busy});
  EXPECT_EQ(protocol::ReasonOf(service_.Open(call, request, &client).status()),
            protocol::kReasonOverloaded);
  WorkerLoad idle = busy;
  idle.address = "new:1";
  idle.waiting_requests = 0;
  publish({busy, idle});
  auto relay = service_.Open(call, request, &client);
  ASSERT_TRUE(relay.ok());
  service_.EndStreams(absl::UnavailableError("ends"));
  (*relay)->Start();
  EXPECT_TRUE(client.status.has_value());
}

TEST_F(InferenceServiceTest, PromptsThatAreEndedWhileTheNextIsOpenedEndAndLeaveNothing) {
  auto queue = std::make_shared<openai::GenerationQueue>([] {}, nullptr);
  int asked = 0;
  const ClientCall call = {.metadata = [&](std::string_view key) {
    if (key == "x-request-id" && ++asked == 2) {
      service_.EndStreams(
          protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
    }
    return std::string();
  }};
  const absl::Status status = queue->Open(&service_, call, {Request(), Request()}, 1);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonContinue);
  const auto items = queue->Take();
  ASSERT_EQ(items.size(), 1);
  EXPECT_EQ(protocol::ReasonOf(*items[0].end), protocol::kReasonContinue);
  const std::weak_ptr<openai::GenerationQueue> kept = queue;
  queue.reset();
  EXPECT_TRUE(kept.expired());
}

}  // namespace
}  // namespace continuo::gateway
