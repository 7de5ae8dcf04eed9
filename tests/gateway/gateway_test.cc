// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/wire_check.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"
#include "tests/testing/fake_worker.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(GatewayTest, AStreamPassesThroughUnchanged) {
  AddWorkers(1);
  StartGateway();
  const Answer answer = Generate(Request());
  ExpectUndisturbed(answer, Request());
  EXPECT_THAT(answer.responses[0].accepted().worker(), "worker-0");
  EXPECT_THAT(answer.responses[0].accepted().request_id(), Not(IsEmpty()));
}

TEST_F(GatewayTest, AWorkerKilledMidStreamIsNotNoticed) {
  AddWorkers(3);
  StartGateway();
  WaitForWorkers(3);
  for (int cut = 0; cut < 8; ++cut) {
    const v1::GenerateRequest request = LongRequest(absl::StrCat("kill ", cut));
    // The worker that got the call blocks here until it has been killed.
    absl::Notification reached, killed;
    std::atomic<bool> armed = true;
    std::atomic<FakeWorker*> victim = nullptr;
    for (const auto& worker : workers_) {
      worker->SetScript([&, w = worker.get()](const FakeWorker::Call&,
                                              int response) -> std::optional<absl::Status> {
        if (response != cut || !armed.exchange(false)) return std::nullopt;
        victim = w;
        reached.Notify();
        killed.WaitForNotificationWithTimeout(absl::Seconds(10));
        return absl::UnavailableError("dead");
      });
    }
    std::thread killer([&] {
      reached.WaitForNotification();
      std::thread release([&] { killed.Notify(); });
      victim.load()->Kill();
      release.join();
    });
    ExpectUndisturbed(Generate(request), request);
    killer.join();
    for (const auto& worker : workers_) worker->SetScript(nullptr);
    victim.load()->Restart();
    WaitForWorkers(3);
  }
}

TEST_F(GatewayTest, AMigrationTellsTheNextWorkerAllItNeeds) {
  const v1::GenerateRequest request = LongRequest("drain");
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<bool> armed = true;
  for (const auto& worker : workers_) {
    worker->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
      if (response != 4 || !armed.exchange(false)) return std::nullopt;
      return protocol::WithReason(absl::UnavailableError("draining"), protocol::kReasonDraining);
    });
  }
  const Answer answer = Generate(request, [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", "my-id");
    context.AddMetadata("x-tenant-id", "somebody");
    context.AddMetadata("x-continuo-move", "1");
    context.AddMetadata("x-continuo-call", "mine");
    context.AddMetadata("traceparent", "00-1-2-01");
    context.AddMetadata("authorization", "Bearer secret");
  });
  ExpectUndisturbed(answer, request);
  EXPECT_EQ(answer.responses.back().summary().migrations(), 1);
  std::vector<FakeWorker::Call> calls = workers_[0]->calls();
  for (const auto& call : workers_[1]->calls()) calls.push_back(call);
  ASSERT_THAT(calls, SizeIs(2));
  for (const FakeWorker::Call& call : calls) {
    const bool is_migration = call.request.has_continuation();
    EXPECT_EQ(call.metadata.count("x-continuo-move"), is_migration ? 1 : 0);
    ASSERT_EQ(call.metadata.count("x-continuo-call"), 1);
    EXPECT_EQ(call.metadata.find("x-continuo-call")->second,
              calls[0].metadata.find("x-continuo-call")->second);
    ASSERT_EQ(call.metadata.count("x-request-id"), 1);
    EXPECT_EQ(call.metadata.find("x-request-id")->second, "my-id");
    ASSERT_EQ(call.metadata.count("x-tenant-id"), 1);
    EXPECT_EQ(call.metadata.find("x-tenant-id")->second, "default");
    EXPECT_EQ(call.metadata.count("traceparent"), 1);
    EXPECT_EQ(call.metadata.count("authorization"), 0);
  }
}

TEST_F(GatewayTest, ATrustedTenantHeaderIsPassedOn) {
  AddWorkers(1);
  GatewayConfig config;
  config.auth.trust_tenant_header = true;
  StartGateway(config);
  Generate(Request(), [](grpc::ClientContext& c) { c.AddMetadata("x-tenant-id", "somebody"); });
  ASSERT_EQ(workers_[0]->calls()[0].metadata.count("x-tenant-id"), 1);
  EXPECT_EQ(workers_[0]->calls()[0].metadata.find("x-tenant-id")->second, "somebody");
}

TEST_F(GatewayTest, AWorkerThatStartsLateRescuesTheStream) {
  const v1::GenerateRequest request = LongRequest("late");
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  workers_[0]->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 5) return absl::UnavailableError("gone");
    return std::nullopt;
  });
  // After its death no worker is left; the successor has the same port.
  std::thread killer([&] {
    workers_[0]->WaitForCalls([](const auto& calls) { return !calls.empty(); });
    workers_[0]->Kill();
    workers_[0]->SetScript(nullptr);
    workers_[0]->Restart();
  });
  const Answer answer = Generate(request);
  killer.join();
  ExpectUndisturbed(answer, request);
}

TEST_F(GatewayTest, WithoutAWorkerTheStreamEndsAfterTheWait) {
  AddWorkers(1);
  workers_[0]->Kill();  // Its port refuses connections from now on.
  GatewayConfig config;
  config.relay.retry.no_worker_wait = absl::Milliseconds(50);
  StartGateway(config);
  const Answer answer = Generate(Request());
  EXPECT_TRUE(absl::IsUnavailable(answer.status));
  EXPECT_EQ(protocol::ReasonOf(answer.status), protocol::kReasonNoWorker);
}

TEST_F(GatewayTest, AStreamThatNoWorkerTookIsCountedUnderItsModel) {
  AddWorkers(1);
  GatewayConfig config;
  config.relay.retry.no_worker_wait = absl::Milliseconds(50);
  StartGateway(config);
  WaitForWorkers(1);
  v1::GenerateRequest request = Request();
  request.set_model(ListModels().models(0).name());
  workers_[0]->SetState(v1::WORKER_STATE_DRAINING);
  WaitForWorkers(0);
  EXPECT_EQ(protocol::ReasonOf(Generate(request).status), protocol::kReasonNoWorker);
  openai::HttpClient http(gateway_->http_port());
  http.Get("/metrics");
  EXPECT_THAT(
      http.Read().body(),
      HasSubstr(absl::StrCat("continuo_gateway_requests_total{code=\"UNAVAILABLE\",model=\"",
                             request.model(), "\",pool=\"\",reason=\"NO_WORKER\"} 1\n")));
}

// The parameter: whether a worker that stops sending the stream goes on to report.
class GatewayLostWorkerTest : public GatewayTest, public ::testing::WithParamInterface<bool> {};

TEST_P(GatewayLostWorkerTest, ItIsLeft) {
  const v1::GenerateRequest request = LongRequest("hang");
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<bool> armed = true;
  for (const auto& worker : workers_) {
    worker->SetScript([&, w = worker.get()](const FakeWorker::Call&,
                                            int response) -> std::optional<absl::Status> {
      if (response != 3 || !armed.exchange(false)) return std::nullopt;
      if (GetParam()) {
        w->SetHealth(false);
      } else {
        w->SetSilent(true);
      }
      release_.WaitForNotification();
      return std::nullopt;
    });
  }
  ExpectUndisturbed(Generate(request), request);
  release_.Notify();
}

INSTANTIATE_TEST_SUITE_P(, GatewayLostWorkerTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "HungThoughItReports" : "Silent";
});

TEST_F(GatewayTest, AModelThatOneWorkerHasUnloadedIsAskedForElsewhere) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<int> unknown = 1;  // calls that find no model
  for (const auto& worker : workers_) {
    worker->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
      if (response > 0 || unknown-- <= 0) return std::nullopt;
      return absl::NotFoundError("model \"fake\" is not served here");
    });
  }
  ExpectUndisturbed(Generate(Request()), Request());
  EXPECT_EQ(NumCalls(), 2u);
  unknown = 2;
  EXPECT_EQ(Generate(Request()).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(NumCalls(), 4u) << "no worker is left that may know it";
}

TEST_F(GatewayTest, CancellingReachesTheWorker) {
  const v1::GenerateRequest request = LongRequest("cancel");
  AddWorkers(1);
  StartGateway();
  workers_[0]->SetScript([](const FakeWorker::Call& call, int response) {
    while (response == 3 && !call.is_cancelled()) std::this_thread::yield();
    return std::optional<absl::Status>();
  });
  grpc::ClientContext* call = nullptr;
  const Answer answer = Generate(
      request, [&](grpc::ClientContext& context) { call = &context; },
      [&](int responses) {
        if (responses == 2) call->TryCancel();
      });
  EXPECT_TRUE(absl::IsCancelled(answer.status));
  EXPECT_TRUE(workers_[0]->WaitForCalls([](const auto& calls) { return calls[0].cancelled; }));
  EXPECT_EQ(NumCalls(), 1);
}

TEST_F(GatewayTest, TheDeadlineReachesTheWorkerAndEndsTheCall) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  workers_[0]->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 2) release_.WaitForNotification();
    return std::nullopt;
  });
  const Answer answer = Generate(Request(), [](grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(300)));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status)) << answer.status;
  release_.Notify();
  ASSERT_EQ(NumCalls(), 1);
  EXPECT_GT(workers_[0]->calls()[0].time_left, absl::ZeroDuration());
  // gRPC rounds the timeout up when it sends it.
  EXPECT_LE(workers_[0]->calls()[0].time_left, absl::Milliseconds(310));
}

TEST_F(GatewayTest, ModelsAreMergedFromAllWorkers) {
  workers_.push_back(std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "a"}));
  workers_.push_back(
      std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "b", .fingerprint = "G"}));
  StartGateway();
  WaitForWorkers(2);
  const v1::Model model = ListModels().models(0);
  EXPECT_EQ(model.name(), "fake");
  EXPECT_EQ(model.max_context_tokens(), 1024);
  EXPECT_THAT(model.fingerprints(), ElementsAre("F", "G"));

  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name("nobody");
  v1::GetModelResponse response;
  EXPECT_EQ(stub_->GetModel(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(GatewayTest, TokenizeAndDetokenizeAreAnsweredByAWorker) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  grpc::ClientContext context, back_context, info_context;
  v1::TokenizeRequest request;
  request.set_text("ab");
  v1::TokenizeResponse response;
  ASSERT_TRUE(stub_->Tokenize(&context, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre('a', 'b'));
  v1::DetokenizeRequest back;
  back.add_token_ids('c');
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub_->Detokenize(&back_context, back, &text).ok());
  EXPECT_EQ(text.text(), "c");
  v1::GetTokenizerResponse info;
  ASSERT_TRUE(stub_->GetTokenizer(&info_context, {}, &info).ok());
  EXPECT_EQ(info.config(), R"({"eos_token":"</s>"})");
}

TEST_F(GatewayTest, TokenizeBeyondTheLimitIsRefusedAtOnce) {
  AddWorkers(1);
  GatewayConfig config;
  config.forwarded.max_open_bytes = 1000;
  StartGateway(config);
  WaitForWorkers(1);
  absl::Notification entered;
  workers_[0]->SetTokenizeScript([&] {
    entered.Notify();
    release_.WaitForNotification();
  });
  v1::TokenizeRequest request;
  request.set_text(std::string(600, 'x'));
  std::thread first([&] {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    EXPECT_TRUE(stub_->Tokenize(&context, request, &response).ok());
  });
  entered.WaitForNotification();
  v1::TokenizeRequest of_many_parts;
  for (int i = 0; i < 10; ++i) of_many_parts.mutable_conversation()->add_messages();
  for (const v1::TokenizeRequest& second : {request, of_many_parts}) {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    const absl::Status refused =
        common::FromGrpcStatus(stub_->Tokenize(&context, second, &response));
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
    EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  }
  release_.Notify();
  first.join();
  ExpectUndisturbed(Generate(Request()), Request());
}

TEST_F(GatewayTest, AGatewayThatDrainsTakesNoCallThatNeedsAWorker) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  gateway_->BeginDrain();
  EXPECT_EQ(protocol::ReasonOf(Generate(Request()).status), protocol::kReasonContinue);
  grpc::ClientContext tokenize, detokenize, embed;
  v1::TokenizeResponse ids;
  v1::DetokenizeResponse text;
  v1::EmbedResponse embeddings;
  for (const grpc::Status& status :
       {stub_->Tokenize(&tokenize, {}, &ids), stub_->Detokenize(&detokenize, {}, &text),
        stub_->Embed(&embed, {}, &embeddings)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(protocol::ReasonOf(common::FromGrpcStatus(status)), protocol::kReasonContinue);
  }
}

TEST_F(GatewayTest, BadRequestsAreRefusedByFieldBeforeAnyWorkerSeesThem) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  v1::GenerateRequest nan = Request();
  nan.mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
  v1::GenerateRequest empty = Request();
  empty.clear_prompt();
  v1::GenerateRequest id = Request();
  id.set_request_id("caf\xc3\xa9");
  v1::GenerateRequest many = Request();
  many.mutable_sampling()->set_num_sequences(129);
  for (const auto& [request, field] :
       std::vector<std::pair<v1::GenerateRequest, std::string>>{{nan, "sampling.temperature"},
                                                                {empty, "prompt"},
                                                                {id, "request_id"},
                                                                {many, "sampling.num_sequences"}}) {
    const Answer answer = Generate(request);
    EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
    EXPECT_EQ(protocol::FieldOf(answer.status), field);
  }
  const Answer metadata = Generate(Request(), [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", std::string(129, 'x'));
  });
  EXPECT_EQ(protocol::FieldOf(metadata.status), "x-request-id");
  v1::GenerateRequest unknown = Request();
  unknown.set_model("nobody");
  EXPECT_TRUE(absl::IsNotFound(Generate(unknown).status));
  EXPECT_EQ(NumCalls(), 0);
}

TEST_F(GatewayTest, BytesThatAreNoRequestGetAStatusAndHarmNobody) {
  AddWorkers(1);
  StartGateway();
  for (const std::string& bytes : {std::string("\x1a\x01\xff"), std::string("\xff\xff\xff\xff")}) {
    for (const char* method : {"Generate", "Tokenize"}) {
      std::string response;
      const grpc::Status status =
          CallRaw(absl::StrCat("/continuo.v1.InferenceService/", method), bytes, &response);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    }
  }
  ExpectUndisturbed(Generate(Request()), Request());
}

TEST_F(GatewayTest, ARequestOfCountlessPartsIsRefusedUnread) {
  AddWorkers(1);
  StartGateway();
  std::string parts;  // Empty messages of a conversation, two bytes each.
  for (int64_t i = 0; i < protocol::kMaxValues; ++i) parts.append("\x0a\x00", 2);
  std::string response;
  for (const auto& [method, tag] : {std::pair("Generate", '\x2a'), {"Tokenize", '\x1a'}}) {
    // The length, 2^21, as a varint.
    const std::string bytes = absl::StrCat(std::string(1, tag), "\x80\x80\x80\x01", parts);
    const grpc::Status status =
        CallRaw(absl::StrCat("/continuo.v1.InferenceService/", method), bytes, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(status.error_message(), "the request has more than 1048576 messages and texts");
  }
  EXPECT_TRUE(workers_[0]->calls().empty());
  ExpectUndisturbed(Generate(Request()), Request());
}

TEST_F(GatewayTest, HealthFollowsTheWorkersButTheGatewayItselfIsWell) {
  AddWorkers(1);
  workers_[0]->SetState(v1::WORKER_STATE_LOADING);
  StartGateway();
  const auto is_serving = [&](const std::string& service) {
    std::string response;
    const std::string request =
        absl::StrCat("\n", std::string(1, static_cast<char>(service.size())), service);
    return CallRaw("/grpc.health.v1.Health/Check", request, &response).ok() &&
           response == "\x08\x01";
  };
  const auto wait_until = [&](const std::string& service, bool serving) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (is_serving(service) != serving && absl::Now() < end) std::this_thread::yield();
    EXPECT_EQ(is_serving(service), serving) << service;
  };
  EXPECT_TRUE(is_serving(""));
  EXPECT_FALSE(is_serving("fake"));
  EXPECT_FALSE(is_serving("continuo.v1.InferenceService"));
  workers_[0]->SetState(v1::WORKER_STATE_SERVING);
  wait_until("fake", true);
  wait_until("continuo.v1.InferenceService", true);
  workers_[0]->Kill();
  wait_until("fake", false);
  EXPECT_TRUE(is_serving(""));
  gateway_->BeginDrain();
  EXPECT_FALSE(is_serving(""));
}

TEST_F(GatewayTest, OverloadIsRefusedAtOnce) {
  AddWorkers(1);
  GatewayConfig config;
  config.admission.max_open_requests = 2;
  config.admission.max_open_bytes = 5000;
  StartGateway(config);
  WaitForWorkers(1);
  workers_[0]->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 1) release_.WaitForNotification();
    return std::nullopt;
  });
  Answer first;
  std::thread stream([&] { first = Generate(Request()); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 1; });
  v1::GenerateRequest large = Request(), of_many_parts;
  large.set_text(std::string(5000, 'x'));
  for (int i = 0; i < 30; ++i) of_many_parts.mutable_conversation()->add_messages();
  for (const v1::GenerateRequest& second : {large, of_many_parts}) {
    const absl::Status refused = Generate(second).status;
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
    EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  }
  release_.Notify();
  stream.join();
  ExpectUndisturbed(first, Request());
}

TEST_F(GatewayTest, AGatewayThatEndsTellsClientsToContinueElsewhere) {
  const v1::GenerateRequest request = LongRequest("end");
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  workers_[0]->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 4) release_.WaitForNotification();
    return std::nullopt;
  });
  absl::Notification begun;
  Answer answer;
  std::thread stream([&] {
    answer = Generate(request, nullptr, [&](int responses) {
      if (responses == 4) begun.Notify();
    });
  });
  begun.WaitForNotification();
  gateway_->BeginDrain();
  EXPECT_EQ(protocol::ReasonOf(Generate(Request()).status), protocol::kReasonContinue);
  EXPECT_EQ(gateway_->num_streams(), 1);
  gateway_->Shutdown();
  stream.join();
  release_.Notify();
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_EQ(protocol::ReasonOf(answer.status), protocol::kReasonContinue);
  EXPECT_THAT(answer.responses, SizeIs(4));
  EXPECT_EQ(gateway_->num_streams(), 0);
}

TEST_F(GatewayTest, AnEndWaitsForTheCallsThatAreOpen) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  absl::Notification begun, ended;
  workers_[0]->SetTokenizeScript([&] {
    begun.Notify();
    release_.WaitForNotification();
  });
  grpc::Status status;
  std::thread call([&] {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text("ab");
    v1::TokenizeResponse response;
    status = stub_->Tokenize(&context, request, &response);
  });
  begun.WaitForNotification();
  std::thread end([&] {
    gateway_->Shutdown();
    ended.Notify();
  });
  // The drain lasts several times as long as clients need to leave.
  EXPECT_FALSE(ended.WaitForNotificationWithTimeout(absl::Milliseconds(500)));
  release_.Notify();
  call.join();
  end.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(GatewayTest, NoClientOfAGatewayThatEndsIsCancelled) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  // Each client calls without pause until it is told to go elsewhere, and then once more.
  std::vector<std::thread> clients;
  std::atomic<int> answers = 0, others = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      for (int told = 0; told < 2;) {
        const absl::StatusCode code = Generate(Request("x", 2)).status.code();
        if (code == absl::StatusCode::kOk) ++answers;
        if (code == absl::StatusCode::kUnavailable) ++told;
        if (code != absl::StatusCode::kOk && code != absl::StatusCode::kUnavailable) {
          ++others;
          break;
        }
      }
    });
  }
  while (answers < 100) std::this_thread::yield();
  gateway_->Shutdown();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace continuo::gateway
