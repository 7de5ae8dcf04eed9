// SPDX-License-Identifier: Apache-2.0
// Tests of the Open Inference Protocol with a whole gateway in front of fake workers.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "tests/gateway/gateway_fixture.h"

namespace continuo::gateway {
namespace {

using ::testing::HasSubstr;
using Service = inference::GRPCInferenceService;

inference::ModelInferRequest InferRequest(const std::string& text, int max_tokens,
                                          const std::string& id = "") {
  inference::ModelInferRequest request;
  request.set_id(id);
  auto* tensor = request.add_inputs();
  tensor->set_name("text_input");
  tensor->set_datatype("BYTES");
  tensor->add_shape(1);
  tensor->mutable_contents()->add_bytes_contents(text);
  (*request.mutable_parameters())["max_tokens"].set_int64_param(max_tokens);
  (*request.mutable_parameters())["seed"].set_int64_param(5);
  return request;
}

inference::ModelInferRequest StreamRequest(const std::string& text, int max_tokens,
                                           const std::string& id) {
  inference::ModelInferRequest request = InferRequest(text, max_tokens, id);
  auto* tensor = request.add_inputs();
  tensor->set_name("stream");
  tensor->set_datatype("BOOL");
  tensor->add_shape(1);
  tensor->mutable_contents()->add_bool_contents(true);
  return request;
}

class GatewayKserveTest : public GatewayTest {
 protected:
  void Start(int num_workers) {
    AddWorkers(num_workers);
    StartGateway();
    WaitForWorkers(static_cast<size_t>(num_workers));
    kserve_ = Service::NewStub(
        grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
  }
  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response) {
    grpc::ClientContext context;
    return kserve_->ModelInfer(&context, request, response);
  }
  // The text of the generation that the request asks for.
  std::string UndisturbedText(const std::string& text, uint32_t max_tokens) {
    v1::GenerateRequest request = Request(text, max_tokens);
    request.mutable_sampling()->set_seed(5);
    const Answer answer = Generate(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    std::string all;
    for (const auto& response : answer.responses) {
      for (const auto& delta : response.deltas()) all += delta.text();
    }
    return all;
  }

  std::unique_ptr<Service::Stub> kserve_;
};

TEST_F(GatewayKserveTest, OneAnswerIsThatOfGenerate) {
  Start(1);
  inference::ModelInferResponse response;
  const grpc::Status status = Infer(InferRequest("once", 30, "x"), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), "x");
  EXPECT_EQ(response.outputs(0).contents().bytes_contents(0), UndisturbedText("once", 30));
  EXPECT_THAT(response.outputs(1).contents().bytes_contents(0), ::testing::AnyOf("stop", "length"));
}

TEST_F(GatewayKserveTest, GenerationsOfAStreamRunBesideOneAnother) {
  Start(2);
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  constexpr int kNumber = 100;  // more than run at a time
  std::thread writer([&] {
    for (int i = 0; i < kNumber; ++i) {
      stream->Write(StreamRequest(absl::StrCat("text ", i), 20, absl::StrCat(i)));
    }
    stream->WritesDone();
  });
  std::map<std::string, std::string> texts;
  std::map<std::string, int> ends;
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    EXPECT_EQ(response.error_message(), "");
    const auto& infer = response.infer_response();
    texts[infer.id()] += infer.outputs(0).contents().bytes_contents(0);
    if (!infer.outputs(1).contents().bytes_contents(0).empty()) ++ends[infer.id()];
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(texts.size(), static_cast<size_t>(kNumber));
  for (int i = 0; i < kNumber; ++i) {
    const std::string id = absl::StrCat(i);
    EXPECT_EQ(texts[id], UndisturbedText(absl::StrCat("text ", i), 20)) << i;
    EXPECT_EQ(ends[id], 1) << i;
  }
}

TEST_F(GatewayKserveTest, AGenerationThatFailsLeavesTheOthers) {
  Start(1);
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  inference::ModelInferRequest wrong = StreamRequest("once", 20, "wrong");
  (*wrong.mutable_parameters())["top_p"].set_double_param(-1);
  inference::ModelInferRequest unknown = StreamRequest("once", 20, "unknown");
  (*unknown.mutable_parameters())["no_such"].set_double_param(1);
  for (const auto& request : {wrong, unknown, StreamRequest("once", 20, "right")}) {
    stream->Write(request);
  }
  stream->WritesDone();
  std::map<std::string, std::string> texts, errors;
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    const auto& infer = response.infer_response();
    if (!response.error_message().empty()) {
      errors[infer.id()] = response.error_message();
    } else {
      texts[infer.id()] += infer.outputs(0).contents().bytes_contents(0);
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(texts["right"], UndisturbedText("once", 20));
  EXPECT_THAT(errors["wrong"], HasSubstr("top_p"));
  EXPECT_THAT(errors["unknown"], HasSubstr("no_such"));
}

// A request that is refused, with an id of a thousand bytes that its error repeats.
inference::ModelInferRequest RefusedRequest(int number) {
  inference::ModelInferRequest request;
  request.set_id(absl::StrCat(number, std::string(1000, 'i')));
  return request;
}

TEST_F(GatewayKserveTest, AClientThatReadsNoErrorsIsNotReadFrom) {
  Start(1);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(2)));
  auto stream = kserve_->ModelStreamInfer(&context);
  constexpr int kNumber = 50000;  // far more than windows and buffers take
  int written = 0;
  while (written < kNumber && stream->Write(RefusedRequest(written))) ++written;
  EXPECT_LT(written, kNumber);
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(GatewayKserveTest, AClientThatReadsLateHasAllErrors) {
  Start(1);
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  constexpr int kNumber = 2000;
  absl::Notification begun;
  std::thread writer([&] {
    for (int i = 0; i < kNumber; ++i) {
      EXPECT_TRUE(stream->Write(RefusedRequest(i))) << i;
      if (i == 0) begun.Notify();
    }
    stream->WritesDone();
  });
  begun.WaitForNotification();
  inference::ModelStreamInferResponse response;
  for (int i = 0; i < kNumber; ++i) {
    ASSERT_TRUE(stream->Read(&response)) << i;
    EXPECT_THAT(response.error_message(), HasSubstr("text_input"));
    EXPECT_EQ(response.infer_response().id(), RefusedRequest(i).id());
  }
  EXPECT_FALSE(stream->Read(&response));
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GatewayKserveTest, AnErrorOfAStreamIsNoLongerThanOneOfACall) {
  Start(1);
  inference::ModelInferRequest request = StreamRequest("once", 20, "i");
  request.mutable_inputs(1)->set_name(std::string(size_t{5} << 20, 'n'));
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(request));
  stream->WritesDone();
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_NE(response.error_message(), "");
  EXPECT_LE(response.error_message().size(), 1024u);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GatewayKserveTest, BytesThatAreNoRequestAreRefused) {
  Start(1);
  std::string response;
  const grpc::Status status =
      CallRaw("/inference.GRPCInferenceService/ModelInfer", "\xff\xff", &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  inference::ModelInferResponse infer;
  EXPECT_EQ(Infer(StreamRequest("once", 5, ""), &infer).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(NumCalls(), 0u);
}

TEST_F(GatewayKserveTest, AClientThatGoesAwayEndsItsGenerations) {
  Start(1);
  workers_[0]->SetScript([this](const FakeWorker::Call& call, int) -> std::optional<absl::Status> {
    while (!call.is_cancelled() && !release_.HasBeenNotified()) std::this_thread::yield();
    return std::nullopt;
  });
  auto context = std::make_unique<grpc::ClientContext>();
  auto stream = kserve_->ModelStreamInfer(context.get());
  for (int i = 0; i < 3; ++i) stream->Write(StreamRequest("once", 20, absl::StrCat(i)));
  while (NumCalls() < 3) std::this_thread::yield();
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(workers_[0]->WaitForCalls([](const std::vector<FakeWorker::Call>& calls) {
    return std::ranges::all_of(calls, &FakeWorker::Call::cancelled);
  }));
  release_.Notify();
}

TEST_F(GatewayKserveTest, WhatIsServedIsTold) {
  Start(1);
  const std::string model = ListModels().models(0).name();
  const auto call = [&](auto method, const auto& request, auto response) {
    grpc::ClientContext context;
    const grpc::Status status = ((*kserve_).*method)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  EXPECT_TRUE(call(&Service::Stub::ServerLive, inference::ServerLiveRequest(),
                   inference::ServerLiveResponse())
                  .live());
  EXPECT_TRUE(call(&Service::Stub::ServerReady, inference::ServerReadyRequest(),
                   inference::ServerReadyResponse())
                  .ready());
  EXPECT_EQ(call(&Service::Stub::ServerMetadata, inference::ServerMetadataRequest(),
                 inference::ServerMetadataResponse())
                .name(),
            "continuo");
  inference::ModelReadyRequest ready;
  ready.set_name(model);
  EXPECT_TRUE(call(&Service::Stub::ModelReady, ready, inference::ModelReadyResponse()).ready());
  ready.set_version("3");
  EXPECT_FALSE(call(&Service::Stub::ModelReady, ready, inference::ModelReadyResponse()).ready());
  inference::ModelMetadataRequest metadata;
  metadata.set_name(model);
  const auto told =
      call(&Service::Stub::ModelMetadata, metadata, inference::ModelMetadataResponse());
  EXPECT_EQ(told.inputs(0).name(), "text_input");
  EXPECT_EQ(told.outputs(0).name(), "text_output");
  metadata.set_name("other");
  grpc::ClientContext context;
  inference::ModelMetadataResponse none;
  EXPECT_EQ(kserve_->ModelMetadata(&context, metadata, &none).error_code(),
            grpc::StatusCode::NOT_FOUND);
  const auto index = call(&Service::Stub::RepositoryIndex, inference::RepositoryIndexRequest(),
                          inference::RepositoryIndexResponse());
  ASSERT_EQ(index.models_size(), 1);
  EXPECT_EQ(index.models(0).name(), model);
  EXPECT_EQ(index.models(0).state(), "READY");
}

}  // namespace
}  // namespace continuo::gateway
