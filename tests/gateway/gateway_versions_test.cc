// SPDX-License-Identifier: Apache-2.0
// Tests a gateway between a worker and clients of other releases: fields that it does not know pass
// through it, and fields that others do not send have sane defaults. `buf breaking` checks that no
// known field changes its number or type.
#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "continuo/v1/worker.grpc.pb.h"
#include "services/gateway/gateway.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"

namespace continuo::gateway {
namespace {

constexpr int kNewField = 1000;

// Sets a field of a later release in the message and in all messages inside it.
void AddNewField(google::protobuf::Message& message, uint64_t value) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  reflection.MutableUnknownFields(&message)->AddVarint(kNewField, value);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE ||
        field->is_map()) {
      continue;
    }
    if (!field->is_repeated()) {
      AddNewField(*reflection.MutableMessage(&message, field), value);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      AddNewField(*reflection.MutableRepeatedMessage(&message, field, i), value);
    }
  }
}

uint64_t NewField(const google::protobuf::Message& message) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (unknown.field(i).number() == kNewField) return unknown.field(i).varint();
  }
  return 0;
}

// A worker of another release. It sends the responses that a test sets, a token each, and loses its
// first call after `lose_after` responses.
class OtherWorker {
 public:
  OtherWorker(v1::WatchLoadResponse report, std::vector<v1::GenerateResponse> answer)
      : report_(std::move(report)), answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&inference_);
    builder.RegisterService(&load_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~OtherWorker() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  const std::string& address() const { return address_; }
  void LoseFirstCallAfter(size_t responses) { lose_after_ = responses; }
  std::vector<v1::GenerateRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  struct Inference : v1::InferenceService::Service {
    explicit Inference(OtherWorker* w) : w(w) {}
    grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                          grpc::ServerWriter<v1::GenerateResponse>* writer) override {
      size_t calls;
      {
        absl::MutexLock lock(&w->mutex_);
        w->requests_.push_back(*request);
        calls = w->requests_.size();
      }
      size_t sent = 0;
      if (request->continuation().has_received()) {
        sent = request->continuation().received().sequence() + 1;
      }
      for (; sent < w->answer_.size(); ++sent) {
        if (calls == 1 && sent == w->lose_after_) {
          return grpc::Status(grpc::StatusCode::UNAVAILABLE, "lost");
        }
        writer->Write(w->answer_[sent]);
      }
      return grpc::Status::OK;
    }
    grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                            v1::ListModelsResponse* response) override {
      response->add_models()->set_name(w->report_.model());
      return grpc::Status::OK;
    }
    OtherWorker* const w;
  };
  struct Load : v1::WorkerService::Service {
    explicit Load(OtherWorker* w) : w(w) {}
    grpc::Status WatchLoad(grpc::ServerContext* context, const v1::WatchLoadRequest*,
                           grpc::ServerWriter<v1::WatchLoadResponse>* writer) override {
      absl::Mutex mutex;
      while (!context->IsCancelled() && writer->Write(w->report_)) {
        absl::MutexLock lock(&mutex);
        bool never = false;
        mutex.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(50));
      }
      return grpc::Status::OK;
    }
    OtherWorker* const w;
  };

  const v1::WatchLoadResponse report_;
  const std::vector<v1::GenerateResponse> answer_;
  size_t lose_after_ = 1 << 30;
  absl::Mutex mutex_;
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  Inference inference_{this};
  Load load_{this};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// A response with only the fields of the first release of the protocol.
v1::WatchLoadResponse Report() {
  v1::WatchLoadResponse report;
  report.set_worker("other");
  report.set_incarnation("1");
  report.set_state(v1::WORKER_STATE_SERVING);
  report.set_model("m");
  report.set_fingerprint("F");
  return report;
}

std::vector<v1::GenerateResponse> ThreeTokens() {
  std::vector<v1::GenerateResponse> answer(4);
  for (size_t i = 0; i < answer.size(); ++i) answer[i].set_sequence(i);
  answer[0].mutable_accepted()->set_request_id("id");
  answer[0].mutable_accepted()->set_fingerprint("F");
  for (int i = 1; i <= 3; ++i) answer[i].add_deltas()->add_token_ids(i);
  answer[3].mutable_deltas(0)->set_finish_reason(v1::FINISH_REASON_LENGTH);
  answer[3].mutable_summary()->mutable_usage()->set_completion_tokens(3);
  return answer;
}

class GatewayVersionsTest : public GatewayTest {
 protected:
  void StartWith(const OtherWorker& worker) {
    GatewayConfig config;
    config.workers = worker.address();
    StartGateway(config);
    WaitForWorkers(1);
  }
  static std::vector<std::string> Bytes(const std::vector<v1::GenerateResponse>& responses) {
    std::vector<std::string> bytes;
    for (const auto& response : responses) bytes.push_back(response.SerializeAsString());
    return bytes;
  }
};

TEST_F(GatewayVersionsTest, FieldsOfALaterReleasePassBothWays) {
  v1::WatchLoadResponse report = Report();
  AddNewField(report, 1);
  std::vector<v1::GenerateResponse> answer = ThreeTokens();
  for (v1::GenerateResponse& response : answer) AddNewField(response, 2);
  // This release has no name for the value.
  answer[3].mutable_deltas(0)->set_finish_reason(static_cast<v1::FinishReason>(77));
  OtherWorker worker(report, answer);
  StartWith(worker);
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_seed(1);
  AddNewField(request, 3);
  const Answer got = Generate(request);
  EXPECT_EQ(got.status, absl::OkStatus());
  EXPECT_EQ(Bytes(got.responses), Bytes(answer));
  const std::vector<v1::GenerateRequest> seen = worker.requests();
  ASSERT_EQ(seen.size(), 1);
  EXPECT_EQ(NewField(seen[0]), 3);
  EXPECT_EQ(NewField(seen[0].sampling()), 3);
  EXPECT_EQ(NewField(seen[0].stopping()), 3);
}

TEST_F(GatewayVersionsTest, WhatALaterWorkerChoseComesBackToItAfterAMigration) {
  std::vector<v1::GenerateResponse> answer = ThreeTokens();
  AddNewField(*answer[0].mutable_accepted(), 4);
  OtherWorker worker(Report(), answer);
  worker.LoseFirstCallAfter(2);
  StartWith(worker);
  v1::GenerateRequest request = Request();
  AddNewField(request, 5);
  const Answer got = Generate(request);
  EXPECT_EQ(got.status, absl::OkStatus());
  EXPECT_EQ(Bytes(got.responses), Bytes(answer));
  const std::vector<v1::GenerateRequest> seen = worker.requests();
  ASSERT_EQ(seen.size(), 2);
  EXPECT_EQ(NewField(seen[1]), 5);
  EXPECT_EQ(NewField(seen[1].continuation().received().accepted()), 4);
}

TEST_F(GatewayVersionsTest, AWorkerThatReportsOnlyWhatItHasToServes) {
  // There are no counts, no tokenizer fingerprint, no health service and no list of models.
  OtherWorker worker(Report(), ThreeTokens());
  worker.LoseFirstCallAfter(3);
  StartWith(worker);
  const Answer got = Generate(Request());
  EXPECT_EQ(got.status, absl::OkStatus());
  EXPECT_EQ(Bytes(got.responses), Bytes(ThreeTokens()));
}

TEST_F(GatewayVersionsTest, AStateOfALaterReleaseTakesNoRequests) {
  v1::WatchLoadResponse report = Report();
  report.set_state(static_cast<v1::WorkerState>(99));
  OtherWorker worker(report, ThreeTokens());
  GatewayConfig config;
  config.workers = worker.address();
  config.relay.retry.no_worker_wait = absl::Milliseconds(100);
  StartGateway(config);
  // The worker has reported; it is not asked for its models before it serves.
  const absl::Time end = absl::Now() + absl::Minutes(1);
  std::string fleet;
  while (fleet.find("\"other\"") == std::string::npos && absl::Now() < end) {
    openai::HttpClient http(gateway_->http_port());
    http.Get("/fleet");
    fleet = http.Read().body();
  }
  EXPECT_NE(fleet.find("\"other\""), std::string::npos) << fleet;
  EXPECT_TRUE(absl::IsUnavailable(Generate(Request()).status));
  EXPECT_TRUE(worker.requests().empty());
}

}  // namespace
}  // namespace continuo::gateway
