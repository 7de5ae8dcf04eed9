// SPDX-License-Identifier: Apache-2.0
// Tests how long gateways and their connections accept calls.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "services/protocol/error.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"
#include "tests/testing/fake_worker.h"

namespace continuo::gateway {
namespace {

TEST_F(GatewayTest, ClientsOfAnOldConnectionConnectAnewAndItsStreamsGoOn) {
  const v1::GenerateRequest request = LongRequest("old");
  AddWorkers(1);
  GatewayConfig config;
  config.max_connection_age = absl::Milliseconds(300);
  StartGateway(config);
  WaitForWorkers(1);
  workers_[0]->SetScript(
      [&](const FakeWorker::Call& call, int response) -> std::optional<absl::Status> {
        if (response == 4 && call.request.text() == request.text()) release_.WaitForNotification();
        return std::nullopt;
      });
  // The channel shares no connection with others.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel =
      grpc::CreateCustomChannel(gateway_->address(), grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::InferenceService::NewStub(channel);
  absl::Notification begun;
  Answer answer;
  std::thread stream([&] {
    answer = Generate(request, nullptr, [&](int responses) {
      if (responses == 4) begun.Notify();
    });
  });
  begun.WaitForNotification();
  // The client drops the connection, and the next call uses another one.
  EXPECT_TRUE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + std::chrono::seconds(20)));
  EXPECT_NE(channel->GetState(/*try_to_connect=*/false), GRPC_CHANNEL_READY);
  ExpectUndisturbed(Generate(Request()), Request());
  release_.Notify();
  stream.join();
  ExpectUndisturbed(answer, request);
}

TEST_F(GatewayTest, AGatewayThatIsAboutToDrainServesAndSaysSo) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  const auto health = [&] {
    std::string response;
    EXPECT_TRUE(CallRaw("/grpc.health.v1.Health/Check", "", &response).ok());
    return response == "\x08\x01" ? "SERVING" : "NOT_SERVING";
  };
  const auto page = [&] {
    openai::HttpClient client(gateway_->metrics_port());
    client.Get("/healthz");
    return client.Read().result_int();
  };
  const auto connection_ends = [&] {
    openai::HttpClient client(gateway_->http_port());
    client.Get("/healthz");
    return client.Read()[boost::beast::http::field::connection] == "close";
  };
  EXPECT_STREQ(health(), "SERVING");
  EXPECT_EQ(page(), 200);
  EXPECT_FALSE(connection_ends());
  gateway_->AnnounceDrain();
  EXPECT_STREQ(health(), "NOT_SERVING");
  EXPECT_EQ(page(), 503);
  EXPECT_TRUE(connection_ends());
  ExpectUndisturbed(Generate(Request()), Request());
  gateway_->BeginDrain();
  EXPECT_EQ(protocol::ReasonOf(Generate(Request()).status), protocol::kReasonContinue);
}

}  // namespace
}  // namespace continuo::gateway
