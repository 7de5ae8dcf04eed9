// SPDX-License-Identifier: Apache-2.0
// Tests GET /v1/steps with a whole gateway and fake workers over gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"

namespace continuo::gateway {
namespace {

using openai::HttpClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class GatewayStepsTest : public GatewayTest {
 protected:
  void Start(int num_workers) {
    AddWorkers(num_workers);
    StartGateway();
    WaitForWorkers(num_workers);
  }
  // A client that has asked for steps.
  struct Watch : HttpClient {
    explicit Watch(const Gateway& gateway, const std::string& query = "")
        : HttpClient(gateway.http_port()) {
      Get("/v1/steps" + query);
    }
  };
  static v1::WatchStepsResponse OneStep(uint64_t number) {
    v1::WatchStepsResponse response;
    v1::Step& step = *response.add_steps();
    step.set_number(number);
    step.add_sequences()->set_request_id("a secret of somebody");
    return response;
  }
};

TEST_F(GatewayStepsTest, StepsOfTheWorkerThatIsNamedArrive) {
  Start(2);
  Watch client(*gateway_, "?worker=worker-1");
  EXPECT_THAT(client.ReadUntil("event: worker\n"), StartsWith("HTTP/1.1 200"));
  ASSERT_TRUE(workers_[1]->WaitForStepWatches(1));
  EXPECT_TRUE(workers_[0]->WaitForStepWatches(0));
  workers_[1]->SendSteps(OneStep(77));
  const std::string text = client.ReadUntil("\"dropped\":0}");
  EXPECT_THAT(text, HasSubstr("{\"steps\":[{\"number\":77,"));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

TEST_F(GatewayStepsTest, AClientThatLeavesFreesTheWatchOfTheWorker) {
  Start(1);
  {
    Watch client(*gateway_);
    client.ReadUntil("event: worker\n");
    ASSERT_TRUE(workers_[0]->WaitForStepWatches(1));
  }
  EXPECT_TRUE(workers_[0]->WaitForStepWatches(0));
}

TEST_F(GatewayStepsTest, AWorkerThatDiesEndsTheWatchWithoutItsAddress) {
  Start(1);
  Watch client(*gateway_);
  client.ReadUntil("event: worker\n");
  ASSERT_TRUE(workers_[0]->WaitForStepWatches(1));
  workers_[0]->Kill();
  const std::string text = client.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(text, HasSubstr("event: error\n"));
  EXPECT_THAT(text, HasSubstr("\"code\":\"worker_lost\""));
  EXPECT_THAT(text, Not(HasSubstr("127.0.0.1")));
}

TEST_F(GatewayStepsTest, AWorkerThatTellsNoStepsIsAnErrorOfHttp) {
  Start(1);
  workers_[0]->RefuseStepWatches({grpc::StatusCode::UNAVAILABLE, "the model is being loaded"});
  EXPECT_EQ(Watch(*gateway_).Read().result_int(), 503);
  workers_[0]->RefuseStepWatches({grpc::StatusCode::UNIMPLEMENTED, ""});
  EXPECT_EQ(Watch(*gateway_).Read().result_int(), 501);
}

TEST_F(GatewayStepsTest, ADrainEndsTheWatch) {
  Start(1);
  Watch client(*gateway_);
  client.ReadUntil("event: worker\n");
  gateway_->BeginDrain();
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), HasSubstr("\"code\":\"continue\""));
  EXPECT_TRUE(workers_[0]->WaitForStepWatches(0));
}

}  // namespace
}  // namespace continuo::gateway
