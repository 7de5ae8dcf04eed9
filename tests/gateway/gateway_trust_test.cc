// SPDX-License-Identifier: Apache-2.0
// Tests how a gateway and its workers know each other.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "token-of-the-fleet-1";

class GatewayTrustTest : public GatewayTest {
 protected:
  // The threads of workers use what is declared here.
  ~GatewayTrustTest() override {
    gateway_.reset();
    workers_.clear();
  }

  std::string Write(const std::string& text) {
    const std::string path = temp_.path().string() + "/token";
    std::ofstream(path) << text;
    return path;
  }
  std::string Refusal(GatewayConfig config) {
    config.listen = config.http_listen = config.metrics_listen = "127.0.0.1:0";
    config.workers = "127.0.0.1:1";
    const auto gateway = Gateway::Start(config);
    EXPECT_EQ(gateway.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(gateway.status().message());
  }

  const testing::TempFolder temp_;
  std::atomic<bool> refused_ = false;
};

TEST_F(GatewayTrustTest, WorkersAreShownTheFirstTokenAndNeverAClients) {
  AddWorkers(1);
  GatewayConfig config;
  config.token_file = Write(absl::StrCat(kToken, "\ntoken-of-the-fleet-2\n"));
  StartGateway(config);
  WaitForWorkers(1);
  const v1::GenerateRequest request = Request();
  ExpectUndisturbed(Generate(request,
                             [](grpc::ClientContext& context) {
                               context.AddMetadata("x-continuo-token", "token-of-a-client-01");
                             }),
                    request);
  const auto calls = workers_[0]->calls();
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_EQ(calls[0].metadata.count("x-continuo-token"), 1u);
  EXPECT_EQ(calls[0].metadata.find("x-continuo-token")->second, kToken);
}

TEST_F(GatewayTrustTest, WithoutATokenWorkersAreShownNone) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  EXPECT_TRUE(Generate(Request()).status.ok());
  EXPECT_EQ(workers_[0]->calls()[0].metadata.count("x-continuo-token"), 0u);
}

TEST_F(GatewayTrustTest, AWorkerThatRefusesTheGatewayIsNoAnswerToTheClient) {
  AddWorkers(2);
  for (const auto& worker : workers_) {
    worker->SetScript(
        [&refused = refused_](const FakeWorker::Call&, int) -> std::optional<absl::Status> {
          if (refused.exchange(true)) return std::nullopt;
          return protocol::WithReason(absl::UnauthenticatedError("the token is not valid"),
                                      protocol::kReasonPeerToken);
        });
  }
  StartGateway();
  WaitForWorkers(2);
  const v1::GenerateRequest request = Request();
  ExpectUndisturbed(Generate(request), request);
  EXPECT_EQ(NumCalls(), 2u);
}

TEST_F(GatewayTrustTest, WhereAllRefuseTheClientIsToldOfLostWorkers) {
  AddWorkers(1);
  workers_[0]->SetScript([](const FakeWorker::Call&, int) -> std::optional<absl::Status> {
    return protocol::WithReason(absl::PermissionDeniedError("another name"),
                                protocol::kReasonPeerName);
  });
  GatewayConfig config;
  config.relay.retry.no_worker_wait = absl::Milliseconds(200);
  StartGateway(config);
  WaitForWorkers(1);
  const absl::Status status = Generate(Request()).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonWorkerLost);
}

TEST_F(GatewayTrustTest, FlagsThatCannotWorkAreRefused) {
  GatewayConfig config;
  config.token_file = temp_.path().string() + "/none";
  EXPECT_THAT(Refusal(config), HasSubstr("--token_file"));
  config.token_file = Write("short");
  EXPECT_THAT(Refusal(config), HasSubstr("line 1"));
  config = {};
  config.worker_tls_names = {"worker.test"};
  EXPECT_THAT(Refusal(config), HasSubstr("--worker_tls_names is of no use without"));
  config.worker_tls_names = {"*"};
  EXPECT_THAT(Refusal(config), HasSubstr("--worker_tls_names: \"*\""));
}

}  // namespace
}  // namespace continuo::gateway
