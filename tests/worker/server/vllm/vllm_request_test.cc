// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "services/protocol/error.h"

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
namespace engine_v1 = vllm::grpc::engine;

engine_v1::GenerateRequest Tokens() {
  engine_v1::GenerateRequest request;
  request.set_request_id("r");
  for (const uint32_t id : {5, 6, 7}) request.mutable_tokenized()->add_input_ids(id);
  return request;
}

v1::GenerateRequest Read(const engine_v1::GenerateRequest& request) {
  const auto read = ReadVllmGenerate(request);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.value_or(v1::GenerateRequest());
}

TEST(VllmRequestTest, WithoutParametersTheyAreVllms) {
  const v1::GenerateRequest request = Read(Tokens());
  EXPECT_EQ(request.request_id(), "r");
  EXPECT_EQ(request.model(), "");
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(5, 6, 7));
  const v1::Sampling& sampling = request.sampling();
  // All are set, so that none is the model's own.
  EXPECT_TRUE(sampling.has_temperature() && sampling.has_top_k() && sampling.has_min_p());
  EXPECT_EQ(sampling.temperature(), 1);
  EXPECT_EQ(sampling.top_p(), 1);
  EXPECT_EQ(sampling.top_k(), 0u);
  EXPECT_EQ(sampling.repetition_penalty(), 1);
  EXPECT_EQ(sampling.num_sequences(), 1u);
  EXPECT_FALSE(sampling.has_seed());
  EXPECT_FALSE(request.stopping().has_max_tokens());
  EXPECT_FALSE(request.has_constraint());
  EXPECT_TRUE(request.output().collect());
  EXPECT_FALSE(request.output().progress());
}

TEST(VllmRequestTest, EveryParameterIsRead) {
  engine_v1::GenerateRequest asked = Tokens();
  asked.set_text("once");
  asked.set_stream(true);
  engine_v1::SamplingParams& p = *asked.mutable_sampling_params();
  p.set_temperature(0);
  p.set_top_p(0.5f);
  p.set_top_k(3);
  p.set_min_p(0.25f);
  p.set_frequency_penalty(-1);
  p.set_presence_penalty(1);
  p.set_repetition_penalty(1.5f);
  p.set_max_tokens(9);
  p.set_min_tokens(2);
  p.add_stop("END");
  p.add_stop_token_ids(8);
  p.set_ignore_eos(true);
  p.set_n(4);
  p.set_seed(-1);
  p.set_include_stop_str_in_output(true);
  (*p.mutable_logit_bias())[3] = -2;
  p.set_logprobs(2);
  p.set_prompt_logprobs(1);
  p.set_truncate_prompt_tokens(100);
  p.set_regex("a+");
  const v1::GenerateRequest request = Read(asked);
  EXPECT_EQ(request.text(), "once");
  const v1::Sampling& sampling = request.sampling();
  EXPECT_EQ(sampling.temperature(), 0);
  EXPECT_EQ(sampling.top_p(), 0.5f);
  EXPECT_EQ(sampling.top_k(), 3u);
  EXPECT_EQ(sampling.min_p(), 0.25f);
  EXPECT_EQ(sampling.frequency_penalty(), -1);
  EXPECT_EQ(sampling.presence_penalty(), 1);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.num_sequences(), 4u);
  EXPECT_EQ(sampling.seed(), ~uint64_t{0});
  EXPECT_EQ(sampling.logit_bias().at(3), -2);
  EXPECT_EQ(request.stopping().max_tokens(), 9u);
  EXPECT_EQ(request.stopping().min_tokens(), 2u);
  EXPECT_THAT(request.stopping().strings(), ElementsAre("END"));
  EXPECT_THAT(request.stopping().token_ids(), ElementsAre(8));
  EXPECT_TRUE(request.stopping().ignore_eos() && request.stopping().include_stop());
  EXPECT_EQ(request.output().logprobs(), 2u);
  EXPECT_EQ(request.output().prompt_logprobs(), 1u);
  EXPECT_TRUE(request.output().prompt_tokens());
  EXPECT_TRUE(request.output().progress());
  EXPECT_FALSE(request.output().collect());
  EXPECT_EQ(request.truncation().max_tokens(), 100u);
  EXPECT_EQ(request.constraint().regex(), "a+");
}

TEST(VllmRequestTest, ConstraintsAreRead) {
  const auto constraint = [](const std::function<void(engine_v1::SamplingParams*)>& set) {
    engine_v1::GenerateRequest request = Tokens();
    set(request.mutable_sampling_params());
    return Read(request).constraint();
  };
  EXPECT_EQ(constraint([](auto* p) { p->set_json_schema("{}"); }).json_schema(), "{}");
  EXPECT_EQ(constraint([](auto* p) { p->set_grammar("start: \"a\""); }).lark(), "start: \"a\"");
  EXPECT_TRUE(constraint([](auto* p) { p->set_json_object(true); }).json_object());
  EXPECT_THAT(constraint([](auto* p) { p->mutable_choice()->add_choices("a"); }).choice().options(),
              ElementsAre("a"));
  EXPECT_TRUE(constraint([](auto* p) { p->mutable_choice(); }).has_choice());
}

TEST(VllmRequestTest, WhatIsNotDoneHereIsRefusedByName) {
  const auto refused = [](const std::function<void(engine_v1::GenerateRequest*)>& set) {
    engine_v1::GenerateRequest request = Tokens();
    set(&request);
    return protocol::FieldOf(ReadVllmGenerate(request).status());
  };
  const auto parameter = [&](const std::function<void(engine_v1::SamplingParams*)>& set) {
    return refused([&](auto* r) { set(r->mutable_sampling_params()); });
  };
  EXPECT_EQ(refused([](auto* r) { r->set_mm_inputs("x"); }), "mm_inputs");
  EXPECT_EQ(refused([](auto* r) { r->add_extra_mm_inputs("x"); }), "extra_mm_inputs");
  EXPECT_EQ(refused([](auto* r) { r->set_media_refs("x"); }), "media_refs");
  EXPECT_EQ(refused([](auto* r) { r->set_kv_transfer_params("x"); }), "kv_transfer_params");
  EXPECT_EQ(refused([](auto* r) { r->set_kv_transfer_params_json("{}"); }),
            "kv_transfer_params_json");
  EXPECT_EQ(refused([](auto* r) { r->set_data_parallel_rank(1); }), "data_parallel_rank");
  EXPECT_EQ(refused([](auto* r) { r->set_data_parallel_rank(0); }), "");
  EXPECT_EQ(parameter([](auto* p) { p->set_structural_tag("x"); }),
            "sampling_params.structural_tag");
  EXPECT_EQ(parameter([](auto* p) { p->set_logprobs(-1); }), "sampling_params.logprobs");
  EXPECT_EQ(parameter([](auto* p) { p->set_prompt_logprobs(-1); }),
            "sampling_params.prompt_logprobs");
  EXPECT_EQ(parameter([](auto* p) { p->set_prompt_logprobs(1 << 18); }),
            "sampling_params.prompt_logprobs");
  EXPECT_EQ(parameter([](auto* p) { (*p->mutable_logit_bias())[-1] = 1; }),
            "sampling_params.logit_bias");
  EXPECT_EQ(parameter([](auto* p) { p->set_truncate_prompt_tokens(0); }),
            "sampling_params.truncate_prompt_tokens");
  EXPECT_EQ(parameter([](auto* p) { p->set_truncate_prompt_tokens(-2); }),
            "sampling_params.truncate_prompt_tokens");
  EXPECT_EQ(parameter([](auto* p) { p->set_truncate_prompt_tokens(-1); }), "");
}

TEST(VllmRequestTest, ErrorsNameTheFieldsThatTheClientSent) {
  const auto named = [](const std::string& field) {
    const absl::Status status = WithVllmField(protocol::FieldError(field, "is too large"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), protocol::FieldOf(status) + ": is too large");
    return protocol::FieldOf(status);
  };
  EXPECT_EQ(named("sampling.top_p"), "sampling_params.top_p");
  EXPECT_EQ(named("sampling.num_sequences"), "sampling_params.n");
  EXPECT_EQ(named("stopping.max_tokens"), "sampling_params.max_tokens");
  EXPECT_EQ(named("stopping.strings[0]"), "sampling_params.stop[0]");
  EXPECT_EQ(named("token_ids.ids[2]"), "tokenized.input_ids[2]");
  EXPECT_EQ(named("constraint.json_schema"), "sampling_params.json_schema");
  EXPECT_EQ(named("inputs[0].token_ids.ids[1]"), "tokenized.input_ids[1]");
  EXPECT_EQ(named("text"), "text");
  EXPECT_EQ(named("stoppings"), "stoppings");
  EXPECT_EQ(WithVllmField(absl::OkStatus()), absl::OkStatus());
  EXPECT_EQ(WithVllmField(absl::UnavailableError("x")), absl::UnavailableError("x"));
}

TEST(VllmRequestTest, AnInputIsEmbedded) {
  engine_v1::EmbedRequest asked;
  asked.set_request_id("r");
  asked.mutable_tokenized()->add_input_ids(4);
  const auto request = ReadVllmEmbed(asked);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request_id(), "r");
  ASSERT_EQ(request->inputs_size(), 1);
  EXPECT_THAT(request->inputs(0).token_ids().ids(), ElementsAre(4));
}

}  // namespace
}  // namespace continuo::server
