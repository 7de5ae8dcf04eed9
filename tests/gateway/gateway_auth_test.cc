// SPDX-License-Identifier: Apache-2.0
// Tests which clients may call a gateway, and as which tenant, with a whole gateway and a fake
// worker.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_status.h"
#include "services/gateway/gateway.h"
#include "tests/testing/fake_worker.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Headers = std::multimap<std::string, std::string>;

class GatewayAuthTest : public ::testing::Test {
 protected:
  GatewayAuthTest() : worker_(FakeGeneration::Worker{.name = "worker"}) {
    std::ofstream(folder_ + "/keys") << "alice key-of-alice-0123\nbob key-of-bob-456789\n";
    GatewayConfig config;
    config.listen = config.http_listen = config.metrics_listen = "127.0.0.1:0";
    config.workers = worker_.address();
    config.auth.keys_file = folder_ + "/keys";
    auto gateway = Gateway::Start(config);
    EXPECT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
  }

  absl::StatusCode Generate(const Headers& headers) {
    grpc::ClientContext context;
    for (const auto& [key, value] : headers) context.AddMetadata(key, value);
    v1::GenerateRequest request;
    request.set_text("once");
    request.mutable_stopping()->set_max_tokens(3);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return common::FromGrpcStatus(reader->Finish()).code();
  }

  FakeWorker worker_;
  const testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(GatewayAuthTest, TheTenantIsTheKeysAndWhatTheClientClaimsIsStripped) {
  ASSERT_EQ(Generate({{"authorization", "Bearer key-of-alice-0123"},
                      {"x-tenant-id", "bob"},
                      {"x-continuo-move", "1"}}),
            absl::StatusCode::kOk);
  const auto calls = worker_.calls();
  ASSERT_THAT(calls, SizeIs(1));
  const Headers& seen = calls[0].metadata;
  EXPECT_EQ(seen.count("authorization"), 0u);
  EXPECT_EQ(seen.count("x-continuo-move"), 0u);
  ASSERT_EQ(seen.count("x-tenant-id"), 1u);
  EXPECT_EQ(seen.find("x-tenant-id")->second, "alice");
}

TEST_F(GatewayAuthTest, WithoutAKeyNothingReachesAWorker) {
  EXPECT_EQ(Generate({}), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Generate({{"authorization", "Bearer key-of-mallory-00"}, {"x-tenant-id", "alice"}}),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Generate({{"authorization", "key-of-alice-0123"}}), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(worker_.calls(), IsEmpty());
}

TEST_F(GatewayAuthTest, EveryMethodNeedsAKey) {
  const auto code = [this](auto method, const auto& request, auto response) {
    grpc::ClientContext stranger, alice;
    EXPECT_EQ(((*stub_).*method)(&stranger, request, &response).error_code(),
              grpc::StatusCode::UNAUTHENTICATED)
        << request.GetTypeName();
    alice.AddMetadata("authorization", "Bearer key-of-alice-0123");
    return ((*stub_).*method)(&alice, request, &response).error_code();
  };
  using Stub = v1::InferenceService::Stub;
  EXPECT_NE(code(&Stub::Tokenize, v1::TokenizeRequest(), v1::TokenizeResponse()),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_NE(code(&Stub::Detokenize, v1::DetokenizeRequest(), v1::DetokenizeResponse()),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_NE(code(&Stub::Embed, v1::EmbedRequest(), v1::EmbedResponse()),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code(&Stub::ListModels, v1::ListModelsRequest(), v1::ListModelsResponse()),
            grpc::StatusCode::OK);
  EXPECT_NE(code(&Stub::GetModel, v1::GetModelRequest(), v1::GetModelResponse()),
            grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace continuo::gateway
