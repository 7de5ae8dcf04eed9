// SPDX-License-Identifier: Apache-2.0
// Tests of Embed with a whole gateway in front of fake workers.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Json = nlohmann::json;

v1::EmbedRequest RequestOf(const std::vector<std::string>& texts) {
  v1::EmbedRequest request;
  for (const std::string& text : texts) request.add_inputs()->set_text(text);
  return request;
}

class GatewayEmbedTest : public GatewayTest {
 protected:
  struct Result {
    absl::Status status;
    v1::EmbedResponse response;
  };
  Result Embed(const v1::EmbedRequest& request,
               const std::function<void(grpc::ClientContext&)>& prepare = nullptr) {
    grpc::ClientContext context;
    if (prepare) prepare(context);
    Result result;
    result.status = common::FromGrpcStatus(stub_->Embed(&context, request, &result.response));
    return result;
  }
  static void ExpectVectors(const Result& result, const v1::EmbedRequest& request) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    ASSERT_EQ(result.response.embeddings_size(), request.inputs_size());
    for (int i = 0; i < request.inputs_size(); ++i) {
      const auto& values = result.response.embeddings(i).values();
      EXPECT_EQ(std::vector<float>(values.begin(), values.end()), FakeVector(request.inputs(i)));
    }
  }
  int NumMigrations() const {
    int number = 0;
    for (const auto& worker : workers_) number += worker->num_embed_migrations();
    return number;
  }
  // The migrations that the gateway has counted, of all reasons.
  double CountedMigrations() {
    double sum = 0;
    for (const absl::string_view line : absl::StrSplit(Metrics(), '\n')) {
      double number;
      if (absl::StartsWith(line, "continuo_gateway_migrations_total{") &&
          absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &number)) {
        sum += number;
      }
    }
    return sum;
  }
  size_t NumEmbeds() const {
    size_t number = 0;
    for (const auto& worker : workers_) number += worker->embeds().size();
    return number;
  }
  std::string Metrics() {
    openai::HttpClient client(gateway_->metrics_port());
    client.Get("/metrics");
    return client.Read().body();
  }
};

TEST_F(GatewayEmbedTest, AWorkerAnswersWithWhatTheClientSent) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  v1::EmbedRequest request = RequestOf({"one", "two", ""});
  request.add_inputs()->mutable_token_ids()->add_ids(77);
  request.set_dimensions(3);
  const Result result = Embed(request);
  ExpectVectors(result, request);
  EXPECT_EQ(result.response.fingerprint(), FakeGeneration::Worker().fingerprint);
  ASSERT_EQ(NumEmbeds(), 1u);
  for (const auto& worker : workers_) {
    for (const v1::EmbedRequest& seen : worker->embeds()) {
      EXPECT_EQ(seen.SerializeAsString(), request.SerializeAsString());
    }
  }
}

TEST_F(GatewayEmbedTest, PairsReachAWorkerAsTheyAre) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  v1::EmbedRequest request;
  for (const char* document : {"one", "two"}) {
    v1::TextPair& pair = *request.add_inputs()->mutable_pair();
    pair.set_query("q");
    pair.set_document(document);
  }
  request.set_instruction("Find.");
  request.set_max_document_tokens(9);
  ExpectVectors(Embed(request), request);
  ASSERT_EQ(workers_[0]->embeds().size(), 1u);
  EXPECT_EQ(workers_[0]->embeds()[0].SerializeAsString(), request.SerializeAsString());
  const auto field = [&] {
    const absl::Status status = Embed(request).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return protocol::FieldOf(status);
  };
  request.set_instruction(std::string(protocol::kMaxInstructionBytes + 1, 'i'));
  EXPECT_EQ(field(), "instruction");
  request.clear_instruction();
  request.set_prompt_name("query");
  EXPECT_EQ(field(), "prompt_name");
  request = RequestOf({"a"});
  request.set_instruction("Find.");
  EXPECT_EQ(field(), "instruction");
  request.clear_instruction();
  request.set_max_document_tokens(1);
  EXPECT_EQ(field(), "max_document_tokens");
}

TEST_F(GatewayEmbedTest, BadRequestsReachNoWorker) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  const auto field = [&](const v1::EmbedRequest& request) {
    const absl::Status status = Embed(request).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return protocol::FieldOf(status);
  };
  EXPECT_EQ(field({}), "inputs");
  v1::EmbedRequest bad = RequestOf({"a"});
  bad.set_dimensions(0);
  EXPECT_EQ(field(bad), "dimensions");
  EXPECT_EQ(NumEmbeds(), 0u);
  v1::EmbedRequest other = RequestOf({"a"});
  other.set_model("other");
  EXPECT_TRUE(absl::IsNotFound(Embed(other).status));
}

TEST_F(GatewayEmbedTest, AnotherWorkerAnswersWhereOneIsLostDrainsOrRejects) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  const auto draining =
      protocol::WithReason(absl::UnavailableError("it drains"), protocol::kReasonDraining);
  for (const absl::Status& failure :
       {absl::Status(absl::UnavailableError("connection reset")), draining,
        absl::Status(absl::InternalError("stream reset")), protocol::OverloadedError("too many")}) {
    // Whichever is asked first fails.
    auto asked = std::make_shared<std::atomic<int>>(0);
    for (const auto& worker : workers_) {
      worker->SetEmbedScript([asked, failure](const v1::EmbedRequest&) {
        return asked->fetch_add(1) == 0 ? std::optional(failure) : std::nullopt;
      });
    }
    const int before = NumMigrations();
    ExpectVectors(Embed(RequestOf({"a"})), RequestOf({"a"}));
    EXPECT_EQ(*asked, 2) << failure;
    // A worker that rejects has not begun.
    EXPECT_EQ(NumMigrations() - before, absl::IsResourceExhausted(failure) ? 0 : 1) << failure;
  }
}

TEST_F(GatewayEmbedTest, AWorkerThatWasSilentIsAskedAgainByAMigration) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  std::atomic<int> asked = 0;
  workers_[0]->SetEmbedScript([&](const v1::EmbedRequest&) {
    if (asked++ == 0) {
      workers_[0]->SetSilent(true);
      release_.WaitForNotification();
    }
    return std::optional<absl::Status>();
  });
  Result result;
  std::thread client([&] { result = Embed(RequestOf({"a"})); });
  // The gateway gives it up, and finds it again as the first call goes on.
  while (CountedMigrations() == 0) std::this_thread::yield();
  workers_[0]->SetSilent(false);
  client.join();
  release_.Notify();
  ExpectVectors(result, RequestOf({"a"}));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(NumMigrations(), 1);
}

TEST_F(GatewayEmbedTest, AWorkerThatDiesIsFollowedByAnother) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  absl::Notification entered, killed;
  std::atomic<int> asked = 0;
  std::atomic<FakeWorker*> first = nullptr;
  for (const auto& worker : workers_) {
    worker->SetEmbedScript([&, w = worker.get()](const v1::EmbedRequest&) {
      if (asked++ == 0) {
        first = w;
        entered.Notify();
        killed.WaitForNotification();
      }
      return std::optional<absl::Status>();
    });
  }
  Result result;
  std::thread client([&] { result = Embed(RequestOf({"a"})); });
  entered.WaitForNotification();
  std::thread killer([&] { first.load()->Kill(); });
  // Kill breaks the connection and then waits for the call's own thread.
  while (asked < 2) std::this_thread::yield();
  killed.Notify();
  killer.join();
  client.join();
  ExpectVectors(result, RequestOf({"a"}));
  EXPECT_GE(CountedMigrations(), 1);
}

TEST_F(GatewayEmbedTest, AModelThatOneWorkerHasUnloadedIsAskedForElsewhere) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<int> asked = 0, known = 1;  // by the workers together
  for (const auto& worker : workers_) {
    worker->SetEmbedScript([&](const v1::EmbedRequest&) -> std::optional<absl::Status> {
      if (asked++ < 2 - known) return absl::NotFoundError("model \"fake\" is not served here");
      return std::nullopt;
    });
  }
  ExpectVectors(Embed(RequestOf({"a"})), RequestOf({"a"}));
  EXPECT_EQ(asked, 2);
  known = asked = 0;
  EXPECT_TRUE(absl::IsNotFound(Embed(RequestOf({"a"})).status));
  EXPECT_EQ(asked, 2) << "no worker is left that may know it";
}

TEST_F(GatewayEmbedTest, WhatAWorkerSaysOfTheRequestIsTheAnswer) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  for (const auto& worker : workers_) {
    worker->SetEmbedScript([](const v1::EmbedRequest&) {
      return std::optional(protocol::FieldError("inputs[0].text", "is too long"));
    });
  }
  const absl::Status status = Embed(RequestOf({"a"})).status;
  EXPECT_EQ(protocol::FieldOf(status), "inputs[0].text");
  EXPECT_EQ(NumEmbeds(), 1u) << "it is not asked again";
}

TEST_F(GatewayEmbedTest, ACallWaitsForAWorkerOfADeclaredModel) {
  workers_.push_back(
      std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "cold-worker", .model = "cold"}));
  workers_[0]->Kill();
  GatewayConfig config;
  config.models = {"cold"};
  config.relay.retry.no_worker_wait = absl::Milliseconds(50);
  StartGateway(config);
  v1::EmbedRequest request = RequestOf({"a"});
  request.set_model("cold");
  Result result;
  std::thread client([&] { result = Embed(request); });
  while (gateway_->num_streams() == 0) std::this_thread::yield();
  workers_[0]->Restart();
  client.join();
  ExpectVectors(result, request);
}

TEST_F(GatewayEmbedTest, ItEndsByDeadlineCancelAndShutdown) {
  workers_.push_back(
      std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "cold-worker", .model = "cold"}));
  workers_[0]->Kill();
  GatewayConfig config;
  config.models = {"cold"};
  StartGateway(config);
  v1::EmbedRequest request = RequestOf({"a"});
  request.set_model("cold");
  EXPECT_TRUE(absl::IsDeadlineExceeded(Embed(request, [](grpc::ClientContext& context) {
                                         context.set_deadline(absl::ToChronoTime(
                                             absl::Now() + absl::Milliseconds(100)));
                                       }).status));
  while (gateway_->num_streams() > 0) std::this_thread::yield();
  grpc::ClientContext cancelled;
  v1::EmbedResponse response;
  grpc::Status status;
  std::thread client([&] { status = stub_->Embed(&cancelled, request, &response); });
  while (gateway_->num_streams() == 0) std::this_thread::yield();
  cancelled.TryCancel();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  while (gateway_->num_streams() > 0) std::this_thread::yield();
  Result ended;
  std::thread last([&] { ended = Embed(request); });
  while (gateway_->num_streams() == 0) std::this_thread::yield();
  gateway_->Shutdown();
  last.join();
  EXPECT_EQ(protocol::ReasonOf(ended.status), protocol::kReasonContinue) << ended.status;
}

TEST_F(GatewayEmbedTest, ItIsCountedChargedAndAdmittedAsAGenerationIs) {
  const testing::TempFolder folder;
  AddWorkers(1);
  GatewayConfig config;
  config.usage_log = (folder.path() / "usage").string();
  config.admission.tenant.prompt_tokens_per_second = 1;
  config.admission.tenant.burst_seconds = 10;
  StartGateway(config);
  WaitForWorkers(1);
  const auto as_alice = [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", "mine");
  };
  ExpectVectors(Embed(RequestOf({"a", "b"}), as_alice), RequestOf({"a", "b"}));
  while (gateway_->num_streams() > 0) std::this_thread::yield();
  const std::string metrics = Metrics();
  for (const char* const family :
       {"requests_total", "migrations_total", "request_seconds", "open_streams"}) {
    // Which calls it counts, as these do.
    EXPECT_THAT(metrics, ContainsRegex(absl::StrCat("# HELP continuo_gateway_", family,
                                                    " [^\n]*alls? of Generate (and|or) Embed")));
  }
  EXPECT_THAT(metrics, HasSubstr("continuo_gateway_requests_total{code=\"OK\",model=\"fake\""));
  EXPECT_THAT(metrics, HasSubstr("kind=\"prompt\",tenant=\"default\"} 14"));
  std::ifstream file(config.usage_log);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Json record = Json::parse(line);
  EXPECT_EQ(record["request_id"], "mine");
  EXPECT_EQ(record["model"], "fake");
  EXPECT_EQ(record["prompt_tokens"], 14);
  EXPECT_EQ(record["cached_tokens"], 2);
  EXPECT_EQ(record["generated_tokens"], 0);
  EXPECT_EQ(record["prompt_estimated"], false);
  EXPECT_EQ(record["outcome"], "finished");
  // The estimate of the inputs counts against the tenant's rate.
  EXPECT_TRUE(Embed(RequestOf({std::string(400, 'x')})).status.ok()) << "paid off afterwards";
  const absl::Status limited = Embed(RequestOf({"a"})).status;
  EXPECT_EQ(protocol::ReasonOf(limited), protocol::kReasonRateLimited) << limited;
}

// A body that becomes so many calls.
std::string BodyOf(int num_parts) {
  Json body = {{"input", Json::array()}};
  for (int i = 0; i < num_parts; ++i) {
    body["input"].push_back(std::string(size_t{4} * (32 << 10), static_cast<char>('a' + i)));
  }
  return body.dump();
}

TEST_F(GatewayEmbedTest, AllPartsOfAnHttpRequestAreOfOneFingerprint) {
  for (const char* const fingerprint : {"one", "other"}) {
    workers_.push_back(std::make_unique<FakeWorker>(FakeGeneration::Worker{
        .name = absl::StrCat("worker-", fingerprint), .fingerprint = fingerprint}));
  }
  GatewayConfig config;
  config.relay.retry.no_worker_wait = absl::Milliseconds(50);
  StartGateway(config);
  WaitForWorkers(2);
  openai::HttpClient client(gateway_->http_port());
  client.Post("/v1/embeddings", BodyOf(10));
  const auto answer = client.Read();
  ASSERT_EQ(answer.result_int(), 200) << answer.body();
  EXPECT_EQ(NumEmbeds(), 10u);
  EXPECT_TRUE(workers_[0]->embeds().empty() || workers_[1]->embeds().empty());
  // The worker of the first part drains before that part has its answer; the other one could serve
  // the second part, with other vectors.
  std::atomic<int> asked = 0;
  for (const auto& worker : workers_) {
    worker->SetEmbedScript([&](const v1::EmbedRequest&) -> std::optional<absl::Status> {
      if (asked++ == 0) {
        worker->SetState(v1::WORKER_STATE_DRAINING);
        WaitForWorkers(1);
      }
      return std::nullopt;
    });
  }
  client.Post("/v1/embeddings", BodyOf(2));
  const auto refused = client.Read();
  EXPECT_EQ(refused.result_int(), 503) << refused.body();
  EXPECT_EQ(asked, 1);
}

TEST_F(GatewayEmbedTest, HttpAsksWorkersToo) {
  AddWorkers(1);
  StartGateway();
  WaitForWorkers(1);
  openai::HttpClient client(gateway_->http_port());
  client.Post("/v1/embeddings", R"({"model":"fake","input":["a","b"]})");
  const auto answer = client.Read();
  ASSERT_EQ(answer.result_int(), 200) << answer.body();
  const Json json = Json::parse(answer.body());
  EXPECT_EQ(json["data"][1]["embedding"], Json::parse("[98,1,0.1]"));
  EXPECT_EQ(json["usage"]["total_tokens"], 14);
  workers_[0]->SetEmbedScript([](const v1::EmbedRequest&) {
    return std::optional<absl::Status>(absl::UnimplementedError("model \"fake\" generates"));
  });
  client.Post("/v1/embeddings", R"({"input":"a"})");
  EXPECT_EQ(client.Read().result_int(), 501);
}

}  // namespace
}  // namespace continuo::gateway
