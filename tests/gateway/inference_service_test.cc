// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/inference_service.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "services/common/error.h"
#include "tests/gateway/clock_with_hook.h"

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
  Admission admission_{AdmissionLimits{}}, forwarded_{AdmissionLimits{}};
  GatewayMetrics metrics_{&admission_, &view_, &clock_};
  std::unique_ptr<Authenticator> auth_ = *Authenticator::Open({});
  OpenCalls open_calls_;
  InferenceService service_{InferenceService::Parts{
      .relay = {.router = &router_, .timer = &timer_, .clock = &clock_, .observer = &metrics_},
      .admission = &admission_,
      .forwarded = &forwarded_,
      .metrics = &metrics_,
      .open_calls = &open_calls_,
      .auth = auth_.get()}};
};

TEST_F(InferenceServiceTest, AnOpenStreamIsEnded) {
  KeptClient client;
  auto relay = service_.Open(call_, Request(), &client);
  ASSERT_TRUE(relay.ok());
  (*relay)->Start();
  EXPECT_EQ(service_.num_streams(), 1);
  EXPECT_FALSE(client.status.has_value());
  service_.EndStreams(WithReason(absl::UnavailableError("ends"), kReasonContinue));
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(ReasonOf(*client.status), kReasonContinue);
  EXPECT_EQ(service_.num_streams(), 0);
}

TEST_F(InferenceServiceTest, AStreamThatIsOpenedWhileAllAreEndedDoesNotStay) {
  KeptClient client;
  // After the request was admitted, before its stream is among those that are ended.
  clock_.OnNextUse([&] {
    service_.BeginDrain();
    service_.EndStreams(WithReason(absl::UnavailableError("ends"), kReasonContinue));
  });
  const auto relay = service_.Open(call_, Request(), &client);
  EXPECT_EQ(ReasonOf(relay.status()), kReasonContinue);
  EXPECT_EQ(service_.num_streams(), 0);
  EXPECT_EQ(admission_.counts().open_requests, 0);
}

}  // namespace
}  // namespace continuo::gateway
