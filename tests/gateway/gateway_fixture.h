// SPDX-License-Identifier: Apache-2.0
#pragma once

// A test fixture: a whole gateway on loopback ports in front of fake workers.

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_status.h"
#include "services/gateway/gateway.h"
#include "tests/testing/fake_worker.h"

namespace continuo::gateway {

inline v1::GenerateRequest Request(const std::string& text = "once", uint32_t max_tokens = 30) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

// A request whose answer does not stop before its limit, so that a script may count on its length.
inline v1::GenerateRequest LongRequest(const std::string& text, uint32_t max_tokens = 40) {
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
  // Polls until this number of workers takes requests.
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
    answer.status = common::FromGrpcStatus(reader->Finish());
    return answer;
  }
  // Makes a call with one request and at most one response, as bytes.
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

  // Scripts wait for it. It outlives the workers, whose threads may still be about to wake.
  absl::Notification release_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

}  // namespace continuo::gateway
