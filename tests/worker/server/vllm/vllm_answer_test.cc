// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
namespace engine_v1 = vllm::grpc::engine;

void AddLogprob(uint32_t id, float value, v1::TokenLogprob* logprob) {
  logprob->set_token_id(id);
  logprob->set_logprob(value);
  logprob->add_alternatives()->set_token_id(id + 100);
  logprob->mutable_alternatives(0)->set_logprob(value / 2);
}

v1::Delta& AddDelta(uint32_t index, const std::vector<uint32_t>& ids,
                    v1::GenerateResponse* response) {
  v1::Delta& delta = *response->add_deltas();
  delta.set_index(index);
  for (const uint32_t id : ids) {
    delta.add_token_ids(id);
    AddLogprob(id, -static_cast<float>(id), delta.add_logprobs());
  }
  return delta;
}

// The prompt as a worker tells it before the first token.
v1::GenerateResponse Prompt() {
  v1::GenerateResponse response;
  response.mutable_progress()->set_prompt_tokens(3);
  response.mutable_progress()->set_cached_prompt_tokens(2);
  for (const uint32_t id : {7, 8, 9}) response.add_prompt_tokens()->set_token_id(id);
  for (const uint32_t id : {8, 9}) AddLogprob(id, -1, response.add_prompt_logprobs());
  return response;
}

TEST(VllmAnswerTest, AStreamHasChunksAndAnEndForEachSequence) {
  VllmAnswer answer({.stream = true, .has_alternatives = true, .has_prompt_alternatives = true});
  v1::GenerateResponse accepted;
  accepted.mutable_accepted()->set_model("m");
  EXPECT_TRUE(answer.Add(accepted).empty());
  EXPECT_TRUE(answer.Add(Prompt()).empty());
  v1::GenerateResponse response;
  AddDelta(0, {1, 2}, &response);
  AddDelta(1, {3}, &response).set_finish_reason(v1::FINISH_REASON_LENGTH);
  std::vector<engine_v1::GenerateResponse> told = answer.Add(response);
  ASSERT_EQ(told.size(), 3u);
  const engine_v1::GenerateStreamChunk& chunk = told[0].chunk();
  EXPECT_THAT(chunk.token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(chunk.prompt_tokens(), 3u);
  EXPECT_EQ(chunk.cached_tokens(), 2u);
  EXPECT_EQ(chunk.completion_tokens(), 2u);
  EXPECT_THAT(chunk.output_logprobs().token_ids(), ElementsAre(1, 2));
  EXPECT_THAT(chunk.output_logprobs().token_logprobs(), ElementsAre(-1, -2));
  ASSERT_EQ(chunk.output_logprobs().top_logprobs_size(), 2);
  EXPECT_THAT(chunk.output_logprobs().top_logprobs(1).token_ids(), ElementsAre(102));
  const engine_v1::InputLogProbs& prompt = chunk.input_logprobs();
  EXPECT_THAT(prompt.token_ids(), ElementsAre(7, 8, 9));
  ASSERT_EQ(prompt.token_logprobs_size(), 3);
  EXPECT_FALSE(prompt.token_logprobs(0).has_value()) << "nothing comes before the first one";
  EXPECT_EQ(prompt.token_logprobs(2).value(), -1);
  ASSERT_EQ(prompt.top_logprobs_size(), 3);
  EXPECT_THAT(prompt.top_logprobs(2).values(), ElementsAre(-0.5));
  EXPECT_EQ(told[1].chunk().index(), 1u);
  EXPECT_TRUE(told[1].chunk().has_input_logprobs()) << "each sequence's first chunk has them";
  const engine_v1::GenerateComplete& end = told[2].complete();
  EXPECT_EQ(end.index(), 1u);
  EXPECT_EQ(end.finish_reason(), "length");
  EXPECT_THAT(end.output_ids(), ElementsAre(3));
  EXPECT_EQ(end.matched_stop_case(), engine_v1::GenerateComplete::MATCHED_STOP_NOT_SET);

  v1::GenerateResponse last;
  v1::Delta& delta = AddDelta(0, {5}, &last);
  delta.set_finish_reason(v1::FINISH_REASON_STOP);
  delta.set_stop_token_id(5);
  last.mutable_summary()->mutable_usage()->set_prompt_tokens(3);
  told = answer.Add(last);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_FALSE(told[0].chunk().has_input_logprobs());
  EXPECT_EQ(told[1].complete().finish_reason(), "stop");
  EXPECT_EQ(told[1].complete().matched_token_id(), 5u);
}

TEST(VllmAnswerTest, WithoutAStreamThereAreEndsAlone) {
  VllmAnswer answer({});
  v1::GenerateResponse response;
  AddDelta(0, {1, 2, 3}, &response).set_finish_reason(v1::FINISH_REASON_LENGTH);
  v1::Delta& other = AddDelta(1, {4}, &response);
  other.set_finish_reason(v1::FINISH_REASON_STOP);
  other.set_stop_sequence("END");
  response.mutable_summary()->mutable_usage()->set_prompt_tokens(6);
  response.mutable_summary()->mutable_usage()->set_cached_prompt_tokens(4);
  const std::vector<engine_v1::GenerateResponse> told = answer.Add(response);
  ASSERT_EQ(told.size(), 2u);
  const engine_v1::GenerateComplete& first = told[0].complete();
  EXPECT_THAT(first.output_ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(first.prompt_tokens(), 6u);
  EXPECT_EQ(first.cached_tokens(), 4u);
  EXPECT_EQ(first.completion_tokens(), 3u);
  EXPECT_EQ(first.output_logprobs().top_logprobs_size(), 0) << "no alternatives were asked for";
  EXPECT_FALSE(first.has_input_logprobs());
  EXPECT_EQ(told[1].complete().matched_stop_str(), "END");
}

TEST(VllmAnswerTest, AVectorHasItsLength) {
  v1::EmbedResponse response;
  for (const float value : {1.0f, 2.0f}) {
    if (response.embeddings().empty()) response.add_embeddings();
    response.mutable_embeddings(0)->add_values(value);
  }
  response.mutable_usage()->set_prompt_tokens(5);
  const engine_v1::EmbedResponse answer = ToVllm(response);
  EXPECT_THAT(answer.embedding(), ElementsAre(1, 2));
  EXPECT_EQ(answer.embedding_dim(), 2u);
  EXPECT_EQ(answer.prompt_tokens(), 5u);
}

}  // namespace
}  // namespace continuo::server
