// SPDX-License-Identifier: Apache-2.0
// Tests of calls with an idempotency key, over gRPC, at two gateways of one fleet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <optional>
#include <string>

#include "services/protocol/error.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

class GatewayIdempotencyTest : public GatewayTest {
 protected:
  GatewayConfig WithToken(const std::string& token) {
    GatewayConfig config;
    config.token_file = folder_.path() / token;
    std::ofstream(config.token_file) << "token-of-this-fleet-" << token << "\n";
    return config;
  }
  Answer GenerateKeyed(const v1::GenerateRequest& request, const std::string& key = "key",
                       const std::function<void(int)>& on_response = nullptr) {
    return Generate(
        request, [&](grpc::ClientContext& context) { context.AddMetadata("idempotency-key", key); },
        on_response);
  }
  static std::string MarkOf(const FakeWorker::Call& call, const std::string& key) {
    const auto at = call.metadata.find(key);
    return at == call.metadata.end() ? "" : at->second;
  }
  // Returns what all calls of a key have in common.
  static std::string IdentityOf(const FakeWorker::Call& call) {
    return absl::StrCat(call.request.request_id(), " ", call.request.sampling().seed(), " ",
                        MarkOf(call, "x-continuo-time"), " ", MarkOf(call, "x-continuo-body"));
  }

  testing::TempFolder folder_;
};

TEST_F(GatewayIdempotencyTest, EveryGatewayOfTheFleetDerivesTheSame) {
  AddWorkers(1);
  std::vector<std::string> identities;
  for (const char* const token : {"one", "one", "two"}) {
    StartGateway(WithToken(token));
    WaitForWorkers(1);
    ASSERT_EQ(GenerateKeyed(Request()).status, absl::OkStatus());
    identities.push_back(IdentityOf(workers_[0]->calls().back()));
    gateway_.reset();
  }
  EXPECT_EQ(identities[0], identities[1]);
  EXPECT_NE(identities[0], identities[2]);
}

TEST_F(GatewayIdempotencyTest, AWorkerGetsIdSeedTimeAndBody) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  const Answer first = GenerateKeyed(Request());
  const Answer again = GenerateKeyed(Request());
  ASSERT_EQ(first.status, absl::OkStatus());
  const std::vector<FakeWorker::Call> calls = workers_[0]->calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(IdentityOf(calls[0]), IdentityOf(calls[1]));
  EXPECT_EQ(Join(first.responses), Join(again.responses));
  EXPECT_EQ(first.responses[0].accepted().request_id(), calls[0].request.request_id());
  EXPECT_TRUE(calls[0].request.has_continuation()) << "it replaces a live one at a worker";
  EXPECT_EQ(MarkOf(calls[0], "x-continuo-body").size(), 64u);
  EXPECT_NE(MarkOf(calls[0], "x-continuo-time"), "");
  // Without a key there is none of this.
  ASSERT_EQ(Generate(Request()).status, absl::OkStatus());
  const FakeWorker::Call plain = workers_[0]->calls().back();
  EXPECT_FALSE(plain.request.has_continuation());
  EXPECT_EQ(MarkOf(plain, "x-continuo-body") + MarkOf(plain, "x-continuo-time"), "");
}

TEST_F(GatewayIdempotencyTest, TheClientsOwnSeedAndIdStay) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_seed(5);
  request.set_request_id("mine");
  ASSERT_EQ(GenerateKeyed(request).status, absl::OkStatus());
  EXPECT_EQ(workers_[0]->calls()[0].request.sampling().seed(), 5u);
  EXPECT_EQ(workers_[0]->calls()[0].request.request_id(), "mine");
}

TEST_F(GatewayIdempotencyTest, AnotherRequestWithTheKeyIsRefused) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  ASSERT_EQ(GenerateKeyed(Request("once")).status, absl::OkStatus());
  const absl::Status other = GenerateKeyed(Request("twice")).status;
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(protocol::ReasonOf(other), protocol::kReasonKeyReused);
  EXPECT_EQ(workers_[0]->num_calls(), 1u);
  EXPECT_EQ(GenerateKeyed(Request("twice"), "key2").status, absl::OkStatus());
}

TEST_F(GatewayIdempotencyTest, TheKeyNamesTheRequestWhateverIdTheClientGivesIt) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  const auto request = [](const std::string& text, const std::string& id) {
    v1::GenerateRequest request = Request(text);
    request.set_request_id(id);
    return request;
  };
  ASSERT_EQ(GenerateKeyed(request("once", "a")).status, absl::OkStatus());
  EXPECT_EQ(protocol::ReasonOf(GenerateKeyed(request("twice", "b")).status),
            protocol::kReasonKeyReused);
  EXPECT_EQ(GenerateKeyed(request("twice", "a"), "key2").status, absl::OkStatus());
}

TEST_F(GatewayIdempotencyTest, ABadKeyAndATimeLimitAreRefused) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  EXPECT_EQ(GenerateKeyed(Request(), std::string(256, 'k')).status.code(),
            absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest limited = Request();
  limited.mutable_stopping()->mutable_time_limit()->set_seconds(1);
  EXPECT_EQ(protocol::FieldOf(GenerateKeyed(limited).status), "stopping.time_limit");
  EXPECT_EQ(workers_[0]->num_calls(), 0u);
}

TEST_F(GatewayIdempotencyTest, ARetryTakesTheLiveGenerationOver) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  const v1::GenerateRequest request = LongRequest("retry");
  absl::Notification begun;
  for (const auto& worker : workers_) {
    worker->SetScript([&](const FakeWorker::Call& call, int response) {
      if (response == 2 && !begun.HasBeenNotified()) {
        begun.Notify();
        while (!call.is_cancelled()) std::this_thread::yield();
      }
      return std::optional<absl::Status>();
    });
  }
  std::future<Answer> first =
      std::async(std::launch::async, [&] { return GenerateKeyed(request); });
  begun.WaitForNotification();
  const Answer second = GenerateKeyed(request);
  ASSERT_EQ(second.status, absl::OkStatus());
  const absl::Status replaced = first.get().status;
  EXPECT_EQ(replaced.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(replaced), protocol::kReasonAborted);
  EXPECT_EQ(Join(GenerateKeyed(request).responses), Join(second.responses));
}

TEST_F(GatewayIdempotencyTest, AContinuationBringsItsOwnAlong) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  const Answer whole = Generate(LongRequest("own"));
  v1::GenerateRequest request = LongRequest("own");
  *request.mutable_continuation()->mutable_received() = whole.responses[0];
  ASSERT_EQ(GenerateKeyed(request).status, absl::OkStatus());
  const FakeWorker::Call call = workers_[0]->calls().back();
  EXPECT_EQ(call.request.request_id(), "");
  EXPECT_EQ(MarkOf(call, "x-continuo-body"), "");
}

}  // namespace
}  // namespace continuo::gateway
