// SPDX-License-Identifier: Apache-2.0
// The fields of config.json that describe experts and latent vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/model/description/config.h"

namespace continuo::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Of(const std::string& architecture, const json& fields) {
  json config = {{"architectures", {architecture}},
                 {"hidden_size", 64},
                 {"intermediate_size", 172},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 8},
                 {"vocab_size", 512},
                 {"max_position_embeddings", 2048}};
  config.update(fields);
  return config;
}

ModelConfig Parsed(const json& config) {
  auto parsed = ParseModelConfig(config.dump(), "");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *std::move(parsed) : ModelConfig();
}

std::string Error(const json& config) {
  const auto parsed = ParseModelConfig(config.dump(), "");
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

const json kDeepSeek = {
    {"n_routed_experts", 16}, {"num_experts_per_tok", 4}, {"moe_intermediate_size", 32},
    {"n_shared_experts", 2},  {"kv_lora_rank", 24},       {"q_lora_rank", 40},
    {"qk_nope_head_dim", 12}, {"qk_rope_head_dim", 4},    {"v_head_dim", 8}};

TEST(ExpertFieldsTest, GptOssHasBiasesAndSinks) {
  const ModelConfig config =
      Parsed(Of("GptOssForCausalLM", {{"num_local_experts", 16}, {"num_experts_per_tok", 4}}));
  const ExpertsConfig& experts = config.experts;
  EXPECT_EQ(experts.num_experts, 16);
  EXPECT_EQ(experts.intermediate_size, 172);
  EXPECT_TRUE(experts.biases && experts.normalise);
  EXPECT_FALSE(experts.by_sigmoid || experts.correction);
  EXPECT_THAT(experts.layers, ::testing::Each(true));
  EXPECT_TRUE(config.sinks && config.qkv_bias && config.output_bias);
  EXPECT_EQ(config.activation, Activation::kClampedSwiglu);
  EXPECT_THAT(config.windows, ElementsAre(128, 0, 128, 0));
  EXPECT_THAT(Error(Of("GptOssForCausalLM", {{"swiglu_limit", 5.0}})), HasSubstr("swiglu_limit"));
}

TEST(ExpertFieldsTest, Llama4WeighsTheInputsOfSomeLayersExperts) {
  json fields = {{"intermediate_size_mlp", 96}, {"interleave_moe_layer_step", 2}};
  const ModelConfig config = Parsed(Of("Llama4ForCausalLM", fields));
  const ExpertsConfig& experts = config.experts;
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(experts.intermediate_size, 172);
  EXPECT_EQ(experts.shared_size, 172);
  EXPECT_EQ(experts.per_token, 1);
  EXPECT_TRUE(experts.by_sigmoid && experts.chooses_by_logits && experts.weighs_inputs);
  EXPECT_FALSE(experts.normalise || experts.correction || experts.shared_gate);
  EXPECT_THAT(experts.layers, ElementsAre(false, true, false, true));
  fields["moe_layers"] = {0, 3};
  EXPECT_THAT(Parsed(Of("Llama4ForCausalLM", fields)).experts.layers,
              ElementsAre(true, false, false, true));
  fields["moe_layers"] = {0, 4};
  EXPECT_THAT(Error(Of("Llama4ForCausalLM", fields)),
              AllOf(HasSubstr("moe_layers"), HasSubstr("each from 0 to 3")));
}

TEST(ExpertFieldsTest, DeepSeekV3ChoosesFromGroupsByCorrectedSigmoids) {
  const json fields = {{"n_group", 4}, {"topk_group", 2}, {"routed_scaling_factor", 2.5}};
  json config = Of("DeepseekV3ForCausalLM", kDeepSeek);
  config.update(fields);
  const ExpertsConfig experts = Parsed(config).experts;
  EXPECT_TRUE(experts.by_sigmoid && experts.correction && experts.normalise && experts.by_top_two);
  EXPECT_EQ(experts.num_groups, 4);
  EXPECT_EQ(experts.top_groups, 2);
  EXPECT_EQ(experts.factor, 2.5);
  EXPECT_EQ(experts.shared_size, 64);
  EXPECT_FALSE(experts.shared_gate);
  EXPECT_THAT(experts.layers, ElementsAre(false, false, false, true));  // three are dense
  config["first_k_dense_replace"] = 1;
  EXPECT_THAT(Parsed(config).experts.layers, ElementsAre(false, true, true, true));
  config["n_group"] = 3;
  EXPECT_THAT(Error(config), AllOf(HasSubstr("n_group"), HasSubstr("16")));
  config["n_group"] = 4;
  config["topk_group"] = 5;
  EXPECT_THAT(Error(config), HasSubstr("topk_group"));
  config["n_group"] = 16;
  config["topk_group"] = 3;  // of one expert each, fewer than a token's four
  EXPECT_THAT(Error(config), HasSubstr("topk_group"));
  config["topk_group"] = 4;
  config["topk_method"] = "unheard";
  EXPECT_THAT(Error(config), HasSubstr("topk_method"));
}

TEST(ExpertFieldsTest, DeepSeekV2HasGroupsWhereItSaysSo) {
  json config = Of("DeepseekV2ForCausalLM", kDeepSeek);
  config.update({{"n_group", 4}, {"topk_group", 2}, {"topk_method", "greedy"}});
  EXPECT_EQ(Parsed(config).experts.num_groups, 1);
  config["topk_method"] = "group_limited_greedy";
  const ExpertsConfig experts = Parsed(config).experts;
  EXPECT_EQ(experts.num_groups, 4);
  EXPECT_FALSE(experts.by_sigmoid || experts.correction || experts.by_top_two || experts.normalise);
  config["norm_topk_prob"] = true;
  EXPECT_THAT(Error(config), HasSubstr("norm_topk_prob"));
}

TEST(ExpertFieldsTest, SharedExpertsAreCountedOrMeasured) {
  const json sizes = {{"num_experts", 6}, {"moe_intermediate_size", 20}};
  json config = Of("Qwen2MoeForCausalLM", sizes);
  EXPECT_EQ(Parsed(config).experts.shared_size, 5632);
  config["shared_expert_intermediate_size"] = 28;
  EXPECT_EQ(Parsed(config).experts.shared_size, 28);
  EXPECT_TRUE(Parsed(config).experts.shared_gate);
  config = Of("GraniteMoeSharedForCausalLM", {{"shared_intermediate_size", 30}});
  EXPECT_EQ(Parsed(config).experts.shared_size, 30);
  EXPECT_FALSE(Parsed(config).experts.shared_gate);
  EXPECT_EQ(Parsed(Of("GraniteMoeForCausalLM", json::object())).experts.shared_size, 0);
  config = Of("Ernie4_5_MoeForCausalLM", {{"moe_intermediate_size", 20}});
  EXPECT_EQ(Parsed(config).experts.shared_size, 40);
}

TEST(ExpertFieldsTest, LayersWithExpertsAreCountedOrListed) {
  json config = Of("Ernie4_5_MoeForCausalLM", {{"moe_layer_interval", 2}});
  EXPECT_THAT(Parsed(config).experts.layers, ElementsAre(false, true, false, true));
  config.update({{"moe_layer_interval", 1}, {"moe_layer_end_index", 2}});
  EXPECT_THAT(Parsed(config).experts.layers, ElementsAre(false, true, true, false));
  config = Of("Glm4MoeLiteForCausalLM", kDeepSeek);
  EXPECT_THAT(Parsed(config).experts.layers, ElementsAre(false, true, true, true));
  config["mlp_layer_types"] = {"dense", "dense", "sparse", "dense"};
  EXPECT_THAT(Parsed(config).experts.layers, ElementsAre(false, false, true, false));
  config["mlp_layer_types"] = {"dense", "dense", "sparse"};
  EXPECT_THAT(Error(config), AllOf(HasSubstr("mlp_layer_types"), HasSubstr("4 layers")));
  config["mlp_layer_types"] = {"dense", "dense", "sparse", "other"};
  EXPECT_THAT(Error(config), HasSubstr("known are dense and sparse"));
}

TEST(LatentFieldsTest, HeadsHaveRotatedAndOtherElements) {
  json config = Of("DeepseekV3ForCausalLM", kDeepSeek);
  config.update({{"n_group", 1}, {"topk_group", 1}, {"num_key_value_heads", 2}});
  const ModelConfig parsed = Parsed(config);
  EXPECT_TRUE(parsed.is_latent());
  EXPECT_EQ(parsed.head_dim, 16);
  EXPECT_EQ(parsed.rotary_dim, 4);
  EXPECT_EQ(parsed.value_dim(), 8);
  EXPECT_EQ(parsed.num_kv_heads, 8);
  EXPECT_EQ(parsed.attention_scale, 0.25);
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 40.0},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0},
                            {"original_max_position_embeddings", 64}};
  const ModelConfig scaled = Parsed(config);
  const double growth = 0.1 * std::log(40.0) + 1;
  EXPECT_NEAR(scaled.attention_scale, 0.25 * growth * growth, 1e-12);
  EXPECT_EQ(scaled.ropes[0].attention_factor, 1);
  config.erase("q_lora_rank");
  EXPECT_EQ(Parsed(config).latent.q_rank, 0);
  config["v_head_dim"] = 18;
  EXPECT_THAT(Error(config), AllOf(HasSubstr("v_head_dim"), HasSubstr("16")));
  config["v_head_dim"] = 8;
  config["qk_rope_head_dim"] = 5;
  EXPECT_THAT(Error(config), HasSubstr("qk_rope_head_dim"));
  config.erase("kv_lora_rank");
  EXPECT_THAT(Error(config), HasSubstr("kv_lora_rank"));
}

}  // namespace
}  // namespace continuo::model
