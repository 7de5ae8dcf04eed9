// SPDX-License-Identifier: Apache-2.0
// The fields that describe the mechanisms of families, and the fields that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "services/worker/model/description/family.h"
#include "services/worker/model/network/rope.h"
#include "tests/worker/model/description/config_cases.h"

namespace continuo::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MechanismsTest, YarnScalesLongWavesAndItsContext) {
  json config = With(Llama(), {{"max_position_embeddings", 32},
                               {"rope_theta", 100.0},
                               {"rope_scaling",
                                {{"type", "yarn"},
                                 {"factor", 4.0},
                                 {"original_max_position_embeddings", 8},
                                 {"beta_fast", 1.2},
                                 {"beta_slow", 0.05}}}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.context_length, 32);
  EXPECT_NEAR(parsed.ropes[0].attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  // Waves of 1, 100^-1/4 … turn 1.27, 0.40, 0.13, 0.04 times in 8 positions: the first stays, the
  // last is divided, and those in between are blended in equal steps from index 0 to 3.
  const std::vector<float> f = RopeFrequencies(parsed.ropes[0], 8, 32);
  for (int i = 0; i < 4; ++i) {
    const double whole = std::pow(100.0, -i / 4.0), keep = 1 - i / 3.0;
    EXPECT_NEAR(f[static_cast<size_t>(i)], keep * whole + (1 - keep) * whole / 4, 1e-6) << i;
  }
  // The context is that of the scaling also where the file states the one before.
  config["max_position_embeddings"] = 8;
  EXPECT_EQ(Parse(config)->context_length, 32);
  config["rope_scaling"]["mscale"] = 2.0;
  config["rope_scaling"]["mscale_all_dim"] = 1.0;
  EXPECT_NEAR(Parse(config)->ropes[0].attention_factor,
              (0.2 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1), 1e-12);
  config["rope_scaling"]["attention_factor"] = 1.5;
  EXPECT_EQ(Parse(config)->ropes[0].attention_factor, 1.5);
  config["rope_theta"] = 1.0;
  EXPECT_THAT(Error(config), HasSubstr("larger than 1"));
}

TEST(MechanismsTest, DynamicScalingIsNoneWithinTheContextOrAFixedTheta) {
  json config = With(Llama(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.ropes[0].type, RopeConfig::Type::kDefault);
  EXPECT_EQ(parsed.context_length, 2048);
  EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("dynamic")));
  config["rope_scaling"]["alpha"] = 1000.0;
  EXPECT_NEAR(Parse(config)->ropes[0].theta, 10000 * std::pow(1000.0, 8.0 / 6), 1e-3);
}

TEST(MechanismsTest, LayersHaveTheRopeOfTheirKind) {
  json config = With(Llama(), {{"architectures", {"Gemma3ForCausalLM"}},
                               {"sliding_window", 100},
                               {"sliding_window_pattern", 2},
                               {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  const ModelConfig older = *Parse(config);
  EXPECT_EQ(older.context_length, 2048);  // stated after scaling
  EXPECT_THAT(older.windows, ElementsAre(100, 0, 100, 0));
  EXPECT_EQ(older.rope(0).theta, 10000);
  EXPECT_EQ(older.rope(0).type, RopeConfig::Type::kDefault);
  EXPECT_EQ(older.rope(1).theta, 1e6);
  EXPECT_EQ(older.rope(1).factor, 8);
  config.erase("rope_scaling");
  config["rope_parameters"] = {
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 20.0}}},
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 30.0}}}};
  const ModelConfig newer = *Parse(config);
  EXPECT_EQ(newer.rope(2).theta, 20);
  EXPECT_EQ(newer.rope(3).theta, 30);
  EXPECT_EQ(newer.rope(3).factor, 8);
  config["rope_parameters"]["chunked_attention"] = {{"rope_theta", 1.0}};
  EXPECT_THAT(Error(config), HasSubstr("chunked_attention"));
}

TEST(MechanismsTest, WindowsFollowLayerTypesInEveryFamily) {
  for (const char* family : {"LlamaForCausalLM", "MistralForCausalLM", "GraniteForCausalLM"}) {
    const json config =
        With(Llama(),
             {{"architectures", {family}},
              {"sliding_window", 100},
              {"layer_types",
               {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}}});
    EXPECT_THAT(Parse(config)->windows, ElementsAre(0, 100, 0, 100)) << family;
  }
}

// Three of four layers are rotated, normalised and see chunks; the fourth sees everything, and its
// queries grow.
TEST(MechanismsTest, ChunksAndNormsAreThoseOfRotatedLayers) {
  json config = With(Llama(), {{"architectures", {"Llama4ForCausalLM"}},
                               {"attention_chunk_size", 100},
                               {"rope_scaling",
                                {{"rope_type", "llama3"},
                                 {"factor", 16.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 1.0},
                                 {"original_max_position_embeddings", 64}}}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_THAT(parsed.chunks, ElementsAre(100, 100, 100, 0));
  EXPECT_THAT(parsed.windows, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(parsed.chunk(1), 100);
  EXPECT_TRUE(parsed.has_rope(0) && !parsed.has_rope(3));
  EXPECT_EQ(parsed.qk_norm, QueryKeyNorm::kRotatedHeads);
  EXPECT_FALSE(parsed.qk_gains || parsed.norms_all_heads || parsed.has_plain_heads());
  EXPECT_EQ(parsed.query_growth, 0.1);
  EXPECT_EQ(parsed.query_growth_period, 8192);
  EXPECT_EQ(parsed.query_growth_offset, 1);
  EXPECT_TRUE(parsed.grows(parsed.rope(3)) && !parsed.grows(parsed.rope(0)));
  // Of factors that are equal no wave lies between them.
  const std::vector<float> frequencies = RopeFrequencies(parsed.ropes[0], 8, 2048);
  const std::vector<float> plain = RopeFrequencies({.theta = 5e5}, 8, 2048);
  EXPECT_EQ(frequencies.front(), plain.front());
  EXPECT_EQ(frequencies.back(), plain.back() / 16);

  EXPECT_THAT(Parse(With(config, {{"attention_chunk_size", nullptr}}))->chunks,
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Parse(With(config, {{"attention_chunk_size", 4096}}))->chunks,
              ElementsAre(0, 0, 0, 0));  // longer than the context
  EXPECT_THAT(Parse(With(config, {{"no_rope_layers", {0, 1, 0, 1}}}))->chunks,
              ElementsAre(0, 100, 0, 100));
  const json types = {"full_attention", "full_attention", "chunked_attention", "full_attention"};
  EXPECT_THAT(Parse(With(config, {{"layer_types", types}}))->chunks, ElementsAre(0, 0, 100, 0));
  EXPECT_EQ(Parse(With(config, {{"use_qk_norm", false}}))->qk_norm, QueryKeyNorm::kNone);
  for (const json& off : {json(false), json(0)}) {
    EXPECT_EQ(Parse(With(config, {{"attn_temperature_tuning", off}}))->query_growth, 0);
  }
  EXPECT_EQ(Parse(With(config, {{"attn_temperature_tuning", 4}}))->query_growth, 0.1);
  EXPECT_THAT(Error(With(config, {{"attn_temperature_tuning", "no"}})),
              HasSubstr("attn_temperature_tuning"));
  EXPECT_THAT(Error(With(config, {{"floor_scale", 0}})), HasSubstr("floor_scale"));
  EXPECT_THAT(Error(With(config, {{"attention_chunk_size", 0}})),
              HasSubstr("attention_chunk_size"));
  EXPECT_THAT(
      Error(With(config,
                 {{"layer_types",
                   {"sliding_attention", "full_attention", "full_attention", "full_attention"}}})),
      HasSubstr("known are full_attention and chunked_attention"));
}

json Gemma4() {
  return {{"architectures", {"Gemma4ForCausalLM"}},
          {"model_type", "gemma4_text"},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 6},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 16},
          {"global_head_dim", 32},
          {"vocab_size", 512},
          {"max_position_embeddings", 2048},
          {"sliding_window", 100},
          {"layer_types",
           {"sliding_attention", "full_attention", "sliding_attention", "full_attention",
            "sliding_attention", "sliding_attention"}}};
}

TEST(MechanismsTest, LayersWithoutWindowsHaveOtherHeads) {
  json config = Gemma4();
  const ModelConfig parsed = *Parse(config);
  // The last layer has none, whatever the list says.
  EXPECT_THAT(parsed.windows, ElementsAre(100, 0, 100, 0, 100, 0));
  EXPECT_THAT(parsed.other_heads.layers, ElementsAre(false, true, false, true, false, true));
  EXPECT_EQ(parsed.head_dim_of(0), 16);
  EXPECT_EQ(parsed.head_dim_of(1), 32);
  EXPECT_EQ(parsed.max_head_dim(), 32);
  EXPECT_EQ(parsed.other_heads.num_kv_heads, 4);
  EXPECT_FALSE(parsed.other_heads.values_are_keys || parsed.has_plain_heads());
  EXPECT_TRUE(parsed.value_norm && parsed.layer_scales);
  EXPECT_EQ(parsed.attention_scale, 1);
  EXPECT_EQ(parsed.embedding_scale, 8);
  EXPECT_EQ(parsed.per_layer_size, 256);
  EXPECT_EQ(parsed.num_kv_layers(), 6);
  // A quarter of the pairs of whole heads is rotated there.
  const RopeConfig &full = parsed.rope(1), &sliding = parsed.rope(0);
  EXPECT_EQ(full.type, RopeConfig::Type::kProportional);
  EXPECT_EQ(parsed.rotary_dim_of(full), 32);
  EXPECT_EQ(parsed.rotary_dim_of(sliding), 16);
  EXPECT_EQ(full.theta, 1e6);
  EXPECT_EQ(sliding.theta, 1e4);
  const std::vector<float> frequencies = RopeFrequencies(full, 32, 2048);
  const std::vector<float> plain = RopeFrequencies({.theta = 1e6}, 32, 2048);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(frequencies[i], i < 4 ? plain[i] : 0) << i;

  config.update({{"attention_k_eq_v", true}, {"num_global_key_value_heads", 2}});
  EXPECT_EQ(Parse(config)->other_heads.num_kv_heads, 2);
  EXPECT_TRUE(Parse(config)->other_heads.values_are_keys);
  EXPECT_THAT(Error(With(config, {{"num_global_key_value_heads", 3}})),
              HasSubstr("num_global_key_value_heads"));
  EXPECT_THAT(Error(With(config, {{"global_head_dim", 31}})), HasSubstr("global_head_dim"));
  // As transformers stores them.
  config.erase("global_head_dim");
  const json heads = {{"head_dim", 24}, {"num_key_value_heads", 1}};
  config["per_layer_config"] = {{"1", heads}, {"3", heads}, {"5", heads}};
  EXPECT_EQ(Parse(config)->other_heads.head_dim, 24);
  EXPECT_EQ(Parse(config)->other_heads.num_kv_heads, 1);
  for (const json& wrong :
       {json({{"1", heads}, {"3", heads}}), json({{"1", heads}, {"3", heads}, {"4", heads}}),
        json({{"1", heads}, {"3", heads}, {"5", {{"head_dim", 8}}}}),
        json({{"1", {{"hidden_size", 8}}},
              {"3", {{"hidden_size", 8}}},
              {"5", {{"hidden_size", 8}}}}),
        json({{"1", {{"head_dim", -2}}}, {"3", {{"head_dim", -2}}}, {"5", {{"head_dim", -2}}}}),
        json({{"1", 3}, {"3", 3}, {"5", 3}}), json(7)}) {
    EXPECT_THAT(Error(With(config, {{"per_layer_config", wrong}})), HasSubstr("per_layer_config"))
        << wrong;
  }
}

TEST(MechanismsTest, TheLastLayersReadTheKeysOfTheirKind) {
  json config = With(Gemma4(), {{"num_kv_shared_layers", 3},
                                {"use_double_wide_mlp", true},
                                {"hidden_size_per_layer_input", 0}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_THAT(parsed.kv_layers, ElementsAre(0, 1, 2, 1, 2, 1));
  EXPECT_EQ(parsed.num_kv_layers(), 3);
  EXPECT_TRUE(parsed.has_own_kv(2) && !parsed.has_own_kv(3));
  EXPECT_EQ(parsed.wide_size, 192);
  EXPECT_TRUE(parsed.has_wide_mlp(3) && !parsed.has_wide_mlp(2));
  EXPECT_EQ(parsed.per_layer_size, 0);
  EXPECT_EQ(Parse(With(config, {{"use_double_wide_mlp", false}}))->wide_size, 0);
  EXPECT_THAT(Error(With(config, {{"num_kv_shared_layers", 5}})),
              HasSubstr("no layer of the kind of layer 1"));
  EXPECT_THAT(Error(With(config, {{"num_kv_shared_layers", 6}})),
              HasSubstr("num_kv_shared_layers"));
  EXPECT_THAT(Error(With(Gemma4(), {{"vocab_size_per_layer_input", 500}})),
              HasSubstr("vocab_size_per_layer_input"));
  EXPECT_THAT(Error(With(config, {{"use_bidirectional_attention", "all"}})),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_TRUE(Parse(With(config, {{"use_bidirectional_attention", "vision"}})).ok());
}

TEST(MechanismsTest, ExpertsMayStandBesideADenseMlp) {
  json config =
      With(Gemma4(), {{"num_experts", 6}, {"top_k_experts", 2}, {"moe_intermediate_size", 20}});
  EXPECT_EQ(Parse(config)->experts.num_experts, 0);  // they are off
  config["enable_moe_block"] = true;
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.experts.num_experts, 6);
  EXPECT_EQ(parsed.experts.per_token, 2);
  EXPECT_EQ(parsed.experts.intermediate_size, 20);
  EXPECT_EQ(parsed.intermediate_size, 96);
  EXPECT_TRUE(parsed.experts.beside_dense && parsed.experts.normalise);
  EXPECT_THAT(parsed.experts.layers, ::testing::Each(true));
}

json Lfm2() {
  return {{"architectures", {"Lfm2ForCausalLM"}},
          {"model_type", "lfm2"},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4}};
}

TEST(MechanismsTest, ShortConvolutionsStandWhereLayersDoNotAttend) {
  json config = With(Lfm2(), {{"layer_types", {"conv", "full_attention", "conv"}}});
  ModelConfig parsed = *Parse(config);
  EXPECT_THAT(parsed.states.layers, ElementsAre(true, false, true));
  EXPECT_TRUE(parsed.has_states());
  EXPECT_EQ(parsed.states.conv_width, 3);
  EXPECT_EQ(parsed.num_kv_layers(), 1);
  EXPECT_TRUE(parsed.tied_embeddings);
  // Older files list the layers that attend, and none of the others.
  config = With(Lfm2(), {{"full_attn_idxs", {0, 2}}, {"tie_embedding", false}});
  parsed = *Parse(config);
  EXPECT_THAT(parsed.states.layers, ElementsAre(false, true, false));
  EXPECT_FALSE(parsed.tied_embeddings);
  // Without either all layers attend.
  EXPECT_FALSE(Parse(Lfm2())->has_states());
}

TEST(MechanismsTest, InnerColumnsOfLfm2AreTwoThirdsRoundedUp) {
  // ⌊2 · 96 / 3⌋ is 64.
  EXPECT_EQ(Parse(Lfm2())->intermediate_size, 256);
  EXPECT_EQ(Parse(With(Lfm2(), {{"block_multiple_of", 24}}))->intermediate_size, 72);
  EXPECT_EQ(Parse(With(Lfm2(), {{"block_multiple_of", 1}, {"block_ffn_dim_multiplier", 1.5}}))
                ->intermediate_size,
            96);
  json config = With(Lfm2(), {{"block_auto_adjust_ff_dim", false}});
  EXPECT_EQ(Parse(config)->intermediate_size, 96);
  config["block_ff_dim"] = 48;
  EXPECT_EQ(Parse(config)->intermediate_size, 48);
  config.erase("intermediate_size");
  EXPECT_EQ(Parse(config)->intermediate_size, 48);
}

TEST(MechanismsTest, ErrorsOfConvolutionsNameTheField) {
  const auto error = [](const json& changes) { return Error(With(Lfm2(), changes)); };
  EXPECT_THAT(error({{"layer_types", {"conv", "mamba", "conv"}}}), HasSubstr("layer_types"));
  EXPECT_THAT(error({{"layer_types", {"conv"}}}), HasSubstr("layer_types"));
  EXPECT_THAT(error({{"layer_types", {"conv", "conv", "conv"}}}), HasSubstr("full_attention"));
  EXPECT_THAT(error({{"full_attn_idxs", {3}}}), HasSubstr("full_attn_idxs"));
  EXPECT_THAT(error({{"full_attn_idxs", {-1}}}), HasSubstr("full_attn_idxs"));
  EXPECT_THAT(error({{"full_attn_idxs", "all"}}), HasSubstr("full_attn_idxs"));
  EXPECT_THAT(error({{"conv_L_cache", 1}}), HasSubstr("conv_L_cache"));
  EXPECT_THAT(error({{"conv_L_cache", 1000}}), HasSubstr("conv_L_cache"));
  EXPECT_THAT(error({{"block_multiple_of", 0}}), HasSubstr("block_multiple_of"));
  EXPECT_THAT(error({{"block_ffn_dim_multiplier", 999}, {"block_ff_dim", 1 << 20}}),
              HasSubstr("block_ffn_dim_multiplier"));
  EXPECT_THAT(error({{"use_pos_enc", false}}), HasSubstr("use_pos_enc"));
  EXPECT_THAT(error({{"full_attn_idxs", {1}}, {"head_dim", 24}}), HasSubstr("head_dim"));
}

TEST(MechanismsTest, TheTextPartOfAModelForImagesIsRead) {
  json text = With(Llama(), {{"model_type", "mistral"}, {"sliding_window", nullptr}});
  text.erase("architectures");
  json config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                 {"model_type", "mistral3"},
                 {"text_config", text},
                 {"vision_config", {{"hidden_size", 8}}},
                 {"spatial_merge_size", 2}};
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.architecture, "MistralForCausalLM");
  EXPECT_TRUE(parsed.is_text_part);
  EXPECT_FALSE(parsed.tied_embeddings);
  config["tie_word_embeddings"] = true;  // the whole model's word
  EXPECT_TRUE(Parse(config)->tied_embeddings);
  config["text_config"]["hidden_size"] = 0;
  EXPECT_THAT(Error(config), HasSubstr("text_config: hidden_size"));
  config["text_config"]["model_type"] = "unheard_text";
  EXPECT_THAT(Error(config), HasSubstr("unheard_text"));
  EXPECT_FALSE(Parse(Llama())->is_text_part);
}

TEST(MechanismsTest, FieldsThatNobodyReadsAreRefusedUnlessTheyAreOffOrAllowed) {
  EXPECT_THAT(Error(With(Llama(), {{"attention_sinks", 4}})),
              AllOf(HasSubstr("attention_sinks"), HasSubstr("allow_unread")));
  EXPECT_THAT(Error(With(Llama(), {{"rope_scaling",
                                    {{"type", "linear"}, {"factor", 2.0}, {"surprise", 1}}}})),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("surprise")));
  for (const json& off : {json(nullptr), json(false), json(""), json::array(), json::object()}) {
    EXPECT_TRUE(Parse(With(Llama(), {{"attention_sinks", off}})).ok()) << off;
  }
  for (const char* harmless : {"attention_dropout", "torch_dtype", "transformers_version",
                               "_name_or_path", "image_token_id", "initializer_range"}) {
    EXPECT_TRUE(Parse(With(Llama(), {{harmless, 7}})).ok()) << harmless;
  }
  const std::string text = With(Llama(), {{"attention_sinks", 4}, {"other", 1}}).dump();
  EXPECT_TRUE(ParseModelConfig(text, "", "attention_*,other").ok());
  EXPECT_FALSE(ParseModelConfig(text, "", "attention_*").ok());
  // A family's own fields are no other's.
  EXPECT_THAT(Error(With(Llama(), {{"residual_multiplier", 0.5}})),
              HasSubstr("residual_multiplier"));
  EXPECT_THAT(
      Error(With(Llama(), {{"architectures", {"Cohere2ForCausalLM"}}, {"use_qk_norm", true}})),
      HasSubstr("use_qk_norm"));
}

TEST(MechanismsTest, LayersWithTheDeltaRuleAreNamedByAListOrAPeriod) {
  const json qwen = With(Llama(), {{"architectures", {"Qwen3_5ForCausalLM"}}});
  const ModelConfig parsed = *Parse(qwen);
  EXPECT_THAT(parsed.states.layers, ElementsAre(true, true, true, false));
  EXPECT_EQ(parsed.states.num_heads, 32);
  EXPECT_EQ(parsed.rotary_dim, 64);
  EXPECT_TRUE(parsed.output_gate && parsed.gains_less_one);
  EXPECT_EQ(Parse(With(qwen, {{"full_attention_interval", 2}}))->num_state_layers(), 2);
  const json types = {"full_attention", "linear_attention", "full_attention", "full_attention"};
  EXPECT_THAT(Parse(With(qwen, {{"layer_types", types}}))->states.layers,
              ElementsAre(false, true, false, false));
  EXPECT_THAT(Error(With(qwen, {{"linear_num_key_heads", 5}})),
              HasSubstr("linear_num_value_heads"));
  EXPECT_THAT(Error(With(qwen, {{"full_attention_interval", 5}})), HasSubstr("full_attention"));
  EXPECT_THAT(Error(With(qwen, {{"linear_conv_kernel_dim", 1}})),
              HasSubstr("linear_conv_kernel_dim"));
  EXPECT_THAT(Error(With(qwen, {{"attn_output_gate", false}})), HasSubstr("attn_output_gate"));
  EXPECT_THAT(Error(With(qwen, {{"layer_types", {"conv", "conv", "conv", "full_attention"}}})),
              HasSubstr("linear_attention"));
}

TEST(MechanismsTest, SizesOfAStateSpaceAreThoseOfGranite) {
  const json granite = With(Llama(), {{"architectures", {"GraniteMoeHybridForCausalLM"}},
                                      {"layer_types", {"mamba", "attention", "mamba", "mamba"}},
                                      {"mamba_n_heads", 4},
                                      {"num_local_experts", 0},
                                      {"num_experts_per_tok", 0},
                                      {"shared_intermediate_size", 48}});
  ModelConfig parsed = *Parse(granite);
  EXPECT_THAT(parsed.states.layers, ElementsAre(true, false, true, true));
  EXPECT_EQ(parsed.states.num_heads * parsed.states.value_dim, 2 * parsed.hidden_size);
  EXPECT_EQ(parsed.states.key_dim, 256);
  EXPECT_EQ(parsed.intermediate_size, 48);
  EXPECT_EQ(parsed.experts.num_experts, 0);
  EXPECT_EQ(parsed.states.most_step, std::numeric_limits<float>::infinity());
  const json infinity = {{"__float__", "Infinity"}};
  EXPECT_TRUE(Parse(With(granite, {{"time_step_limit", {0.0, infinity}}})).ok());
  parsed = *Parse(With(granite, {{"time_step_limit", {0.25, 0.5}}}));
  EXPECT_EQ(parsed.states.least_step, 0.25f);
  EXPECT_EQ(parsed.states.most_step, 0.5f);
  const auto error = [&](const json& changes) { return Error(With(granite, changes)); };
  EXPECT_THAT(error({{"time_step_limit", {0.5, 0.25}}}), HasSubstr("time_step_limit"));
  EXPECT_THAT(error({{"time_step_limit", {-1, 1}}}), HasSubstr("time_step_limit"));
  EXPECT_THAT(error({{"time_step_limit", 1}}), HasSubstr("time_step_limit"));
  EXPECT_THAT(error({{"mamba_d_state", 512}}), HasSubstr("mamba_d_state"));
  EXPECT_THAT(error({{"mamba_d_conv", 9}}), HasSubstr("mamba_d_conv"));
  EXPECT_THAT(error({{"sliding_window", 16}}), HasSubstr("sliding_window"));
  const json attention = {"attention", "attention", "attention", "attention"};
  EXPECT_EQ(Parse(With(granite, {{"layer_types", attention}}))->states.kind, StateKind::kNone);
  EXPECT_EQ(Parse(With(granite, {{"mamba_n_groups", 2}}))->states.num_key_heads, 2);
  EXPECT_THAT(error({{"mamba_n_groups", 3}}), HasSubstr("mamba_n_groups"));
  EXPECT_THAT(error({{"mamba_n_heads", 3}}), HasSubstr("mamba_n_heads"));
  EXPECT_THAT(error({{"mamba_d_head", 1}}), HasSubstr("mamba_d_head"));
  EXPECT_THAT(error({{"mamba_proj_bias", true}}), HasSubstr("mamba_proj_bias"));
  EXPECT_THAT(error({{"position_embedding_type", "alibi"}}), HasSubstr("position_embedding_type"));
  EXPECT_THAT(error({{"layer_types", {"mamba", "full_attention", "mamba", "mamba"}}}),
              HasSubstr("known are attention and mamba"));
}

// Each layer of Nemotron-H has one part, which a word or a list names.
TEST(MechanismsTest, PartsAreListed) {
  const json config = With(Llama(), {{"architectures", {"NemotronHForCausalLM"}},
                                     {"model_type", "nemotron_h"},
                                     {"num_hidden_layers", 5},
                                     {"hybrid_override_pattern", "M-*EM"},
                                     {"mamba_num_heads", 6},
                                     {"mamba_head_dim", 10},
                                     {"n_groups", 2},
                                     {"n_routed_experts", 4},
                                     {"hidden_act", "silu"}});
  ModelConfig parsed = *Parse(config);
  EXPECT_THAT(parsed.parts, ElementsAre(LayerParts::kMixer, LayerParts::kMlp, LayerParts::kMixer,
                                        LayerParts::kMlp, LayerParts::kMixer));
  EXPECT_THAT(parsed.states.layers, ElementsAre(true, false, false, false, true));
  EXPECT_THAT(parsed.experts.layers, ElementsAre(false, false, false, true, false));
  EXPECT_EQ(parsed.num_kv_layers(), 1);
  EXPECT_EQ(parsed.states.num_heads, 6);
  EXPECT_EQ(parsed.states.num_key_heads, 2);
  EXPECT_EQ(parsed.states.value_dim, 10);
  EXPECT_EQ(parsed.states.key_dim, 128);
  EXPECT_EQ(parsed.activation, Activation::kReluSquared);
  EXPECT_FALSE(parsed.gated);
  EXPECT_EQ(parsed.ropes[0].type, RopeConfig::Type::kNone);
  EXPECT_TRUE(parsed.experts.by_sigmoid && parsed.experts.correction && parsed.experts.normalise);

  // A list counts before the word, and tells the number of layers where nothing else does.
  json listed = With(config, {{"layers_block_type", {"mlp", "mamba", "attention"}}});
  EXPECT_THAT(Error(listed), HasSubstr("num_hidden_layers"));
  listed.erase("num_hidden_layers");
  parsed = *Parse(listed);
  EXPECT_EQ(parsed.num_layers, 3);
  EXPECT_EQ(parsed.experts.num_experts, 0) << "no layer has them";
  listed["layers_block_type"] = {"mlp", "linear_attention", "full_attention"};
  EXPECT_EQ(Parse(listed)->parts, parsed.parts);

  listed["layer_types"] = listed["layers_block_type"];
  EXPECT_EQ(Parse(listed)->parts, parsed.parts);
  listed["layer_types"] = {"mlp", "full_attention", "linear_attention"};
  EXPECT_THAT(Error(listed), HasSubstr("layers_block_type says otherwise"));
  EXPECT_EQ(Parse(With(config, {{"attention_head_dim", 24}}))->head_dim, 24);
  EXPECT_EQ(Parse(With(config, {{"partial_rotary_factor", 0.5}}))->rotary_dim, 128);

  const auto error = [&](const json& changes) { return Error(With(config, changes)); };
  EXPECT_THAT(error({{"layers_block_type", json::array()}}), HasSubstr("layers_block_type"));
  for (const char* const wrong : {"", "M-*Ex", "m-*em"}) {
    EXPECT_THAT(error({{"hybrid_override_pattern", wrong}}), HasSubstr("hybrid_override_pattern"));
  }
  EXPECT_THAT(error({{"hybrid_override_pattern", 5}}), HasSubstr("hybrid_override_pattern"));
  EXPECT_THAT(error({{"hybrid_override_pattern", "M-MEM"}}), HasSubstr("attention"));
  EXPECT_THAT(error({{"hybrid_override_pattern", std::string(2000, '*')}}),
              HasSubstr("num_hidden_layers"));
  EXPECT_THAT(error({{"layers_block_type", "M"}}), HasSubstr("layers_block_type"));
  EXPECT_THAT(error({{"layers_block_type", {"mamba", 1}}}), HasSubstr("layers_block_type"));
  EXPECT_THAT(error({{"n_groups", 4}}), HasSubstr("n_groups"));
  EXPECT_THAT(error({{"mlp_hidden_act", "relu"}}), HasSubstr("mlp_hidden_act"));
  EXPECT_EQ(Parse(With(config, {{"moe_latent_size", 16}}))->experts.latent_size, 16);
  EXPECT_EQ(Parse(With(config, {{"moe_latent_size", nullptr}}))->experts.latent_size, 0);
  for (const json& wrong : {json(0), json(-1), json("x"), json(1 << 20)}) {
    EXPECT_THAT(error({{"moe_latent_size", wrong}}), HasSubstr("moe_latent_size"));
  }
  EXPECT_THAT(error({{"moe_latent_size", 16}, {"mlp_bias", true}}), HasSubstr("mlp_bias"));
  EXPECT_THAT(Error(With(Llama(), {{"hidden_act", "relu2"}})), HasSubstr("relu2")) << "a gated MLP";
}

TEST(MechanismsTest, AModelMayHaveStatesAlone) {
  const json config = {{"architectures", {"Mamba2ForCausalLM"}},
                       {"model_type", "mamba2"},
                       {"hidden_size", 24},
                       {"num_hidden_layers", 2},
                       {"num_heads", 6},
                       {"head_dim", 8},
                       {"n_groups", 3},
                       {"state_size", 10},
                       {"norm_before_gate", true},
                       {"time_step_limit", {0.0, "Infinity"}}};
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.num_kv_layers(), 0);
  EXPECT_EQ(parsed.num_state_layers(), 2);
  EXPECT_FALSE(parsed.has_mlp(0) || parsed.has_experts(0));
  EXPECT_EQ(parsed.states.num_key_heads, 3);
  EXPECT_EQ(parsed.states.conv_width, 4);
  EXPECT_EQ(parsed.vocab_size, 32768);
  const auto error = [&](const json& changes) { return Error(With(config, changes)); };
  EXPECT_TRUE(Parse(With(config, {{"layer_types", {"mamba", "linear_attention"}}})).ok());
  EXPECT_THAT(error({{"layer_types", {"mamba", "attention"}}}), HasSubstr("layer_types"));
  EXPECT_THAT(error({{"layer_types", {"mamba"}}}), HasSubstr("layer_types"));
  EXPECT_THAT(error({{"expand", 3}}), HasSubstr("expand"));
  EXPECT_THAT(error({{"use_bias", true}}), HasSubstr("use_bias"));
  EXPECT_THAT(error({{"rms_norm", false}}), HasSubstr("rms_norm"));
}

TEST(MechanismsTest, ExpertsOfLfm2FollowTheDenseLayers) {
  const json config = With(Lfm2(), {{"architectures", {"Lfm2MoeForCausalLM"}},
                                    {"model_type", "lfm2_moe"},
                                    {"full_attn_idxs", {1}},
                                    {"num_dense_layers", 1}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_THAT(parsed.experts.layers, ElementsAre(false, true, true));
  EXPECT_EQ(parsed.intermediate_size, 96);  // as it is
  EXPECT_TRUE(parsed.experts.correction && parsed.experts.by_sigmoid);
  EXPECT_FALSE(Parse(With(config, {{"use_expert_bias", false}}))->experts.correction);
}

TEST(MechanismsTest, EveryFamilyHasDefaultsThatParse) {
  for (const Family& family : Families()) {
    json config = With(Llama(), {{"architectures", {std::string(family.architecture)}},
                                 {"model_type", std::string(family.model_type)}});
    if (family.latent) {
      config.update({{"kv_lora_rank", 24},
                     {"qk_rope_head_dim", 8},
                     {"qk_nope_head_dim", 8},
                     {"v_head_dim", 8}});
    }
    if (family.states == StateKind::kSum) {
      config["layer_types"] = {"mamba", "attention", "mamba", "mamba"};
    }
    if (family.parts == PartsRule::kStates) {
      config.erase("num_attention_heads");
      config.erase("num_key_value_heads");
      config.update({{"layer_types", {"mamba", "mamba", "mamba", "mamba"}},
                     {"num_heads", 8},
                     {"head_dim", config["hidden_size"].get<int>() / 4}});
    }
    const auto parsed = Parse(config);
    ASSERT_TRUE(parsed.ok()) << family.title << ": " << parsed.status();
    EXPECT_EQ(parsed->architecture, family.architecture);
    EXPECT_EQ(FindArchitecture(parsed->architecture), &family);
    EXPECT_LE(parsed->ropes.size(), size_t{kMaxRopes});
  }
}

}  // namespace
}  // namespace continuo::model
