// SPDX-License-Identifier: Apache-2.0
// vllm.grpc.engine beside InferenceService at one worker.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "vllm/vllm_engine.grpc.pb.h"

namespace continuo::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
namespace engine_v1 = vllm::grpc::engine;

class VllmServiceTest : public WorkerServerTest {
 protected:
  VllmServiceTest()
      : vllm_(engine_v1::VllmEngine::NewStub(
            grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()))) {}

  // The same request as BaseRequest with greedy sampling, as vLLM's clients send it.
  static engine_v1::GenerateRequest VllmRequest(bool stream) {
    engine_v1::GenerateRequest request;
    request.set_text("hello world");
    request.set_stream(stream);
    request.mutable_sampling_params()->set_temperature(1);
    request.mutable_sampling_params()->set_seed(4);
    request.mutable_sampling_params()->set_max_tokens(20);
    request.mutable_sampling_params()->set_ignore_eos(true);
    return request;
  }
  std::vector<engine_v1::GenerateResponse> Ask(const engine_v1::GenerateRequest& request,
                                               absl::Status* status = nullptr) {
    grpc::ClientContext context;
    auto reader = vllm_->Generate(&context, request);
    std::vector<engine_v1::GenerateResponse> responses;
    engine_v1::GenerateResponse response;
    while (reader->Read(&response)) responses.push_back(response);
    const absl::Status end = common::FromGrpcStatus(reader->Finish());
    if (status != nullptr) {
      *status = end;
    } else {
      EXPECT_TRUE(end.ok()) << end;
    }
    return responses;
  }

  const std::unique_ptr<engine_v1::VllmEngine::Stub> vllm_;
};

TEST_F(VllmServiceTest, TokensAreThoseOfInferenceService) {
  Serve();
  const std::vector<uint32_t> expected = Generate(BaseRequest()).sequences.at(0).ids;
  ASSERT_THAT(expected, SizeIs(20));
  std::vector<uint32_t> streamed;
  const auto stream = Ask(VllmRequest(true));
  for (const engine_v1::GenerateResponse& response : stream) {
    streamed.insert(streamed.end(), response.chunk().token_ids().begin(),
                    response.chunk().token_ids().end());
  }
  EXPECT_EQ(streamed, expected);
  ASSERT_TRUE(stream.back().has_complete());
  EXPECT_EQ(stream.back().complete().finish_reason(), "length");
  EXPECT_EQ(stream.back().complete().prompt_tokens(), 2u);
  const auto whole = Ask(VllmRequest(false));
  ASSERT_THAT(whole, SizeIs(1));
  EXPECT_EQ(std::vector<uint32_t>(whole[0].complete().output_ids().begin(),
                                  whole[0].complete().output_ids().end()),
            expected);
}

TEST_F(VllmServiceTest, SeveralSequencesAndLogProbabilitiesCome) {
  Serve();
  engine_v1::GenerateRequest request = VllmRequest(true);
  request.mutable_sampling_params()->set_n(3);
  request.mutable_sampling_params()->set_logprobs(2);
  request.mutable_sampling_params()->set_prompt_logprobs(0);
  std::vector<size_t> tokens(3), logprobs(3), ends(3), prompts(3);
  for (const engine_v1::GenerateResponse& response : Ask(request)) {
    if (response.has_complete()) {
      ++ends[response.complete().index()];
      continue;
    }
    const engine_v1::GenerateStreamChunk& chunk = response.chunk();
    tokens[chunk.index()] += static_cast<size_t>(chunk.token_ids_size());
    logprobs[chunk.index()] += static_cast<size_t>(chunk.output_logprobs().top_logprobs_size());
    prompts[chunk.index()] += static_cast<size_t>(chunk.input_logprobs().token_ids_size());
  }
  EXPECT_THAT(tokens, ElementsAre(20, 20, 20));
  EXPECT_THAT(logprobs, ElementsAre(20, 20, 20));
  EXPECT_THAT(ends, ElementsAre(1, 1, 1));
  EXPECT_THAT(prompts, ElementsAre(2, 2, 2));
}

TEST_F(VllmServiceTest, AVectorIsThatOfInferenceService) {
  server::ServedModel model = MakeServedModel(text_.get());
  model.max_context_tokens = 4000;
  model.embedding = *embedding::EmbeddingHead::Load("/nowhere", {}, kFakeStateSize);
  server_->Serve(std::move(model),
                 {.num_blocks = 4096, .block_size = 4, .vocab_size = kVocab, .reads_states = true},
                 &executor_, [](const absl::Status& status) { ADD_FAILURE() << status; });
  engine_v1::EmbedRequest request;
  request.set_request_id("mine");
  v1::EmbedRequest ours;
  for (const uint32_t id : {104u, 105u, 33u, 104u}) {
    request.mutable_tokenized()->add_input_ids(id);
    if (ours.inputs().empty()) ours.add_inputs();
    ours.mutable_inputs(0)->mutable_token_ids()->add_ids(id);
  }
  const auto embed = [&](engine_v1::EmbedResponse* response) {
    grpc::ClientContext context;
    return common::FromGrpcStatus(vllm_->Embed(&context, request, response));
  };
  engine_v1::EmbedResponse response;
  absl::Status status = embed(&response);
  ASSERT_TRUE(status.ok()) << status;
  v1::EmbedResponse expected;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(inference_->Embed(&context, ours, &expected).ok());
  }
  const auto& values = expected.embeddings(0).values();
  EXPECT_EQ(std::vector<float>(response.embedding().begin(), response.embedding().end()),
            std::vector<float>(values.begin(), values.end()));
  engine::Request asked;
  asked.prompt = {104, 105, 33, 104};
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), FakeState(asked));
  EXPECT_EQ(response.embedding_dim(), static_cast<uint32_t>(kFakeStateSize));
  EXPECT_EQ(response.prompt_tokens(), 4u);
  // Errors name its fields.
  request.mutable_tokenized()->add_input_ids(1 << 20);
  status = embed(&response);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(status), "tokenized.input_ids[4]");
  // A model that embeds generates nothing.
  Ask(VllmRequest(false), &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
}

TEST_F(VllmServiceTest, ErrorsNameItsOwnFields) {
  Serve();
  engine_v1::GenerateRequest request = VllmRequest(true);
  request.mutable_sampling_params()->set_top_p(2);
  absl::Status status;
  EXPECT_THAT(Ask(request, &status), SizeIs(0));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(status), "sampling_params.top_p");
  request = VllmRequest(false);
  request.mutable_tokenized()->add_input_ids(1 << 20);
  Ask(request, &status);
  EXPECT_EQ(protocol::FieldOf(status), "tokenized.input_ids[0]");
  // What it does not know is refused as well.
  request = VllmRequest(false);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  Ask(request, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(VllmServiceTest, ARequestIsAbortedByItsId) {
  Serve();
  engine_v1::GenerateRequest request = VllmRequest(true);
  request.set_request_id("mine");
  request.mutable_sampling_params()->set_max_tokens(3000);
  executor_.SetOpen(false);
  grpc::ClientContext context;
  auto reader = vllm_->Generate(&context, request);
  engine_v1::AbortRequest abort;
  abort.add_request_ids("mine");
  abort.add_request_ids("nobody's");
  // It is there once its call has come.
  WaitUntil([&] { return server_->runtime().registry.size() == 1; });
  {
    grpc::ClientContext aborting;
    engine_v1::AbortResponse response;
    EXPECT_TRUE(vllm_->Abort(&aborting, abort, &response).ok());
  }
  executor_.SetOpen(true);
  engine_v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(VllmServiceTest, WorkerAndModelAreTold) {
  engine_v1::HealthCheckResponse health;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(vllm_->HealthCheck(&context, {}, &health).ok());
    EXPECT_FALSE(health.healthy()) << "it loads";
    EXPECT_NE(health.message(), "");
  }
  {
    grpc::ClientContext context;
    engine_v1::GetModelInfoResponse info;
    EXPECT_EQ(vllm_->GetModelInfo(&context, {}, &info).error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  Serve();
  {
    grpc::ClientContext context;
    ASSERT_TRUE(vllm_->HealthCheck(&context, {}, &health).ok());
    EXPECT_TRUE(health.healthy());
  }
  {
    grpc::ClientContext context;
    engine_v1::GetModelInfoResponse info;
    ASSERT_TRUE(vllm_->GetModelInfo(&context, {}, &info).ok());
    EXPECT_EQ(info.vocab_size(), static_cast<uint32_t>(kVocab));
  }
  {
    grpc::ClientContext context;
    engine_v1::GetServerInfoResponse info;
    ASSERT_TRUE(vllm_->GetServerInfo(&context, {}, &info).ok());
    EXPECT_EQ(info.server_type(), "vllm-grpc");
    EXPECT_GT(info.block_size(), 0);
  }
  grpc::ClientContext context;
  engine_v1::GetLoadsResponse loads;
  ASSERT_TRUE(vllm_->GetLoads(&context, {}, &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_GT(loads.loads(0).max_total_num_tokens(), 0);
}

}  // namespace
}  // namespace continuo::testing
