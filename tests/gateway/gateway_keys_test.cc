// SPDX-License-Identifier: Apache-2.0
// Tests what keys allow, over gRPC and HTTP, with a whole gateway and a fake worker.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_status.h"
#include "services/gateway/gateway.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/http_client.h"
#include "tests/testing/fake_worker.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kKeys[] = R"(
alice      key-of-alice-0123
two-a-min  key-of-two-a-min-1   requests_per_minute=2
tokens     key-of-tokens-0123   tokens_per_minute=5
one        key-of-one-01234567  concurrent_requests=1
this-model key-of-this-model-1  models=fake
others     key-of-others-01234  models=x,y
old        key-of-old-01234567  expires=2001-02-03
)";

class GatewayKeysTest : public ::testing::Test {
 protected:
  GatewayKeysTest() : worker_(FakeGeneration::Worker{.name = "worker"}) {
    GatewayConfig config;
    config.listen = config.http_listen = config.metrics_listen = "127.0.0.1:0";
    config.workers = worker_.address();
    config.auth.keys_file = temp_.path().string() + "/keys";
    std::ofstream(config.auth.keys_file) << kKeys;
    auto gateway = Gateway::Start(config);
    EXPECT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
    while (NumModels("key-of-alice-0123") == 0) std::this_thread::yield();
  }

  static void SetKey(const std::string& key, grpc::ClientContext* context) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", key));
  }
  int NumModels(const std::string& key) {
    grpc::ClientContext context;
    SetKey(key, &context);
    v1::ListModelsResponse response;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &response).ok());
    return response.models_size();
  }
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
    absl::Status Finish() {
      v1::GenerateResponse response;
      while (reader->Read(&response)) {
      }
      return common::FromGrpcStatus(reader->Finish());
    }
  };
  std::unique_ptr<Call> Start(const std::string& key, const std::string& model = "") {
    auto call = std::make_unique<Call>();
    SetKey(key, &call->context);
    v1::GenerateRequest request;
    request.set_model(model);
    request.set_text("once");
    request.mutable_stopping()->set_max_tokens(3);
    call->reader = stub_->Generate(&call->context, request);
    return call;
  }
  absl::Status Generate(const std::string& key, const std::string& model = "") {
    return Start(key, model)->Finish();
  }
  absl::Status Tokenize(const std::string& key, const std::string& model) {
    grpc::ClientContext context;
    SetKey(key, &context);
    v1::TokenizeRequest request;
    request.set_model(model);
    request.set_text("once");
    v1::TokenizeResponse response;
    return common::FromGrpcStatus(stub_->Tokenize(&context, request, &response));
  }
  openai::HttpClient::Response Post(const std::string& key, const std::string& model) {
    openai::HttpClient client(gateway_->http_port());
    const Json body = {{"model", model}, {"prompt", "once"}, {"max_tokens", 3}};
    client.Post("/v1/completions", body.dump(),
                absl::StrCat("Authorization: Bearer ", key, "\r\n"));
    return client.Read();
  }
  Json GetJson(const std::string& key, const std::string& path) {
    openai::HttpClient client(gateway_->http_port());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ", key,
                             "\r\n\r\n"));
    return Json::parse(client.Read().body());
  }
  std::string Metrics() {
    openai::HttpClient client(gateway_->metrics_port());
    client.Send("GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    return std::string(client.Read().body());
  }

  const testing::TempFolder temp_;
  FakeWorker worker_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(GatewayKeysTest, RequestsBeyondAKeysRateAreToldWhenToTryAgain) {
  EXPECT_TRUE(Generate("key-of-two-a-min-1").ok());
  EXPECT_EQ(Post("key-of-two-a-min-1", "fake").result_int(), 200);
  const absl::Status grpc = Generate("key-of-two-a-min-1");
  EXPECT_EQ(grpc.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(protocol::ReasonOf(grpc), protocol::kReasonRateLimited);
  ASSERT_TRUE(protocol::RetryDelayOf(grpc).has_value());
  EXPECT_LE(*protocol::RetryDelayOf(grpc), absl::Seconds(30));
  const auto http = Post("key-of-two-a-min-1", "fake");
  EXPECT_EQ(http.result_int(), 429);
  int seconds = 0;
  ASSERT_TRUE(absl::SimpleAtoi(std::string(http["Retry-After"]), &seconds));
  EXPECT_THAT(seconds, ::testing::AllOf(::testing::Ge(1), ::testing::Le(30)));
  const Json error = Json::parse(http.body())["error"];
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(error["code"], "rate_limit_exceeded");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("limit of 2 requests a minute"));
  EXPECT_TRUE(Generate("key-of-alice-0123").ok());
  EXPECT_THAT(Metrics(),
              HasSubstr("continuo_gateway_key_rejections_total{limit=\"requests_per_minute\"} 2"));
}

TEST_F(GatewayKeysTest, AnswersCountAsTokens) {
  // The estimate of the prompt is less than what is left; prompt and answer are more.
  EXPECT_TRUE(Generate("key-of-tokens-0123").ok());
  absl::Status status = Generate("key-of-tokens-0123");
  // The first call's tokens are counted after its client has read its end.
  while (status.ok()) status = Generate("key-of-tokens-0123");
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonRateLimited);
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit of 5 tokens a minute"));
}

TEST_F(GatewayKeysTest, APlaceIsFreeWhenARequestEnds) {
  absl::Mutex mutex;
  bool open = false;
  worker_.SetScript([&](const FakeWorker::Call&, int) -> std::optional<absl::Status> {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&open));
    return std::nullopt;
  });
  const auto first = Start("key-of-one-01234567");
  ASSERT_TRUE(worker_.WaitForCalls([](const auto& calls) { return calls.size() == 1; }));
  const absl::Status second = Generate("key-of-one-01234567");
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.message()), HasSubstr("limit of 1 concurrent requests"));
  EXPECT_EQ(worker_.num_calls(), 1u);
  {
    absl::MutexLock lock(&mutex);
    open = true;
  }
  EXPECT_TRUE(first->Finish().ok());
  absl::Status third = Generate("key-of-one-01234567");
  while (absl::IsResourceExhausted(third)) third = Generate("key-of-one-01234567");
  EXPECT_TRUE(third.ok()) << third;
}

TEST_F(GatewayKeysTest, AKeySeesAndUsesItsModelsAlone) {
  EXPECT_TRUE(Generate("key-of-this-model-1", "fake").ok());
  EXPECT_TRUE(Generate("key-of-this-model-1").ok());  // It is for one model.
  EXPECT_EQ(NumModels("key-of-this-model-1"), 1);
  EXPECT_EQ(NumModels("key-of-others-01234"), 0);
  EXPECT_EQ(GetJson("key-of-this-model-1", "/v1/models")["data"].size(), 1u);
  EXPECT_EQ(GetJson("key-of-others-01234", "/v1/models")["data"].size(), 0u);
  EXPECT_EQ(GetJson("key-of-others-01234", "/v1/models/fake")["error"]["code"], "model_not_found");
  const size_t before = worker_.num_calls();
  for (const absl::Status& status :
       {Generate("key-of-others-01234", "fake"), Tokenize("key-of-others-01234", "fake")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonModelNotAllowed);
  }
  EXPECT_EQ(Generate("key-of-others-01234").code(), absl::StatusCode::kInvalidArgument);
  const auto http = Post("key-of-others-01234", "fake");
  EXPECT_EQ(http.result_int(), 403);
  EXPECT_EQ(Json::parse(http.body())["error"]["code"], "model_not_allowed");
  EXPECT_EQ(http.count("Retry-After"), 0u);
  EXPECT_EQ(worker_.num_calls(), before);
  EXPECT_TRUE(Tokenize("key-of-this-model-1", "fake").ok());
}

TEST_F(GatewayKeysTest, AnExpiredKeyIsNone) {
  const absl::Status status = Generate("key-of-old-01234567");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the key has expired: 2001-02-03"));
  const auto http = Post("key-of-old-01234567", "fake");
  EXPECT_EQ(http.result_int(), 401);
  EXPECT_EQ(Json::parse(http.body())["error"]["code"], "invalid_api_key");
  EXPECT_EQ(worker_.num_calls(), 0u);
}

}  // namespace
}  // namespace continuo::gateway
