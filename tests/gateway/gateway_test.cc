// SPDX-License-Identifier: Apache-2.0
// A whole gateway on loopback ports in front of fake workers.
#include "services/gateway/gateway.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/error.h"
#include "services/common/grpc_status.h"
#include "tests/gateway/dns_server.h"
#include "tests/testing/fake_worker.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::GenerateRequest Request(const std::string& text = "once", uint32_t max_tokens = 30) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

// One whose answer does not stop before its limit, so that a script may count on its length.
v1::GenerateRequest LongRequest(const std::string& text, uint32_t max_tokens = 40) {
  for (int i = 0;; ++i) {
    v1::GenerateRequest request = Request(absl::StrCat(text, " ", i), max_tokens);
    if (UndisturbedAnswer(request).completion_tokens == max_tokens) return request;
  }
}

struct Answer {
  std::vector<v1::GenerateResponse> responses;
  absl::Status status;
};

class GatewayTest : public ::testing::Test {
 protected:
  void AddWorkers(int number) {
    for (int i = 0; i < number; ++i) {
      workers_.push_back(
          std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = absl::StrCat("worker-", i)}));
    }
  }
  std::string Addresses() const {
    return absl::StrJoin(workers_, ",", [](std::string* out, const auto& worker) {
      out->append(worker->address());
    });
  }
  void StartGateway(GatewayConfig config = {}) {
    config.listen = "127.0.0.1:0";
    config.http_listen = "127.0.0.1:0";
    config.metrics_listen = "127.0.0.1:0";
    if (config.workers.empty()) config.workers = Addresses();
    absl::StatusOr<std::unique_ptr<Gateway>> gateway = Gateway::Start(config);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
  }
  // Asks until so many workers take requests.
  void WaitForWorkers(size_t number) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (absl::Now() < end) {
      const v1::ListModelsResponse models = ListModels();
      if (models.models_size() > 0 && models.models(0).num_workers() == number) return;
      std::this_thread::yield();
    }
    FAIL() << number << " workers did not come";
  }
  v1::ListModelsResponse ListModels() {
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &response).ok());
    return response;
  }
  Answer Generate(const v1::GenerateRequest& request,
                  const std::function<void(grpc::ClientContext&)>& prepare = nullptr,
                  const std::function<void(int)>& on_response = nullptr) {
    grpc::ClientContext context;
    if (prepare) prepare(context);
    Answer answer;
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      answer.responses.push_back(response);
      if (on_response) on_response(static_cast<int>(answer.responses.size()));
    }
    answer.status = FromGrpcStatus(reader->Finish());
    return answer;
  }
  // A call with one request and at most one response, as bytes.
  grpc::Status CallRaw(const std::string& method, const std::string& request,
                       std::string* response) {
    grpc::GenericStub stub(
        grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    grpc::ByteBuffer answer;
    grpc::ClientContext context;
    absl::Notification done;
    grpc::Status status;
    stub.UnaryCall(&context, method, {}, &bytes, &answer, [&](grpc::Status s) {
      status = std::move(s);
      done.Notify();
    });
    done.WaitForNotification();
    grpc::Slice flat;
    if (answer.DumpToSingleSlice(&flat).ok()) {
      response->assign(reinterpret_cast<const char*>(flat.begin()), flat.size());
    }
    return status;
  }
  void ExpectUndisturbed(const Answer& answer, const v1::GenerateRequest& request) {
    EXPECT_EQ(answer.status, absl::OkStatus());
    EXPECT_EQ(Join(answer.responses), UndisturbedAnswer(request));
  }
  size_t NumCalls() const {
    size_t calls = 0;
    for (const auto& worker : workers_) calls += worker->num_calls();
    return calls;
  }

  // For scripts to wait for; outlives the workers, whose threads may still be about to wake.
  absl::Notification release_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

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
    // The worker that got the call stops there until it has been killed.
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

TEST_F(GatewayTest, AMoveTellsTheNextWorkerAllItNeeds) {
  const v1::GenerateRequest request = LongRequest("drain");
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<bool> armed = true;
  for (const auto& worker : workers_) {
    worker->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
      if (response != 4 || !armed.exchange(false)) return std::nullopt;
      return WithReason(absl::UnavailableError("draining"), kReasonDraining);
    });
  }
  const Answer answer = Generate(request, [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", "my-id");
    context.AddMetadata("x-tenant-id", "somebody");
    context.AddMetadata("x-continuo-move", "1");
    context.AddMetadata("traceparent", "00-1-2-01");
    context.AddMetadata("authorization", "Bearer secret");
  });
  ExpectUndisturbed(answer, request);
  EXPECT_EQ(answer.responses.back().summary().migrations(), 1);
  std::vector<FakeWorker::Call> calls = workers_[0]->calls();
  for (const auto& call : workers_[1]->calls()) calls.push_back(call);
  ASSERT_THAT(calls, SizeIs(2));
  for (const FakeWorker::Call& call : calls) {
    const bool is_move = call.request.has_continuation();
    EXPECT_EQ(call.metadata.count("x-continuo-move"), is_move ? 1 : 0);
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
  // After its death nobody is there; the successor has the same port.
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
  workers_[0]->Kill();  // its port refuses from now on
  GatewayConfig config;
  config.relay.no_worker_wait = absl::Milliseconds(50);
  StartGateway(config);
  const Answer answer = Generate(Request());
  EXPECT_TRUE(absl::IsUnavailable(answer.status));
  EXPECT_EQ(ReasonOf(answer.status), kReasonNoWorker);
}

TEST_F(GatewayTest, ASilentWorkerIsLeft) {
  const v1::GenerateRequest request = LongRequest("hang");
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<bool> armed = true;
  for (const auto& worker : workers_) {
    worker->SetScript([&, w = worker.get()](const FakeWorker::Call&,
                                            int response) -> std::optional<absl::Status> {
      if (response != 3 || !armed.exchange(false)) return std::nullopt;
      w->SetSilent(true);
      release_.WaitForNotification();
      return std::nullopt;
    });
  }
  ExpectUndisturbed(Generate(request), request);
  release_.Notify();
}

TEST_F(GatewayTest, AHungWorkerThatStillReportsIsLeft) {
  const v1::GenerateRequest request = LongRequest("hung");
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<bool> armed = true;
  for (const auto& worker : workers_) {
    worker->SetScript([&, w = worker.get()](const FakeWorker::Call&,
                                            int response) -> std::optional<absl::Status> {
      if (response != 3 || !armed.exchange(false)) return std::nullopt;
      w->SetHealth(false);
      release_.WaitForNotification();
      return std::nullopt;
    });
  }
  ExpectUndisturbed(Generate(request), request);
  release_.Notify();
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
  // gRPC rounds what it sends up.
  EXPECT_LE(workers_[0]->calls()[0].time_left, absl::Milliseconds(310));
}

TEST_F(GatewayTest, TheFullerWorkerReceivesFewerRequests) {
  AddWorkers(2);
  workers_[0]->SetReport([](v1::WatchLoadResponse& report) { report.set_used_kv_blocks(900); });
  workers_[1]->SetReport([](v1::WatchLoadResponse& report) { report.set_used_kv_blocks(100); });
  StartGateway();
  WaitForWorkers(2);
  for (int i = 0; i < 200; ++i) Generate(Request("x", 1));
  // Both draws have to hit the full one: 50 of 200 expected, sigma 6.
  EXPECT_LT(workers_[0]->num_calls(), 80);
  EXPECT_GT(workers_[0]->num_calls(), 20);
}

TEST_F(GatewayTest, ACanaryGetsItsShareAndTakesOverWhereTheOthersAreGone) {
  AddWorkers(2);
  GatewayConfig config;
  config.workers = absl::StrCat(workers_[0]->address(), "@9;", workers_[1]->address(), "@1");
  StartGateway(config);
  WaitForWorkers(2);
  for (int i = 0; i < 300; ++i) Generate(Request("x", 1));
  // 30 expected, sigma 5.
  EXPECT_GT(workers_[1]->num_calls(), 8);
  EXPECT_LT(workers_[1]->num_calls(), 60);
  workers_[0]->Kill();
  ExpectUndisturbed(Generate(Request()), Request());
}

TEST_F(GatewayTest, PromptsWithOneBeginningAndSessionsMeetOneWorker) {
  AddWorkers(4);
  GatewayConfig config;
  config.routing_policy = "affinity";
  StartGateway(config);
  WaitForWorkers(4);
  const std::string prefix(5000, 'x');
  for (int i = 0; i < 20; ++i) Generate(Request(absl::StrCat(prefix, i), 1));
  std::vector<size_t> calls;
  for (const auto& worker : workers_) calls.push_back(worker->num_calls());
  EXPECT_EQ(*std::ranges::max_element(calls), 20);
  for (int i = 0; i < 20; ++i) {
    Generate(Request(absl::StrCat(i, prefix), 1),
             [](grpc::ClientContext& context) { context.AddMetadata("x-session-id", "s"); });
  }
  size_t session = 0;
  for (size_t i = 0; i < 4; ++i) session = std::max(session, workers_[i]->num_calls() - calls[i]);
  EXPECT_EQ(session, 20);
}

TEST_F(GatewayTest, AWorkerThatLeftDnsDrainsAndAnotherIsFound) {
  const v1::GenerateRequest request = LongRequest("open");
  // Two loopback addresses with one port, as pods have.
  auto first = std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "first"});
  auto second = std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "second"},
                                             first->port(), "127.0.0.2");
  DnsServer dns({"127.0.0.1"});
  GatewayConfig config;
  config.workers = absl::StrCat("dns://", dns.address(), "/workers.test:", first->port());
  config.resolver = {.min_interval = absl::Milliseconds(10),
                     .max_interval = absl::Milliseconds(20)};
  StartGateway(config);
  WaitForWorkers(1);

  absl::Notification moved_on;
  std::atomic<bool> armed = true;
  first->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 3 && armed.exchange(false)) moved_on.WaitForNotification();
    return std::nullopt;
  });
  Answer open;
  std::thread stream([&] { open = Generate(request); });
  first->WaitForCalls([](const auto& calls) { return calls.size() == 1; });

  dns.Set({"127.0.0.2"});
  // Only the one that is listed takes new work, while the other one is alive.
  while (second->num_calls() < 5) ExpectUndisturbed(Generate(Request("new")), Request("new"));
  const size_t before = first->num_calls();
  for (int i = 0; i < 20; ++i) Generate(Request("new", 1));
  EXPECT_EQ(first->num_calls(), before);
  moved_on.Notify();
  stream.join();
  ExpectUndisturbed(open, request);
  EXPECT_EQ(open.responses.back().summary().migrations(), 0);
}

TEST_F(GatewayTest, ModelsAreMergedFromAllWorkers) {
  workers_.push_back(std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "a"}));
  workers_.push_back(
      std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "b", .fingerprint = "G"}));
  StartGateway();
  WaitForWorkers(2);
  v1::Model model;
  do {  // its description is asked for after its first report
    model = ListModels().models(0);
  } while (model.architecture().empty());
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
  grpc::ClientContext context, back_context, embed_context;
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
  v1::EmbedResponse embeddings;
  EXPECT_EQ(stub_->Embed(&embed_context, {}, &embeddings).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
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
  grpc::ClientContext context;
  v1::TokenizeResponse response;
  const absl::Status refused = FromGrpcStatus(stub_->Tokenize(&context, request, &response));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(ReasonOf(refused), kReasonOverloaded);
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  release_.Notify();
  first.join();
  ExpectUndisturbed(Generate(Request()), Request());
}

TEST_F(GatewayTest, AGatewayThatDrainsTakesNoCallThatNeedsAWorker) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  gateway_->BeginDrain();
  EXPECT_EQ(ReasonOf(Generate(Request()).status), kReasonContinue);
  grpc::ClientContext tokenize, detokenize, embed;
  v1::TokenizeResponse ids;
  v1::DetokenizeResponse text;
  v1::EmbedResponse embeddings;
  for (const grpc::Status& status :
       {stub_->Tokenize(&tokenize, {}, &ids), stub_->Detokenize(&detokenize, {}, &text),
        stub_->Embed(&embed, {}, &embeddings)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(ReasonOf(FromGrpcStatus(status)), kReasonContinue);
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
    EXPECT_EQ(FieldOf(answer.status), field);
  }
  const Answer metadata = Generate(Request(), [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", std::string(129, 'x'));
  });
  EXPECT_EQ(FieldOf(metadata.status), "x-request-id");
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
  config.admission.max_open_requests = 1;
  StartGateway(config);
  WaitForWorkers(1);
  workers_[0]->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 1) release_.WaitForNotification();
    return std::nullopt;
  });
  Answer first;
  std::thread stream([&] { first = Generate(Request()); });
  workers_[0]->WaitForCalls([](const auto& calls) { return calls.size() == 1; });
  const Answer second = Generate(Request());
  EXPECT_TRUE(absl::IsResourceExhausted(second.status));
  EXPECT_EQ(ReasonOf(second.status), kReasonOverloaded);
  EXPECT_TRUE(RetryDelayOf(second.status).has_value());
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
  EXPECT_EQ(ReasonOf(Generate(Request()).status), kReasonContinue);
  EXPECT_EQ(gateway_->num_streams(), 1);
  gateway_->Shutdown();
  stream.join();
  release_.Notify();
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_EQ(ReasonOf(answer.status), kReasonContinue);
  EXPECT_THAT(answer.responses, SizeIs(4));
  EXPECT_EQ(gateway_->num_streams(), 0);
}

}  // namespace
}  // namespace continuo::gateway
