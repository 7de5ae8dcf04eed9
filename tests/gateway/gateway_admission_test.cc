// SPDX-License-Identifier: Apache-2.0
// Tests admission as clients of a whole gateway see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/gateway.h"
#include "services/protocol/error.h"
#include "tests/gateway/gateway_fixture.h"

namespace continuo::gateway {
namespace {

class GatewayAdmissionTest : public GatewayTest {
 protected:
  GatewayAdmissionTest() { config_.auth.trust_tenant_header = true; }

  static void As(grpc::ClientContext& context, const std::string& tenant) {
    context.AddMetadata("x-tenant-id", tenant);
  }
  Answer GenerateAs(const std::string& tenant, const v1::GenerateRequest& request) {
    return Generate(request, [&](grpc::ClientContext& context) { As(context, tenant); });
  }
  // Calls wait before this response until release_.
  void HoldFrom(int first) {
    workers_[0]->SetScript([=, this](const FakeWorker::Call&, int response) {
      if (response == first) release_.WaitForNotification();
      return std::optional<absl::Status>();
    });
  }
  absl::Status Tokenize(const std::string& tenant) {
    grpc::ClientContext context;
    As(context, tenant);
    v1::TokenizeRequest request;
    request.set_text("ab");
    v1::TokenizeResponse response;
    return common::FromGrpcStatus(stub_->Tokenize(&context, request, &response));
  }

  GatewayConfig config_;
};

TEST_F(GatewayAdmissionTest, ATenantBeyondItsRateIsToldWhenToComeBackAndOthersAreServed) {
  AddWorkers(1);
  config_.admission.tenant.requests_per_second = 0.01;
  StartGateway(config_);
  WaitForWorkers(1);
  const Answer first = GenerateAs("a", Request());
  ExpectUndisturbed(first, Request());
  const absl::Status refused = GenerateAs("a", Request()).status;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonRateLimited);
  EXPECT_GT(protocol::RetryDelayOf(refused).value_or(absl::ZeroDuration()), absl::Seconds(10));
  EXPECT_EQ(NumCalls(), 1);
  ExpectUndisturbed(GenerateAs("b", Request()), Request());

  // A continuation is served. One that brings nothing to continue is not.
  v1::GenerateRequest continuation = Request();
  continuation.mutable_continuation();
  EXPECT_EQ(protocol::ReasonOf(GenerateAs("a", continuation).status), protocol::kReasonRateLimited);
  *continuation.mutable_continuation()->mutable_received() = first.responses.front();
  Answer rest = GenerateAs("a", continuation);
  rest.responses.insert(rest.responses.begin(), first.responses.front());
  ExpectUndisturbed(rest, Request());
}

TEST_F(GatewayAdmissionTest, ATenantBeyondItsPromptTokensIsRefused) {
  AddWorkers(1);
  config_.admission.tenant.prompt_tokens_per_second = 0.1;
  StartGateway(config_);
  WaitForWorkers(1);
  const v1::GenerateRequest request = Request(std::string(400, 'x'));
  ExpectUndisturbed(GenerateAs("a", request), request);
  EXPECT_EQ(protocol::ReasonOf(GenerateAs("a", request).status), protocol::kReasonRateLimited);
  EXPECT_EQ(GenerateAs("b", request).status, absl::OkStatus());
}

TEST_F(GatewayAdmissionTest, ATenantHasSoManyStreamsOpenAndThenGetsItsPlaceBack) {
  AddWorkers(1);
  config_.admission.tenant.max_open_requests = 1;
  StartGateway(config_);
  WaitForWorkers(1);
  HoldFrom(0);
  Answer held;
  std::thread stream([&] { held = GenerateAs("a", Request()); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 1; });
  EXPECT_EQ(protocol::ReasonOf(GenerateAs("a", Request()).status), protocol::kReasonRateLimited);
  std::thread other([&] { ExpectUndisturbed(GenerateAs("b", Request()), Request()); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 2; });
  release_.Notify();
  stream.join();
  other.join();
  ExpectUndisturbed(held, Request());
  ExpectUndisturbed(GenerateAs("a", Request()), Request());
}

TEST_F(GatewayAdmissionTest, NegativePriorityLeavesHalfOfTheQueue) {
  AddWorkers(1);
  config_.admission.max_queued_tokens = 200;
  StartGateway(config_);
  WaitForWorkers(1);
  HoldFrom(0);
  const v1::GenerateRequest long_prompt = Request(std::string(4 * 90, 'x'));
  v1::GenerateRequest batch = Request(std::string(4 * 20, 'y'));
  batch.set_priority(-1);
  std::thread stream([&] { ExpectUndisturbed(GenerateAs("a", long_prompt), long_prompt); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 1; });
  const absl::Status refused = GenerateAs("b", batch).status;
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded) << refused;
  batch.set_priority(0);
  std::thread other([&] { ExpectUndisturbed(GenerateAs("b", batch), batch); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 2; });
  release_.Notify();
  stream.join();
  other.join();
}

TEST_F(GatewayAdmissionTest, ADeadlineThatWouldPassInTheQueueIsRefusedBeforeAnyWork) {
  AddWorkers(1);
  workers_[0]->SetReport([](v1::WatchLoadResponse& report) { report.set_waiting_requests(1); });
  StartGateway(config_);
  WaitForWorkers(1);
  constexpr int kServed = 6, kAll = 30;
  constexpr absl::Duration kStep = absl::Milliseconds(80);
  // The worker begins one prompt of a thousand tokens in each step, and then stops.
  std::atomic<int> number = 0;
  workers_[0]->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 0) {
      const int mine = ++number;
      release_.WaitForNotificationWithTimeout(mine <= kServed ? mine * kStep
                                                              : absl::InfiniteDuration());
    }
    return std::nullopt;
  });
  const v1::GenerateRequest request = Request(std::string(4000, 'x'));
  absl::BlockingCounter served(kServed);
  std::vector<std::thread> streams;
  for (int i = 0; i < kAll; ++i) {
    streams.emplace_back([&] {
      const absl::Status status = GenerateAs("a", request).status;
      EXPECT_EQ(status, absl::OkStatus());
      if (!release_.HasBeenNotified()) served.DecrementCount();
    });
  }
  served.Wait();
  // 24 requests wait, for nearly two seconds.
  const absl::Status refused =
      Generate(request, [](grpc::ClientContext& context) {
        As(context, "a");
        context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1.5)));
      }).status;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  EXPECT_EQ(NumCalls(), kAll);
  release_.Notify();
  for (std::thread& stream : streams) stream.join();
}

TEST_F(GatewayAdmissionTest, OneTenantCannotTakeAllStreams) {
  AddWorkers(1);
  config_.admission.max_open_requests = 5;
  StartGateway(config_);
  WaitForWorkers(1);
  HoldFrom(0);
  // A tenant gets four fifths of them.
  std::vector<std::thread> streams;
  for (int i = 0; i < 4; ++i) {
    streams.emplace_back([&] { ExpectUndisturbed(GenerateAs("flood", Request()), Request()); });
  }
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 4; });
  const absl::Status refused = GenerateAs("flood", Request()).status;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  streams.emplace_back([&] { ExpectUndisturbed(GenerateAs("light", Request()), Request()); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 5; });
  release_.Notify();
  for (std::thread& stream : streams) stream.join();
}

TEST_F(GatewayAdmissionTest, ATenantThatCallsEverythingAContinuationCannotTakeTheWholeQueue) {
  AddWorkers(1);
  config_.admission.max_queued_tokens = 100;
  StartGateway(config_);
  WaitForWorkers(1);
  const v1::GenerateRequest fresh = Request(std::string(4 * 39, 'x'));
  const v1::GenerateRequest small = Request(std::string(4 * 9, 'y'));
  v1::GenerateRequest continuation = small;
  *continuation.mutable_continuation()->mutable_received() =
      GenerateAs("flood", small).responses.front();
  HoldFrom(0);
  // Two requests fill its share of the queue; beyond it, only a continuation is admitted.
  std::vector<std::thread> streams;
  const auto hold = [&](const std::string& tenant, const v1::GenerateRequest& request) {
    const size_t number = streams.size() + 2;
    streams.emplace_back([this, tenant, request] {
      EXPECT_EQ(GenerateAs(tenant, request).status, absl::OkStatus());
    });
    workers_[0]->WaitForCalls([&](const auto& calls) { return calls.size() == number; });
  };
  hold("flood", fresh);
  hold("flood", fresh);
  EXPECT_EQ(protocol::ReasonOf(GenerateAs("flood", small).status), protocol::kReasonOverloaded);
  hold("flood", continuation);
  const absl::Status refused = GenerateAs("flood", continuation).status;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  hold("light", small);
  release_.Notify();
  for (std::thread& stream : streams) stream.join();
}

TEST_F(GatewayAdmissionTest, OneTenantCannotTakeAllCallsOfTokenize) {
  AddWorkers(1);
  config_.forwarded.max_open_requests = 5;
  StartGateway(config_);
  WaitForWorkers(1);
  absl::Mutex mutex;
  int entered = 0;
  workers_[0]->SetTokenizeScript([&] {
    {
      absl::MutexLock lock(&mutex);
      ++entered;
    }
    release_.WaitForNotification();
  });
  // A tenant gets four fifths of them.
  std::vector<std::thread> calls;
  for (int i = 0; i < 4; ++i) {
    calls.emplace_back([&] { EXPECT_EQ(Tokenize("flood"), absl::OkStatus()); });
  }
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(
                                           +[](int* n) { return *n == 4; }, &entered),
                                       absl::Minutes(1)));
  }
  const absl::Status refused = Tokenize("flood");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  calls.emplace_back([&] { EXPECT_EQ(Tokenize("light"), absl::OkStatus()); });
  release_.Notify();
  for (std::thread& call : calls) call.join();
}

}  // namespace
}  // namespace continuo::gateway
