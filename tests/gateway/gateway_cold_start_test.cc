// SPDX-License-Identifier: Apache-2.0
// Tests of models that are declared to a gateway and have no worker yet.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"

namespace continuo::gateway {
namespace {

class GatewayColdStartTest : public GatewayTest {
 protected:
  // A fleet that serves "warm", and a pool of "cold" whose worker is stopped.
  void StartColdAndWarm(GatewayConfig config = {}) {
    workers_.push_back(std::make_unique<FakeWorker>(
        FakeGeneration::Worker{.name = "warm-worker", .model = "warm"}));
    workers_.push_back(std::make_unique<FakeWorker>(
        FakeGeneration::Worker{.name = "cold-worker", .model = "cold"}));
    workers_[1]->Kill();
    config.models = {"cold", "warm", "poet=cold"};
    config.relay.retry.no_worker_wait = absl::Milliseconds(50);
    StartGateway(config);
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (absl::Now() < end && NumWorkersOf("warm") == 0) std::this_thread::yield();
  }
  uint32_t NumWorkersOf(const std::string& model) {
    const v1::ListModelsResponse list = ListModels();
    for (const v1::Model& listed : list.models()) {
      if (listed.name() == model) return listed.num_workers();
    }
    return 0;
  }
  static v1::GenerateRequest RequestOf(const std::string& model) {
    v1::GenerateRequest request = Request();
    request.set_model(model);
    return request;
  }
};

TEST_F(GatewayColdStartTest, ADeclaredModelIsListedWithoutAWorkerBesideOneThatServes) {
  StartColdAndWarm();
  const v1::ListModelsResponse list = ListModels();
  ASSERT_EQ(list.models_size(), 3);
  EXPECT_EQ(list.models(0).name(), "cold");
  EXPECT_EQ(list.models(0).num_workers(), 0);
  EXPECT_TRUE(list.models(0).undescribed());
  EXPECT_EQ(list.models(1).name(), "poet");
  EXPECT_EQ(list.models(1).parent(), "cold");
  EXPECT_EQ(list.models(2).name(), "warm");
  EXPECT_EQ(list.models(2).num_workers(), 1);

  grpc::ClientContext context;
  v1::GetModelRequest asked;
  asked.set_name("cold");
  v1::GetModelResponse found;
  EXPECT_TRUE(stub_->GetModel(&context, asked, &found).ok());
  EXPECT_TRUE(found.model().undescribed());

  openai::HttpClient http(gateway_->http_port());
  http.Get("/v1/models/cold");
  const openai::HttpClient::Response answer = http.Read();
  EXPECT_EQ(answer.result_int(), 200);
  EXPECT_NE(answer.body().find(R"("undescribed":true)"), std::string::npos) << answer.body();
}

TEST_F(GatewayColdStartTest, ARequestForADeclaredModelWaitsForItsWorker) {
  StartColdAndWarm();
  Answer answer;
  std::thread client([&] { answer = Generate(RequestOf("cold")); });
  // Requests for another model pass it, and it outlives --no_worker_wait.
  ExpectUndisturbed(Generate(RequestOf("warm")), RequestOf("warm"));
  while (gateway_->num_streams() == 0) std::this_thread::yield();
  workers_[1]->Restart();
  client.join();
  ExpectUndisturbed(answer, RequestOf("cold"));
}

TEST_F(GatewayColdStartTest, AStreamOverHttpIsToldThatItWaits) {
  GatewayConfig config;
  config.http.keepalive_interval = absl::Milliseconds(5);
  StartColdAndWarm(config);
  openai::HttpClient client(gateway_->http_port());
  client.Post("/v1/completions",
              R"({"model":"cold","prompt":"once","max_tokens":5,"stream":true})");
  for (int i = 0; i < 2; ++i) client.ReadUntil(": waiting for a worker\n\n");
  workers_[1]->Restart();
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("[DONE]"), std::string::npos);
}

TEST_F(GatewayColdStartTest, ATenantsWaitingRequestsHaveALimit) {
  GatewayConfig config;
  config.admission.tenant.max_cold_requests = 1;
  StartColdAndWarm(config);
  Answer answer;
  std::thread client([&] { answer = Generate(RequestOf("cold")); });
  while (gateway_->num_streams() == 0) std::this_thread::yield();
  const absl::Status rejected = Generate(RequestOf("cold")).status;
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonRateLimited) << rejected;
  ExpectUndisturbed(Generate(RequestOf("warm")), RequestOf("warm"));
  workers_[1]->Restart();
  client.join();
  ExpectUndisturbed(answer, RequestOf("cold"));
}

// A request for an adapter waits for the pool of its model, and counts among those that do.
TEST_F(GatewayColdStartTest, AnAdapterOfAPoolAtZeroIsAsColdAsItsModel) {
  GatewayConfig config;
  config.admission.tenant.max_cold_requests = 1;
  StartColdAndWarm(config);
  grpc::ClientContext context;  // outlives the thread, as it is cancelled from another one
  grpc::Status status;
  std::thread client([&] {
    const auto reader = stub_->Generate(&context, RequestOf("poet"));
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    status = reader->Finish();
  });
  while (gateway_->num_streams() == 0) std::this_thread::yield();
  const absl::Status rejected = Generate(RequestOf("cold")).status;
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonRateLimited) << rejected;
  context.TryCancel();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
}

TEST_F(GatewayColdStartTest, TheWaitEndsWithTheRequestsDeadline) {
  StartColdAndWarm();
  const Answer answer = Generate(RequestOf("cold"), [](grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200)));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status)) << answer.status;
}

TEST_F(GatewayColdStartTest, TheWaitEndsWithColdStartWait) {
  GatewayConfig config;
  config.relay.retry.cold_start_wait = absl::Milliseconds(300);
  StartColdAndWarm(config);
  const absl::Status status = Generate(RequestOf("cold")).status;
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonNoWorker) << status;
}

TEST_F(GatewayColdStartTest, AModelThatNobodyDeclaredIsNotFound) {
  StartColdAndWarm();
  // While the stopped worker's address may still be the only one of a model, nobody knows.
  absl::Status status;
  const absl::Time end = absl::Now() + absl::Minutes(1);
  do {
    status = Generate(RequestOf("other")).status;
  } while (absl::IsUnavailable(status) && absl::Now() < end);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

TEST_F(GatewayColdStartTest, BadNamesOfModelsEndTheStart) {
  GatewayConfig config;
  config.workers = "127.0.0.1:1";
  config.models = {std::string(257, 'm')};
  EXPECT_EQ(Gateway::Start(config).status(),
            absl::InvalidArgumentError("--models: a name has 257 bytes, the limit is 256"));
  config.models = std::vector<std::string>(65, "m");
  EXPECT_EQ(Gateway::Start(config).status(),
            absl::InvalidArgumentError("--models has 65 names, the limit is 64"));
}

}  // namespace
}  // namespace continuo::gateway
