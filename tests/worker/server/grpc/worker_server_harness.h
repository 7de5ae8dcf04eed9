// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/proto_time.h"
#include "services/worker/server/grpc/worker_server.h"
#include "tests/testing/forwarding_executor.h"
#include "tests/worker/server/session/answer.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::testing {

// A model whose steps wait for the test, so that requests can be met while they run.
class GatedExecutor : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;

  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&open_));
    }
    return ForwardingExecutor::Start(plan, fill_mask);
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }

 private:
  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
};

// A whole worker in this process and a client of it.
class WorkerServerTest : public ::testing::Test {
 protected:
  // `clock` outlives the fixture.
  explicit WorkerServerTest(server::WorkerServerOptions options = {}, const Clock* clock = nullptr)
      : text_(OpenTestModel("byte_level")),
        fake_({.num_blocks = 4096, .block_size = 4, .vocab_size = kVocab}),
        executor_(&fake_) {
    options.listen = "127.0.0.1:0";
    options.worker_name = "w0";
    options.model_name = "bytes";
    auto server = server::WorkerServer::Start(options, clock != nullptr ? clock : &clock_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::InferenceService::NewStub(channel);
    worker_ = v1::WorkerService::NewStub(channel);
  }
  ~WorkerServerTest() override {
    executor_.SetOpen(true);
    if (server_ != nullptr) server_->Shutdown();
  }

  void Serve(std::function<void(absl::Status)> on_failure = [](const absl::Status& status) {
    ADD_FAILURE() << status;
  }) {
    server::ServedModel model = MakeServedModel(text_.get());
    model.max_context_tokens = 4000;
    server_->Serve(std::move(model),
                   {.num_blocks = 4096, .block_size = 4, .vocab_size = kVocab, .calibrate = false},
                   &executor_, std::move(on_failure));
  }

  static v1::GenerateRequest BaseRequest(int max_tokens = 20) {
    v1::GenerateRequest request;
    request.set_text("hello world");
    request.mutable_sampling()->set_seed(4);
    request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(max_tokens));
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  // One call of Generate.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
    std::vector<v1::GenerateResponse> responses;

    // Reads on until tokens came. Returns false if the stream ended before.
    bool ReadToTokens() {
      v1::GenerateResponse response;
      while (reader->Read(&response)) {
        responses.push_back(response);
        if (response.deltas_size() > 0) return true;
      }
      return false;
    }
    absl::Status Finish() {
      v1::GenerateResponse response;
      while (reader->Read(&response)) responses.push_back(response);
      return common::FromGrpcStatus(reader->Finish());
    }
  };
  std::unique_ptr<Call> Start(const v1::GenerateRequest& request,
                              const std::map<std::string, std::string>& metadata = {},
                              v1::InferenceService::Stub* stub = nullptr) {
    auto call = std::make_unique<Call>();
    for (const auto& [key, value] : metadata) call->context.AddMetadata(key, value);
    call->context.set_wait_for_ready(true);
    if (stub == nullptr) stub = inference_.get();
    call->reader = stub->Generate(&call->context, request);
    return call;
  }
  Answer Generate(const v1::GenerateRequest& request) {
    auto call = Start(request);
    const absl::Status status = call->Finish();
    EXPECT_TRUE(status.ok()) << status;
    return AnswerOf(call->responses, request.output().collect());
  }
  absl::Status Failure(const v1::GenerateRequest& request,
                       const std::map<std::string, std::string>& metadata = {}) {
    return Start(request, metadata)->Finish();
  }
  static void WaitUntil(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::yield();
  }
  // Watches the load until nothing runs and no block is in use.
  void WaitUntilIdle() {
    grpc::ClientContext context;
    v1::WatchLoadRequest request;
    request.mutable_min_interval();
    auto reader = worker_->WatchLoad(&context, request);
    v1::WatchLoadResponse load;
    while (reader->Read(&load)) {
      if (load.running_requests() == 0 && load.waiting_requests() == 0 &&
          load.used_kv_blocks() == 0) {
        context.TryCancel();
        return;
      }
    }
    ADD_FAILURE() << "the watch ended";
  }
  v1::AbortResponse Abort(const std::string& id) {
    grpc::ClientContext context;
    v1::AbortRequest request;
    request.set_request_id(id);
    v1::AbortResponse response;
    EXPECT_TRUE(worker_->Abort(&context, request, &response).ok());
    return response;
  }
  absl::Status Drain(absl::Duration grace, v1::DrainResponse* response) {
    grpc::ClientContext context;
    v1::DrainRequest request;
    *request.mutable_grace() = protocol::ToProto(grace);
    return common::FromGrpcStatus(worker_->Drain(&context, request, response));
  }

  const SystemClock clock_;
  std::unique_ptr<text::TextModel> text_;
  FakeExecutor fake_;
  GatedExecutor executor_;
  std::unique_ptr<server::WorkerServer> server_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<v1::WorkerService::Stub> worker_;
};

}  // namespace continuo::testing
