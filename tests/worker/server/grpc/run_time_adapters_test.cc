// SPDX-License-Identifier: Apache-2.0
// LoRA adapters that are loaded and unloaded while the worker serves.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/protocol/error.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "tests/worker/server/runtime/fake_adapter_loader.h"

namespace continuo::server {
namespace {

using testing::Answer;
using ::testing::ElementsAre;
using testing::kVocab;

class RunTimeAdaptersTest : public testing::WorkerServerTest {
 protected:
  ~RunTimeAdaptersTest() override {
    folder_.SetOpen(true);
    executor_.SetOpen(true);
    server_->Shutdown();
  }

  void ServeFolder() {
    ServedModel base = testing::MakeServedModel(text_.get());
    base.max_context_tokens = 4000;
    auto loader = std::make_unique<testing::FakeAdapterLoader>(&folder_, base);
    server_->Serve(
        std::move(base),
        {.num_blocks = 4096, .block_size = 4, .vocab_size = kVocab, .calibrate = false}, &executor_,
        [](const absl::Status& status) { ADD_FAILURE() << status; }, {}, std::move(loader));
  }
  static v1::GenerateRequest RequestOf(const std::string& model, int max_tokens = 20) {
    v1::GenerateRequest request = BaseRequest(max_tokens);
    request.set_model(model);
    return request;
  }
  absl::Status Load(const std::string& name, const std::string& path,
                    v1::LoadAdapterResponse* response = nullptr) {
    grpc::ClientContext context;
    v1::LoadAdapterRequest request;
    request.set_name(name);
    request.set_path(path);
    v1::LoadAdapterResponse ignored;
    return common::FromGrpcStatus(
        worker_->LoadAdapter(&context, request, response == nullptr ? &ignored : response));
  }
  absl::Status Unload(const std::string& name) {
    grpc::ClientContext context;
    v1::UnloadAdapterRequest request;
    request.set_name(name);
    v1::UnloadAdapterResponse response;
    return common::FromGrpcStatus(worker_->UnloadAdapter(&context, request, &response));
  }
  // True where a health check of the name says that it serves. HealthCheckRequest has a string 1,
  // HealthCheckResponse an enum 1 with 1 for SERVING.
  bool IsHealthy(const std::string& name) {
    const grpc::Slice slice("\x0a" + std::string(1, static_cast<char>(name.size())) + name);
    const grpc::ByteBuffer in(&slice, 1);
    grpc::ByteBuffer out;
    grpc::ClientContext context;
    grpc::GenericStub stub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &in, &out,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    grpc::Slice answer;
    return done.get_future().get().ok() && out.DumpToSingleSlice(&answer).ok() &&
           std::string(answer.begin(), answer.end()) == "\x08\x01";
  }
  // Waits until the engine has this number of requests.
  void WaitForRequests(int number) {
    WaitUntil([&] {
      const engine::EngineLoad load = server_->runtime().serving.get()->engine->Load();
      return load.running + load.waiting == number;
    });
  }
  // Watches the load until the adapters are these, "(name)" one that is not in memory.
  void WaitForAdapters(const std::vector<std::string>& wanted) {
    grpc::ClientContext context;
    v1::WatchLoadRequest request;
    request.set_accepts_deltas(true);
    auto reader = worker_->WatchLoad(&context, request);
    v1::WatchLoadResponse load;
    while (reader->Read(&load)) {
      if (load.is_delta()) continue;
      std::vector<std::string> names;
      for (const v1::ServedAdapter& adapter : load.adapters()) {
        names.push_back(adapter.on_demand() ? "(" + adapter.model() + ")" : adapter.model());
      }
      if (names != wanted) continue;
      context.TryCancel();
      return;
    }
    ADD_FAILURE() << "the watch ended";
  }

  testing::FakeAdapterFolder folder_{2};
};

TEST_F(RunTimeAdaptersTest, RequestsReadThemOnDemand) {
  folder_.Set("poet", "P");
  ServeFolder();
  WaitForAdapters({"(poet)"});
  const Answer base = Generate(RequestOf("bytes")), poet = Generate(RequestOf("poet"));
  EXPECT_EQ(poet.accepted.model(), "poet");
  EXPECT_EQ(poet.accepted.fingerprint(), "F/P");
  EXPECT_NE(poet.sequences.at(0).ids, base.sequences.at(0).ids);
  WaitForAdapters({"poet"});
  EXPECT_EQ(Generate(RequestOf("poet")).sequences.at(0).ids, poet.sequences.at(0).ids);
  EXPECT_EQ(folder_.num_loads(), 1);
}

TEST_F(RunTimeAdaptersTest, StepsGoOnWhileOneIsRead) {
  folder_.Set("poet", "P");
  folder_.SetOpen(false);
  ServeFolder();
  WaitForAdapters({"(poet)"});
  auto waiting = Start(RequestOf("poet"));
  WaitUntil([&] { return folder_.num_loads() == 1; });
  EXPECT_EQ(Generate(RequestOf("bytes")).sequences.at(0).ids.size(), 20u);
  v1::TokenizeRequest tokenize;
  tokenize.set_model("poet");
  tokenize.set_text("hello");
  v1::TokenizeResponse tokens;
  grpc::ClientContext context;
  EXPECT_TRUE(inference_->Tokenize(&context, tokenize, &tokens).ok()) << "text needs no matrices";
  folder_.SetOpen(true);
  EXPECT_TRUE(waiting->Finish().ok());
}

TEST_F(RunTimeAdaptersTest, AWaitEndsWithItsCall) {
  folder_.Set("poet", "P");
  folder_.SetOpen(false);
  ServeFolder();
  WaitForAdapters({"(poet)"});
  auto cancelled = Start(RequestOf("poet"));
  auto late = std::make_unique<Call>();
  late->context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  late->reader = inference_->Generate(&late->context, RequestOf("poet"));
  WaitUntil([&] { return folder_.num_loads() == 1; });
  cancelled->context.TryCancel();
  EXPECT_EQ(cancelled->Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(late->Finish().code(), absl::StatusCode::kDeadlineExceeded);
  // Both are over for the worker, too, though the adapter is still being read.
  WaitUntil([&] { return server_->runtime().open_calls.size() == 0; });
  // A drain sends a third one elsewhere.
  auto drained = Start(RequestOf("poet"));
  WaitUntil([&] { return server_->runtime().open_calls.size() == 1; });
  v1::DrainResponse response;
  ASSERT_TRUE(Drain(absl::ZeroDuration(), &response).ok());
  const absl::Status status = drained->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonDraining);
}

TEST_F(RunTimeAdaptersTest, ARequestThatWaitsIsALiveOne) {
  folder_.Set("poet", "P");
  folder_.SetOpen(false);
  ServeFolder();
  WaitForAdapters({"(poet)"});
  v1::GenerateRequest request = RequestOf("poet");
  request.set_request_id("one");
  auto waiting = Start(request);
  const auto waiting_requests = [&] {
    return server_->runtime().load_board.Read().waiting_requests();
  };
  WaitUntil([&] { return waiting_requests() == 1; });
  EXPECT_EQ(server_->runtime().registry.size(), 1u);
  EXPECT_EQ(Failure(request).code(), absl::StatusCode::kAlreadyExists);
  // What can be told without the adapter does not wait for it.
  v1::GenerateRequest bad = RequestOf("poet");
  bad.mutable_sampling()->set_temperature(-1);
  EXPECT_EQ(protocol::FieldOf(Failure(bad)), "sampling.temperature");
  EXPECT_TRUE(Abort("one").aborted());
  EXPECT_EQ(waiting->Finish().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(waiting_requests(), 0u);
  EXPECT_EQ(server_->runtime().registry.size(), 0u);
  // The id of the call's metadata is one, too, and one that the worker chose stays.
  auto named = Start(RequestOf("poet"), {{"x-request-id", "two"}});
  auto nameless = Start(RequestOf("poet"));
  WaitUntil([&] { return waiting_requests() == 2; });
  EXPECT_EQ(server_->runtime().registry.size(), 2u);
  EXPECT_TRUE(Abort("two").aborted());
  EXPECT_EQ(named->Finish().code(), absl::StatusCode::kAborted);
  folder_.SetOpen(true);
  EXPECT_TRUE(nameless->Finish().ok());
  EXPECT_NE(testing::AnswerOf(nameless->responses, false).accepted.request_id(), "");
  EXPECT_EQ(server_->runtime().registry.size(), 0u);
}

TEST_F(RunTimeAdaptersTest, AnAdapterInUseIsUnloadedBehindItsRequests) {
  folder_.Set("poet", "P");
  ServeFolder();
  WaitForAdapters({"(poet)"});
  const Answer whole = Generate(RequestOf("poet", 200));
  executor_.SetOpen(false);
  auto running = Start(RequestOf("poet", 200));
  WaitForRequests(1);
  ASSERT_TRUE(Unload("poet").ok());
  WaitForAdapters({});
  EXPECT_EQ(folder_.NumInMemory(), 1u);
  executor_.SetOpen(true);
  EXPECT_EQ(Failure(RequestOf("poet")).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_EQ(testing::AnswerOf(running->responses, false).sequences.at(0).ids,
            whole.sequences.at(0).ids);
  WaitUntil([&] { return folder_.NumInMemory() == 0; });
  EXPECT_EQ(Unload("poet").code(), absl::StatusCode::kNotFound);
}

TEST_F(RunTimeAdaptersTest, TheyAreLoadedByName) {
  folder_.Set("some/where", "P");
  folder_.Set("else/where", "Q");
  ServeFolder();
  v1::LoadAdapterResponse response;
  ASSERT_TRUE(Load("poet", "some/where", &response).ok());
  EXPECT_EQ(response.adapter().model(), "poet");
  EXPECT_EQ(response.adapter().fingerprint(), "F/P");
  EXPECT_FALSE(response.adapter().on_demand());
  EXPECT_EQ(Generate(RequestOf("poet")).accepted.fingerprint(), "F/P");
  EXPECT_TRUE(Load("poet", "some/where").ok());
  EXPECT_EQ(Load("poet", "else/where").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Load("poet", "no/where").code(), absl::StatusCode::kNotFound);
  v1::ListModelsResponse list;
  grpc::ClientContext context;
  ASSERT_TRUE(inference_->ListModels(&context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 2);
  EXPECT_EQ(list.models(1).name(), "poet");
  EXPECT_EQ(list.models(1).parent(), "bytes");
}

TEST_F(RunTimeAdaptersTest, HealthChecksKnowThem) {
  folder_.Set("poet", "P");
  ServeFolder();
  EXPECT_FALSE(IsHealthy("nobody"));
  WaitForAdapters({"(poet)"});
  EXPECT_TRUE(IsHealthy("poet"));
  ASSERT_TRUE(Unload("poet").ok());
  EXPECT_FALSE(IsHealthy("poet"));
  ASSERT_TRUE(Load("clerk", "poet").ok());
  EXPECT_TRUE(IsHealthy("clerk"));
  // A name of the worker itself stays.
  const std::string service = v1::InferenceService::service_full_name();
  ASSERT_TRUE(Load(service, "poet").ok());
  ASSERT_TRUE(Unload(service).ok());
  EXPECT_TRUE(IsHealthy(service));
  v1::DrainResponse response;
  ASSERT_TRUE(Drain(absl::ZeroDuration(), &response).ok());
  EXPECT_FALSE(IsHealthy("clerk"));
}

// The places are taken by requests that run.
TEST_F(RunTimeAdaptersTest, WhatRunsIsNotEvicted) {
  for (const char* name : {"a", "b", "c"}) folder_.Set(name, name);
  ServeFolder();
  WaitForAdapters({"(a)", "(b)", "(c)"});
  executor_.SetOpen(false);
  auto first = Start(RequestOf("a")), second = Start(RequestOf("b"));
  WaitForRequests(2);
  const absl::Status status = Failure(RequestOf("c"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonOverloaded);
  executor_.SetOpen(true);
  EXPECT_TRUE(first->Finish().ok());
  EXPECT_TRUE(second->Finish().ok());
  EXPECT_TRUE(Start(RequestOf("c"))->Finish().ok());
}

TEST_F(RunTimeAdaptersTest, WithoutAFolderTheyAreRefused) {
  Serve();
  EXPECT_EQ(Load("poet", "poet").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Unload("poet").code(), absl::StatusCode::kNotFound);
}

TEST_F(RunTimeAdaptersTest, AWorkerThatLoadsTakesNone) {
  EXPECT_EQ(Load("poet", "poet").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Unload("poet").code(), absl::StatusCode::kUnavailable);
  Serve();
}

}  // namespace
}  // namespace continuo::server
