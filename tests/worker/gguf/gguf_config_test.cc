// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_config.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/worker/gguf/gguf_names.h"
#include "tests/testing/gguf_writer.h"

namespace continuo::gguf {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

absl::StatusOr<ConfigTexts> ConfigOfBytes(const std::string& bytes) {
  const auto file =
      GgufFile::Parse("x.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!file.ok()) return file.status();
  return ConfigOf(*file);
}

GgufWriter Llama() {
  GgufWriter writer;
  writer.Key("general.architecture", std::string("llama"))
      .Key("llama.context_length", uint32_t{512})
      .Key("llama.embedding_length", uint32_t{64})
      .Key("llama.block_count", uint32_t{2})
      .Key("llama.feed_forward_length", uint32_t{172})
      .Key("llama.attention.head_count", uint32_t{8})
      .Key("llama.attention.head_count_kv", uint32_t{4})
      .Key("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Key("llama.rope.freq_base", 10000.0f);
  return writer;
}

TEST(GgufConfigTest, FieldsAreThoseOfHuggingFace) {
  const auto texts =
      ConfigOfBytes(Llama()
                        .Key("tokenizer.ggml.eos_token_id", uint32_t{2})
                        .Key("tokenizer.ggml.eot_token_id", uint32_t{5})
                        .Key("general.sampling.temp", 0.6f)
                        .Tensor("token_embd.weight", {64, 2}, 0, std::string(512, 'e'))
                        .Bytes());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const json expected = {{"architectures", {"LlamaForCausalLM"}},
                         {"max_position_embeddings", 512},
                         {"hidden_size", 64},
                         {"num_hidden_layers", 2},
                         {"intermediate_size", 172},
                         {"num_attention_heads", 8},
                         {"num_key_value_heads", 4},
                         {"rms_norm_eps", 1e-5},
                         {"rope_theta", 10000.0},
                         {"vocab_size", 2},
                         {"tie_word_embeddings", true},
                         {"attention_bias", false},
                         {"mlp_bias", false},
                         {"sliding_window", nullptr}};
  EXPECT_EQ(json::parse(texts->config), expected);
  EXPECT_EQ(json::parse(texts->generation_config),
            json({{"eos_token_id", {2, 5}}, {"temperature", 0.6}}));
}

TEST(GgufConfigTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  struct Case {
    GgufWriter writer;
    const char* error;
  };
  const std::vector<float> layers = {4, 8};
  const Case cases[] = {
      {GgufWriter(), "has no general.architecture"},
      {GgufWriter().Key("general.architecture", std::string("mamba")),
       "\"mamba\" is not known; known are llama"},
      {Llama().Key("llama.logit_scale", 2.0f), "the key llama.logit_scale is not known"},
      {Llama().Key("llama.attention.causal", false), "attention is not causal"},
      {Llama().Key("llama.rope.scaling.type", std::string("odd")), "\"odd\" is not known"},
      {Llama().Key("llama.attention.temperature_scale", 0.1f), "temperature_scale is not known"},
      {Llama().Key("llama.rope.scaling.type", std::string("linear")), "factor is missing"},
      {Llama().Key("llama.attention.sliding_window", uint32_t{8}),
       "sliding_window is not supported"},
      {GgufWriter()
           .Key("general.architecture", std::string("qwen3"))
           .Key("qwen3.attention.head_count_kv", layers),
       "differs between layers"},
      {Llama()
           .Key("llama.attention.key_length", uint32_t{8})
           .Key("llama.attention.value_length", uint32_t{16}),
       "keys of 8 and values of 16 elements"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(std::string(ConfigOfBytes(c.writer.Bytes()).status().message()),
                HasSubstr(c.error));
  }
}

TEST(GgufConfigTest, FieldsOfNewerFamiliesAreThoseOfTheirOwn) {
  const auto config = [](GgufWriter writer) {
    const auto texts = ConfigOfBytes(writer.Bytes());
    EXPECT_TRUE(texts.ok()) << texts.status();
    return json::parse(texts->config);
  };
  const auto file = [](const std::string& architecture) {
    return GgufWriter()
        .Key("general.architecture", architecture)
        .Key(architecture + ".block_count", uint32_t{4})
        .Key(architecture + ".embedding_length", uint32_t{64});
  };
  const json granite = config(file("granite")
                                  .Key("granite.attention.scale", 0.25f)
                                  .Key("granite.embedding_scale", 12.0f)
                                  .Key("granite.residual_scale", 0.5f)
                                  .Key("granite.logit_scale", 8.0f));
  EXPECT_EQ(granite["attention_multiplier"], 0.25);
  EXPECT_EQ(granite["embedding_multiplier"], 12);
  EXPECT_EQ(granite["residual_multiplier"], 0.5);
  EXPECT_EQ(granite["logits_scaling"], 8);
  const json minicpm = config(file("minicpm")
                                  .Key("minicpm.embedding_scale", 12.0f)
                                  .Key("minicpm.residual_scale", 0.5f)
                                  .Key("minicpm.logit_scale", 8.0f));
  EXPECT_EQ(minicpm["scale_emb"], 12);
  EXPECT_EQ(minicpm["scale_depth"], 1);
  EXPECT_EQ(minicpm["dim_model_base"], 8);
  const json olmo3 =
      config(file("olmo2")
                 .Key("olmo2.attention.sliding_window", uint32_t{16})
                 .Key("olmo2.attention.sliding_window_pattern", std::vector<float>{1, 1, 1, 0}));
  EXPECT_EQ(olmo3["architectures"], json({"Olmo3ForCausalLM"}));
  EXPECT_EQ(olmo3["layer_types"], json({"sliding_attention", "sliding_attention",
                                        "sliding_attention", "full_attention"}));
  EXPECT_EQ(config(file("olmo2"))["architectures"], json({"Olmo2ForCausalLM"}));
  const json mistral3 = config(file("mistral3")
                                   .Key("mistral3.rope.scaling.type", std::string("yarn"))
                                   .Key("mistral3.rope.scaling.factor", 16.0f)
                                   .Key("mistral3.rope.scaling.original_context_length", 16384)
                                   .Key("mistral3.rope.scaling.yarn_log_multiplier", 1.0f)
                                   .Key("mistral3.attention.temperature_scale", 0.5f));
  EXPECT_EQ(mistral3["rope_scaling"], json({{"rope_type", "yarn"},
                                            {"factor", 16.0},
                                            {"original_max_position_embeddings", 16384},
                                            {"mscale", 1.0},
                                            {"mscale_all_dim", 1.0},
                                            {"llama_4_scaling_beta", 0.5}}));
  const json starcoder2 =
      config(file("starcoder2").Key("starcoder2.attention.layer_norm_epsilon", 0.5f));
  EXPECT_EQ(starcoder2["norm_epsilon"], 0.5);
  EXPECT_EQ(starcoder2["use_bias"], false);
}

TEST(GgufConfigTest, FieldsOfExpertsAreThoseOfTheirFamily) {
  const auto config = [](GgufWriter writer) {
    const auto texts = ConfigOfBytes(writer.Bytes());
    EXPECT_TRUE(texts.ok()) << texts.status();
    return json::parse(texts->config);
  };
  const auto file = [](const std::string& architecture) {
    return GgufWriter()
        .Key("general.architecture", architecture)
        .Key(architecture + ".block_count", uint32_t{4})
        .Key(architecture + ".expert_count", uint32_t{16})
        .Key(architecture + ".expert_used_count", uint32_t{2})
        .Key(architecture + ".expert_feed_forward_length", uint32_t{96});
  };
  const json qwen = config(file("qwen2moe").Key("qwen2moe.expert_shared_feed_forward_length", 128));
  EXPECT_EQ(qwen["num_experts"], 16);
  EXPECT_EQ(qwen["moe_intermediate_size"], 96);
  EXPECT_EQ(qwen["shared_expert_intermediate_size"], 128);
  // The blocks include the one that predicts further tokens.
  const json glm = config(file("glm4moe")
                              .Key("glm4moe.nextn_predict_layers", uint32_t{1})
                              .Key("glm4moe.leading_dense_block_count", uint32_t{1})
                              .Key("glm4moe.expert_weights_norm", true)
                              .Key("glm4moe.expert_gating_func", uint32_t{2}));
  EXPECT_EQ(glm["num_hidden_layers"], 3);
  EXPECT_EQ(glm["num_nextn_predict_layers"], 1);
  EXPECT_EQ(glm["first_k_dense_replace"], 1);
  EXPECT_EQ(glm["n_routed_experts"], 16);
  EXPECT_EQ(glm["norm_topk_prob"], true);
  const json gpt_oss = config(file("gpt-oss")
                                  .Key("gpt-oss.rope.scaling.type", std::string("yarn"))
                                  .Key("gpt-oss.rope.scaling.factor", 32.0f));
  EXPECT_EQ(gpt_oss["intermediate_size"], 96);
  EXPECT_FALSE(gpt_oss.contains("moe_intermediate_size"));
  EXPECT_EQ(gpt_oss["rope_scaling"]["truncate"], false);
  const auto deepseek = [&](uint32_t gating) {
    return file("deepseek2")
        .Key("deepseek2.attention.key_length", uint32_t{48})
        .Key("deepseek2.attention.value_length", uint32_t{32})
        .Key("deepseek2.rope.dimension_count", uint32_t{16})
        .Key("deepseek2.attention.kv_lora_rank", uint32_t{64})
        .Key("deepseek2.rope.scaling.type", std::string("yarn"))
        .Key("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f)
        .Key("deepseek2.expert_gating_func", gating);
  };
  const json v2 = config(deepseek(1)), v3 = config(deepseek(2));
  EXPECT_EQ(v2["architectures"], json({"DeepseekV2ForCausalLM"}));
  EXPECT_EQ(v2["topk_method"], "greedy");
  EXPECT_EQ(v2["qk_rope_head_dim"], 16);
  EXPECT_EQ(v2["qk_nope_head_dim"], 32);
  EXPECT_EQ(v2["v_head_dim"], 32);
  EXPECT_EQ(v2["rope_scaling"]["mscale_all_dim"], 0.707);
  EXPECT_EQ(v3["architectures"], json({"DeepseekV3ForCausalLM"}));
  EXPECT_EQ(v3["n_group"], 1);
  // Today's converters describe the latent vector as the one head of keys and values.
  const auto one_head = [&](uint32_t values) {
    return file("deepseek2")
        .Key("deepseek2.attention.head_count_kv", uint32_t{1})
        .Key("deepseek2.attention.key_length", uint32_t{80})
        .Key("deepseek2.attention.value_length", values)
        .Key("deepseek2.attention.key_length_mla", uint32_t{48})
        .Key("deepseek2.attention.value_length_mla", uint32_t{40})
        .Key("deepseek2.rope.dimension_count", uint32_t{16})
        .Key("deepseek2.attention.kv_lora_rank", uint32_t{64})
        .Key("deepseek2.expert_gating_func", uint32_t{2});
  };
  const json split = config(one_head(64));
  EXPECT_EQ(split["qk_nope_head_dim"], 32);
  EXPECT_EQ(split["v_head_dim"], 40);
  EXPECT_EQ(split["num_key_value_heads"], split["num_attention_heads"]);
  // What would change the answer is refused.
  const auto error = [](GgufWriter writer) {
    return std::string(ConfigOfBytes(writer.Bytes()).status().message());
  };
  EXPECT_THAT(error(one_head(63)), HasSubstr("must be those of deepseek2.attention.kv_lora_rank"));
  EXPECT_THAT(error(deepseek(3)), HasSubstr("expert_gating_func 3 is not known"));
  EXPECT_THAT(error(file("glm4moe").Key("glm4moe.expert_gating_func", uint32_t{1})),
              HasSubstr("expert_gating_func must be 2"));
  EXPECT_THAT(error(file("olmoe").Key("olmoe.expert_shared_feed_forward_length", 128)),
              HasSubstr("expert_shared_feed_forward_length is not known"));
  const json granite =
      config(file("granitemoe").Key("granitemoe.expert_shared_feed_forward_length", uint32_t{128}));
  EXPECT_EQ(granite["architectures"], json({"GraniteMoeSharedForCausalLM"}));
  EXPECT_EQ(granite["shared_intermediate_size"], 128);
}

TEST(GgufConfigTest, LayersOfLfm2WithoutHeadsHaveConvolutions) {
  const auto file = [](const std::string& name, const std::vector<float>& heads) {
    return GgufWriter()
        .Key("general.architecture", name)
        .Key(name + ".block_count", uint32_t{4})
        .Key(name + ".attention.head_count_kv", heads)
        .Key(name + ".attention.layer_norm_rms_epsilon", 0.5f)
        .Key(name + ".shortconv.l_cache", uint32_t{3});
  };
  const auto texts = ConfigOfBytes(file("lfm2", {0, 2, 0, 2}).Bytes());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const json dense = json::parse(texts->config);
  EXPECT_EQ(dense["layer_types"], json({"conv", "full_attention", "conv", "full_attention"}));
  EXPECT_EQ(dense["num_key_value_heads"], 2);
  EXPECT_EQ(dense["norm_eps"], 0.5);
  EXPECT_EQ(dense["conv_L_cache"], 3);
  EXPECT_EQ(dense["block_auto_adjust_ff_dim"], false);
  EXPECT_FALSE(dense.contains("rms_norm_eps"));
  const auto experts = ConfigOfBytes(file("lfm2moe", {0, 2, 0, 2})
                                         .Key("lfm2moe.leading_dense_block_count", uint32_t{2})
                                         .Key("lfm2moe.expert_gating_func", uint32_t{2})
                                         .Bytes());
  ASSERT_TRUE(experts.ok()) << experts.status();
  EXPECT_EQ(json::parse(experts->config)["num_dense_layers"], 2);
  const auto error = [&](GgufWriter writer) {
    return std::string(ConfigOfBytes(writer.Bytes()).status().message());
  };
  EXPECT_THAT(error(file("lfm2", {0, 2, 0})), HasSubstr("a number for each of 4 layers"));
  EXPECT_THAT(error(file("lfm2", {0, std::nanf(""), 0, 0})), HasSubstr("must be whole numbers"));
  EXPECT_THAT(error(file("lfm2", {0, 2.5, 0, 0})), HasSubstr("must be whole numbers"));
  EXPECT_THAT(error(file("lfm2", {0, 2, 0, 4})), HasSubstr("differs between layers"));
  EXPECT_THAT(error(file("lfm2moe", {0, 2, 0, 2}).Key("lfm2moe.expert_gating_func", uint32_t{1})),
              HasSubstr("expert_gating_func must be 2"));
}

TEST(GgufConfigTest, SizesOfStatesAreThoseOfQwen35) {
  const auto file = [] {
    return GgufWriter()
        .Key("general.architecture", std::string("qwen35"))
        .Key("qwen35.block_count", uint32_t{9})
        .Key("qwen35.nextn_predict_layers", uint32_t{1})
        .Key("qwen35.attention.key_length", uint32_t{256})
        .Key("qwen35.rope.dimension_count", uint32_t{64})
        .Key("qwen35.rope.dimension_sections", std::vector<float>{11, 11, 10, 0})
        .Key("qwen35.full_attention_interval", uint32_t{4})
        .Key("qwen35.ssm.conv_kernel", uint32_t{4})
        .Key("qwen35.ssm.state_size", uint32_t{128})
        .Key("qwen35.ssm.group_count", uint32_t{16});
  };
  const auto texts = ConfigOfBytes(file()
                                       .Key("qwen35.ssm.time_step_rank", uint32_t{48})
                                       .Key("qwen35.ssm.inner_size", uint32_t{6144})
                                       .Bytes());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const json config = json::parse(texts->config);
  EXPECT_EQ(config["num_hidden_layers"], 8);
  EXPECT_EQ(config["num_nextn_predict_layers"], 1);
  EXPECT_EQ(config["partial_rotary_factor"], 0.25);
  EXPECT_EQ(config["full_attention_interval"], 4);
  EXPECT_EQ(config["linear_num_key_heads"], 16);
  EXPECT_EQ(config["linear_num_value_heads"], 48);
  EXPECT_EQ(config["linear_key_head_dim"], 128);
  EXPECT_EQ(config["linear_value_head_dim"], 128);
  // Today's converters tell each block, those that predict further tokens among them.
  const auto with_layers = [&](size_t n) {
    std::vector<float> layers(n, 1);
    for (size_t i = 1; i < n; i += 2) layers[i] = 0;
    return ConfigOfBytes(file()
                             .Key("qwen35.ssm.time_step_rank", uint32_t{48})
                             .Key("qwen35.ssm.inner_size", uint32_t{6144})
                             .Key("qwen35.attention.recurrent_layers", layers)
                             .Bytes());
  };
  const json types = json::parse(with_layers(9)->config)["layer_types"];
  ASSERT_EQ(types.size(), 8u);
  EXPECT_EQ(types[0], "linear_attention");
  EXPECT_EQ(types[1], "full_attention");
  EXPECT_THAT(std::string(with_layers(7).status().message()), HasSubstr("for each block"));
  const std::string fewer = GgufWriter()
                                .Key("general.architecture", std::string("qwen3next"))
                                .Key("qwen3next.block_count", -1)
                                .Key("qwen3next.ssm.time_step_rank", uint32_t{4})
                                .Key("qwen3next.ssm.inner_size", uint32_t{8})
                                .Key("qwen3next.attention.recurrent_layers", std::vector<float>{1})
                                .Bytes();
  EXPECT_THAT(std::string(ConfigOfBytes(fewer).status().message()), HasSubstr("for each block"));
  EXPECT_THAT(std::string(ConfigOfBytes(file()
                                            .Key("qwen35.ssm.time_step_rank", uint32_t{48})
                                            .Key("qwen35.ssm.inner_size", uint32_t{6143})
                                            .Bytes())
                              .status()
                              .message()),
              HasSubstr("must be a multiple of qwen35.ssm.time_step_rank"));
}

TEST(GgufConfigTest, HeadsThatRotateWholeAreToldToFamiliesThatRotateAPart) {
  const auto file = [] {
    return GgufWriter()
        .Key("general.architecture", std::string("qwen35"))
        .Key("qwen35.block_count", uint32_t{4})
        .Key("qwen35.attention.key_length", uint32_t{256});
  };
  EXPECT_EQ(json::parse(ConfigOfBytes(file().Bytes())->config)["partial_rotary_factor"], 1);
  EXPECT_THAT(
      std::string(ConfigOfBytes(file().Key("qwen35.nextn_predict_layers", uint32_t{5}).Bytes())
                      .status()
                      .message()),
      HasSubstr("must be from 0 to qwen35.block_count"));
}

TEST(GgufNamesTest, HeadsOfQwen35ComeInTheOrderOfTheirGroups) {
  const auto named = [](uint32_t groups, uint32_t heads) {
    const std::string bytes = GgufWriter()
                                  .Key("general.architecture", std::string("qwen35"))
                                  .Key("qwen35.ssm.state_size", uint32_t{2})
                                  .Key("qwen35.ssm.group_count", groups)
                                  .Key("qwen35.ssm.time_step_rank", heads)
                                  .Key("qwen35.ssm.inner_size", uint32_t{12})
                                  .Tensor("blk.0.ssm_a", {4}, 0, std::string(16, 'a'))
                                  .Tensor("blk.0.attn_qkv.weight", {1, 20}, 0, std::string(80, 'b'))
                                  .Tensor("blk.0.ssm_out.weight", {12, 1}, 0, std::string(48, 'c'))
                                  .Bytes();
    const auto file =
        GgufFile::Parse("x.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    CONTINUO_CHECK(file.ok());
    return NamedTensors(*file);
  };
  const auto tensors = named(2, 4);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const auto stored = [&](const std::string& name) {
    for (const NamedTensor& tensor : *tensors) {
      if (tensor.name != "model.layers.0.linear_attn." + name) continue;
      std::vector<int64_t> order;
      const bool are_columns = tensor.tiled.are_columns;
      for (int64_t i = 0; i < tensor.shape[are_columns ? 1 : 0]; ++i) {
        order.push_back(tensor.tiled.Stored(i));
      }
      return order;
    }
    return std::vector<int64_t>();
  };
  // Heads 0 and 1 share a key head, 2 and 3 another: they are stored as 0, 2, 1, 3.
  EXPECT_THAT(stored("A_log"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(stored("out_proj.weight"), ElementsAre(0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11));
  EXPECT_THAT(stored("in_proj_qkv.weight"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 11, 12, 13, 17, 18, 19));
  EXPECT_EQ(named(4, 4)->front().tiled.groups, 0);
  EXPECT_THAT(std::string(named(3, 4).status().message()), HasSubstr("ssm.group_count"));
  EXPECT_THAT(std::string(named(0, 4).status().message()), HasSubstr("ssm.group_count"));
}

TEST(GgufNamesTest, KeysOfALatentVectorAreAMatrixAHeadByColumns) {
  const auto named = [](uint32_t heads) {
    const std::string bytes =
        GgufWriter()
            .Key("general.architecture", std::string("deepseek2"))
            .Key("deepseek2.attention.head_count", heads)
            .Tensor("blk.0.attn_k_b.weight", {2, 3, 4}, 0, std::string(96, 'a'))
            .Tensor("blk.0.attn_v_b.weight", {3, 5, 4}, 0, std::string(240, 'b'))
            .Bytes();
    const auto file =
        GgufFile::Parse("x.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    CONTINUO_CHECK(file.ok());
    EXPECT_TRUE(SplitsLatent(*file));
    return NamedTensors(*file);
  };
  const auto tensors = named(4);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->front().name, "model.layers.0.self_attn.k_b_proj.weight");
  EXPECT_THAT(tensors->front().shape, ElementsAre(8, 3));
  EXPECT_EQ(tensors->front().turned_head, 2);
  EXPECT_THAT(tensors->back().shape, ElementsAre(20, 3));
  EXPECT_EQ(tensors->back().turned_head, 0);
  EXPECT_THAT(std::string(named(2).status().message()),
              HasSubstr("has not a matrix for each of 2 heads"));
}

TEST(GgufConfigTest, RopeIsScaledAsTheFileSays) {
  const std::string factors("\0\0\x80\x3f\0\0\0\x40", 8);  // 1 and 2
  const auto rope = [](GgufWriter writer) {
    const auto texts = ConfigOfBytes(writer.Bytes());
    EXPECT_TRUE(texts.ok()) << texts.status();
    return json::parse(texts->config)["rope_scaling"];
  };
  EXPECT_EQ(rope(Llama()), json());
  EXPECT_EQ(rope(Llama()
                     .Key("llama.rope.scaling.type", std::string("linear"))
                     .Key("llama.rope.scaling.factor", 4.0f)),
            json({{"rope_type", "linear"}, {"factor", 4.0}}));
  EXPECT_EQ(rope(Llama().Tensor("rope_freqs.weight", {2}, 0, factors)),
            json({{"rope_type", "longrope"},
                  {"short_factor", {1.0, 2.0}},
                  {"long_factor", {1.0, 2.0}},
                  {"attention_factor", 1.0}}));
}

TEST(GgufConfigTest, Llama4SaysLittleOfItsLayers) {
  const auto writer = [] {
    GgufWriter one;
    one.Key("general.architecture", std::string("llama4"))
        .Key("llama4.block_count", uint32_t{4})
        .Key("llama4.embedding_length", uint32_t{64})
        .Key("llama4.attention.head_count", uint32_t{8})
        .Key("llama4.feed_forward_length", uint32_t{96})
        .Key("llama4.expert_feed_forward_length", uint32_t{48})
        .Key("llama4.expert_used_count", uint32_t{1})
        .Key("llama4.interleave_moe_layer_step", uint32_t{2});
    return one;
  };
  const auto config = [](GgufWriter one) {
    const auto texts = ConfigOfBytes(one.Bytes());
    EXPECT_TRUE(texts.ok()) << texts.status();
    return texts.ok() ? json::parse(texts->config) : json();
  };
  const json scout = config(writer().Key("llama4.expert_count", uint32_t{16}));
  EXPECT_EQ(scout["architectures"], json({"Llama4ForCausalLM"}));
  EXPECT_EQ(scout["intermediate_size"], 48);
  EXPECT_EQ(scout["intermediate_size_mlp"], 96);
  EXPECT_EQ(scout["num_local_experts"], 16);
  EXPECT_EQ(scout["interleave_moe_layer_step"], 2);
  EXPECT_EQ(scout["use_qk_norm"], true);
  EXPECT_FALSE(scout.contains("moe_intermediate_size") || scout.contains("attention_chunk_size"));
  const json maverick = config(writer().Key("llama4.expert_count", uint32_t{128}));
  EXPECT_EQ(maverick["use_qk_norm"], false);
  const json whole = config(writer().Key("llama4.attention.sliding_window", uint32_t{0}));
  EXPECT_EQ(whole["attention_chunk_size"], json());
  EXPECT_EQ(whole["no_rope_layers"], json({1, 1, 1, 1}));
  EXPECT_EQ(config(writer().Key("llama4.attention.sliding_window",
                                uint32_t{512}))["attention_chunk_size"],
            512);
}

}  // namespace
}  // namespace continuo::gguf
