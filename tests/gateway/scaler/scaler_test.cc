// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/scaler.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "continuo/v1/gateway.grpc.pb.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using externalscaler::ScaledObjectRef;

// One gateway's part that its scaler sees.
struct Node {
  explicit Node(const std::string& listen = "127.0.0.1:0", const std::string& peers = "",
                const std::string& token_file = "") {
    LoadSnapshot snapshot;
    snapshot.known_models = {"cold", "warm"};
    view.Set(std::move(snapshot));
    absl::StatusOr<std::unique_ptr<Scaler>> started =
        Scaler::Start({.listen = listen, .peers = peers, .token_file = token_file}, &admission,
                      &view, &timer, &clock);
    EXPECT_TRUE(started.ok()) << started.status();
    scaler = *std::move(started);
    stub = externalscaler::ExternalScaler::NewStub(
        grpc::CreateChannel(scaler->address(), grpc::InsecureChannelCredentials()));
  }
  Admission::Ticket Ask(const std::string& model, int64_t tokens) {
    absl::StatusOr<Admission::Ticket> ticket =
        admission.Admit({.tokens = tokens, .tenant = "t", .model = model});
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return *std::move(ticket);
  }
  bool IsActive(const ScaledObjectRef& reference) {
    grpc::ClientContext context;
    externalscaler::IsActiveResponse response;
    EXPECT_TRUE(stub->IsActive(&context, reference, &response).ok());
    return response.result();
  }
  int64_t Tokens(const ScaledObjectRef& reference) {
    grpc::ClientContext context;
    externalscaler::GetMetricsRequest request;
    *request.mutable_scaledobjectref() = reference;
    request.set_metricname(ExternalScaler::kMetric);
    externalscaler::GetMetricsResponse response;
    EXPECT_TRUE(stub->GetMetrics(&context, request, &response).ok());
    EXPECT_EQ(response.metricvalues_size(), 1);
    EXPECT_EQ(response.metricvalues(0).metricvaluefloat(), response.metricvalues(0).metricvalue());
    return response.metricvalues(0).metricvalue();
  }

  const SystemClock clock;
  LoadView view;
  Admission admission{{}, &clock};
  TimerThread timer;
  std::unique_ptr<Scaler> scaler;
  std::unique_ptr<externalscaler::ExternalScaler::Stub> stub;
};

ScaledObjectRef Of(const std::string& model, const std::string& tokens = "") {
  ScaledObjectRef reference;
  reference.set_name("pool");
  (*reference.mutable_scalermetadata())["model"] = model;
  if (!tokens.empty()) (*reference.mutable_scalermetadata())["queuedTokens"] = tokens;
  return reference;
}

TEST(ScalerTest, AModelIsActiveWhileAnybodyAsksForIt) {
  Node node;
  EXPECT_FALSE(node.IsActive(Of("cold")));
  {
    Admission::Ticket waiting = node.Ask("cold", 70);
    const Admission::Ticket answered = node.Ask("cold", 30);
    EXPECT_TRUE(node.IsActive(Of("cold")));
    EXPECT_FALSE(node.IsActive(Of("warm")));
    EXPECT_EQ(node.Tokens(Of("cold")), 100);
    waiting.MarkStarted();
    EXPECT_EQ(node.Tokens(Of("cold")), 30);
    EXPECT_TRUE(node.IsActive(Of("cold")));
  }
  EXPECT_FALSE(node.IsActive(Of("cold")));
  EXPECT_EQ(node.Tokens(Of("cold")), 0);
}

TEST(ScalerTest, APromptWithoutTokensIsADemand) {
  Node node;
  const Admission::Ticket ticket = node.Ask("cold", 0);
  EXPECT_TRUE(node.IsActive(Of("cold")));
}

TEST(ScalerTest, TheStreamTellsOfTheFirstRequestAndRepeatsItUntilThereIsAWorker) {
  Node node;
  grpc::ClientContext context;
  const auto reader = node.stub->StreamIsActive(&context, Of("cold"));
  externalscaler::IsActiveResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_FALSE(response.result());
  const Admission::Ticket ticket = node.Ask("cold", 10);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_TRUE(response.result());
  }
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// KEDA's client takes OK, io.EOF in Go, for an end after which it calls again soon.
TEST(ScalerTest, StreamsEndWithOkWhenTheGatewayEnds) {
  Node node;
  grpc::ClientContext context, peers_context;
  const auto reader = node.stub->StreamIsActive(&context, Of("cold"));
  externalscaler::IsActiveResponse response;
  ASSERT_TRUE(reader->Read(&response));
  const auto peer = v1::GatewayService::NewStub(
      grpc::CreateChannel(node.scaler->address(), grpc::InsecureChannelCredentials()));
  const auto peers_reader = peer->WatchDemand(&peers_context, v1::WatchDemandRequest());
  v1::WatchDemandResponse demand;
  ASSERT_TRUE(peers_reader->Read(&demand));
  node.scaler->Shutdown(absl::Now() + absl::Minutes(1));
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  while (peers_reader->Read(&demand)) {
  }
  EXPECT_TRUE(peers_reader->Finish().ok());
  // The next call is for another gateway.
  grpc::ClientContext next;
  EXPECT_EQ(node.stub->IsActive(&next, Of("cold"), &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST(ScalerTest, WatchersHaveALimit) {
  OpenStreams open;
  for (int i = 0; i < OpenStreams::kMax; ++i) ASSERT_TRUE(open.Add());
  EXPECT_FALSE(open.Add());
  open.Remove();
  EXPECT_TRUE(open.Add());
}

TEST(ScalerTest, TheMetricHasTheTargetOfTheTrigger) {
  Node node;
  for (const auto& [given, expected] :
       std::vector<std::pair<std::string, int64_t>>{{"", 8192}, {"500", 500}}) {
    grpc::ClientContext context;
    externalscaler::GetMetricSpecResponse response;
    ASSERT_TRUE(node.stub->GetMetricSpec(&context, Of("cold", given), &response).ok());
    ASSERT_EQ(response.metricspecs_size(), 1);
    EXPECT_EQ(response.metricspecs(0).metricname(), "queued_prompt_tokens");
    EXPECT_EQ(response.metricspecs(0).targetsize(), expected);
    EXPECT_EQ(response.metricspecs(0).targetsizefloat(), expected);
  }
}

TEST(ScalerTest, ABadTriggerIsToldByItsKey) {
  Node node;
  struct Row {
    ScaledObjectRef reference;
    grpc::StatusCode code;
    std::string words;
  };
  const Row rows[] = {
      {{}, grpc::StatusCode::INVALID_ARGUMENT, "scalerMetadata.model"},
      {Of("cold", "many"), grpc::StatusCode::INVALID_ARGUMENT, "scalerMetadata.queuedTokens"},
      {Of("cold", "0"), grpc::StatusCode::INVALID_ARGUMENT, "scalerMetadata.queuedTokens"},
      {Of("other"), grpc::StatusCode::NOT_FOUND, "scalerMetadata.model"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.words);
    externalscaler::IsActiveResponse active;
    grpc::ClientContext unary, streaming;
    const grpc::Status status = node.stub->IsActive(&unary, row.reference, &active);
    EXPECT_EQ(status.error_code(), row.code);
    EXPECT_NE(status.error_message().find(row.words), std::string::npos) << status.error_message();
    const auto reader = node.stub->StreamIsActive(&streaming, row.reference);
    EXPECT_FALSE(reader->Read(&active));
    EXPECT_EQ(reader->Finish().error_code(), row.code);
  }
  grpc::ClientContext context;
  externalscaler::GetMetricsRequest request;
  *request.mutable_scaledobjectref() = Of("cold");
  request.set_metricname("other");
  externalscaler::GetMetricsResponse response;
  EXPECT_EQ(node.stub->GetMetrics(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(ScalerTest, WhatWaitsAtOneGatewayIsKnownAtAnother) {
  auto first = std::make_unique<Node>();
  Node second("127.0.0.1:0", first->scaler->address());
  Node third("127.0.0.1:0", absl::StrCat(first->scaler->address(), ",", second.scaler->address()));
  const auto wait_for = [&](Node& node, int64_t tokens) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (absl::Now() < end && node.Tokens(Of("cold")) != tokens) std::this_thread::yield();
    EXPECT_EQ(node.Tokens(Of("cold")), tokens);
  };
  const Admission::Ticket own = second.Ask("cold", 1);
  std::optional<Admission::Ticket> others = first->Ask("cold", 10);
  wait_for(second, 11);
  wait_for(third, 11);
  EXPECT_TRUE(third.IsActive(Of("cold")));
  EXPECT_FALSE(third.IsActive(Of("warm")));
  others.reset();
  wait_for(third, 1);
  EXPECT_EQ(first->Tokens(Of("cold")), 0);  // It has no peers.
  others = first->Ask("cold", 10);
  wait_for(third, 11);
  others.reset();
  first.reset();
  wait_for(third, 1);
}

TEST(ScalerTest, WithATokenGatewaysAloneHearOfEachOthersDemand) {
  const testing::TempFolder temp;
  const std::string token = temp.path().string() + "/token",
                    wrong = temp.path().string() + "/wrong";
  std::ofstream(token) << "token-of-the-fleet-1";
  std::ofstream(wrong) << "token-of-the-fleet-2";
  Node first("127.0.0.1:0", "", token);
  Node peer("127.0.0.1:0", first.scaler->address(), token);
  Node stranger("127.0.0.1:0", first.scaler->address(), wrong);
  const Admission::Ticket ticket = first.Ask("cold", 10);
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (absl::Now() < end && peer.Tokens(Of("cold")) != 10) std::this_thread::yield();
  EXPECT_EQ(peer.Tokens(Of("cold")), 10);
  EXPECT_EQ(stranger.Tokens(Of("cold")), 0);

  const auto stub = v1::GatewayService::NewStub(
      grpc::CreateChannel(first.scaler->address(), grpc::InsecureChannelCredentials()));
  for (const char* shown : {"", "token-of-the-fleet-2"}) {
    grpc::ClientContext context;
    context.AddMetadata("x-continuo-token", shown);
    const auto reader = stub->WatchDemand(&context, v1::WatchDemandRequest());
    v1::WatchDemandResponse response;
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  // KEDA has none to show.
  EXPECT_TRUE(first.IsActive(Of("cold")));
}

TEST(ScalerTest, BadAddressesEndTheStart) {
  Node node;
  const auto start = [&](const ScalerOptions& options) {
    return Scaler::Start(options, &node.admission, &node.view, &node.timer, &node.clock).status();
  };
  EXPECT_TRUE(absl::IsUnavailable(start({.listen = node.scaler->address()})));
  const absl::Status status = start({.listen = "127.0.0.1:0", .peers = "nowhere"});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("--scaler_peers: "), std::string::npos) << status;
  EXPECT_TRUE(absl::IsInvalidArgument(start({.listen = "127.0.0.1:0", .token_file = "/nowhere"})));
}

}  // namespace
}  // namespace continuo::gateway
