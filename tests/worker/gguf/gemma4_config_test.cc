// SPDX-License-Identifier: Apache-2.0
// Metadata and names of Gemma 4's files.
#include "services/worker/gguf/config_parts.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/worker/gguf/gguf_config.h"
#include "services/worker/gguf/gguf_names.h"
#include "tests/testing/gguf_writer.h"

namespace continuo::gguf {
namespace {

using nlohmann::json;
using testing::GgufWriter;
using ::testing::HasSubstr;

using Numbers = std::vector<int>;

std::string Floats(std::initializer_list<float> values) {
  std::string bytes;
  for (const float value : values) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

// A file of four layers, the second and last of which have no windows.
class Model {
 public:
  Model() {
    writer_.Key("general.architecture", std::string("gemma4"))
        .Key("gemma4.block_count", uint32_t{4})
        .Key("gemma4.embedding_length", uint32_t{64})
        .Key("gemma4.attention.head_count", uint32_t{8})
        .Key("gemma4.attention.sliding_window", uint32_t{16})
        .Key("gemma4.attention.sliding_window_pattern", std::vector<bool>{true, false, true, false})
        .Key("gemma4.attention.key_length_swa", uint32_t{8})
        .Key("gemma4.attention.value_length_swa", uint32_t{8})
        .Key("gemma4.rope.freq_base", 1e6f)
        .Key("gemma4.rope.freq_base_swa", 1e4f);
  }
  template <typename T>
  Model& Key(const std::string& key, T value) {
    writer_.Key("gemma4." + key, value);
    return *this;
  }
  Model& Usual() {
    return Key("attention.key_length", uint32_t{16})
        .Key("attention.head_count_kv", uint32_t{4})
        .Key("feed_forward_length", uint32_t{96});
  }
  Model& Tensor(const std::string& name, const std::vector<uint64_t>& dimensions,
                const std::string& bytes) {
    writer_.Tensor(name, dimensions, 0, bytes);
    return *this;
  }
  Model& Divisors(const std::string& bytes) {
    return Tensor("rope_freqs.weight", {bytes.size() / sizeof(float)}, bytes);
  }
  Model& UsualDivisors() {
    return Divisors(Floats({1, 1, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f}));
  }
  std::string Bytes() const { return writer_.Bytes(); }

 private:
  GgufWriter writer_;
};

absl::StatusOr<GgufFile> Parse(const std::string& bytes) {
  return GgufFile::Parse("x.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

json ConfigOf(const Model& model) {
  const std::string bytes = model.Bytes();
  const auto file = Parse(bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  const auto texts = gguf::ConfigOf(*file);
  EXPECT_TRUE(texts.ok()) << texts.status();
  return texts.ok() ? json::parse(texts->config) : json();
}

std::string ErrorOf(const Model& model) {
  const std::string bytes = model.Bytes();
  const auto file = Parse(bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  return std::string(gguf::ConfigOf(*file).status().message());
}

TEST(Gemma4ConfigTest, LayersHaveTheirShapes) {
  json config =
      ConfigOf(Model().Usual().UsualDivisors().Tensor("blk.1.attn_v.weight", {1}, Floats({0})));
  EXPECT_EQ(config["architectures"], json({"Gemma4ForCausalLM"}));
  EXPECT_EQ(config["layer_types"],
            json({"sliding_attention", "full_attention", "sliding_attention", "full_attention"}));
  EXPECT_EQ(config["head_dim"], 8);
  EXPECT_EQ(config["global_head_dim"], 16);
  EXPECT_EQ(config["num_key_value_heads"], 4);
  EXPECT_EQ(config["attention_k_eq_v"], false);
  EXPECT_EQ(config["num_kv_shared_layers"], 0);
  EXPECT_EQ(config["use_double_wide_mlp"], false);
  EXPECT_EQ(config["enable_moe_block"], false);
  EXPECT_EQ(config["rope_parameters"]["full_attention"]["partial_rotary_factor"], 0.25);
  EXPECT_EQ(config["rope_parameters"]["full_attention"]["rope_theta"], 1e6);
  EXPECT_EQ(config["rope_parameters"]["sliding_attention"]["rope_theta"], 1e4);
  config = ConfigOf(Model()
                        .Key("attention.key_length", uint32_t{16})
                        .Key("attention.head_count_kv", Numbers{4, 2, 4, 2})
                        .Key("feed_forward_length", Numbers{96, 96, 192, 192})
                        .Key("attention.shared_kv_layers", uint32_t{2})
                        .Key("embedding_length_per_layer_input", uint32_t{24})
                        .Key("expert_count", uint32_t{6})
                        .Key("expert_used_count", uint32_t{2})
                        .Key("expert_feed_forward_length", uint32_t{40})
                        .UsualDivisors());
  EXPECT_EQ(config["num_key_value_heads"], 4);
  EXPECT_EQ(config["num_global_key_value_heads"], 2);
  EXPECT_EQ(config["attention_k_eq_v"], true);
  EXPECT_EQ(config["num_kv_shared_layers"], 2);
  EXPECT_EQ(config["use_double_wide_mlp"], true);
  EXPECT_EQ(config["hidden_size_per_layer_input"], 24);
  EXPECT_EQ(config["enable_moe_block"], true);
  EXPECT_EQ(config["top_k_experts"], 2);
  EXPECT_EQ(config["moe_intermediate_size"], 40);
}

TEST(Gemma4ConfigTest, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(ErrorOf(Model().Usual()), HasSubstr("rope_freqs.weight must be there"));
  EXPECT_THAT(ErrorOf(Model().Usual().Divisors(Floats({1, 1}))), HasSubstr("of 8 elements"));
  EXPECT_THAT(ErrorOf(Model().Usual().Divisors(Floats({1, 1, 2, 1, 1, 1, 1, 1}))),
              HasSubstr("must be ones and then numbers from 1e29 on"));
  EXPECT_THAT(ErrorOf(Model().Usual().Divisors(Floats({1e30f, 1, 1, 1, 1, 1, 1, 1}))),
              HasSubstr("must be ones and then numbers from 1e29 on"));
  const auto shaped = [](const std::string& key, const Numbers& list) {
    Model model;
    model.Key("attention.key_length", uint32_t{16});
    if (key != "attention.head_count_kv") model.Key("attention.head_count_kv", uint32_t{4});
    if (key != "feed_forward_length") model.Key("feed_forward_length", uint32_t{96});
    return ErrorOf(model.Key(key, list).UsualDivisors());
  };
  EXPECT_THAT(shaped("attention.head_count_kv", {4, 2, 4, 4}),
              HasSubstr("differs between layers of one kind"));
  EXPECT_THAT(shaped("attention.head_count_kv", {4, 2, 4}), HasSubstr("one for each of 4 layers"));
  EXPECT_THAT(shaped("attention.head_count_kv", {4, 0, 4, 0}),
              HasSubstr("one for each of 4 layers"));
  EXPECT_THAT(shaped("feed_forward_length", {96, 96, 96, 192}),
              HasSubstr("must be the same for all layers"));
  EXPECT_THAT(ErrorOf(Model().Usual().UsualDivisors().Key("rope.dimension_count", uint32_t{8})),
              HasSubstr("gemma4.rope.dimension_count must be the elements of a head"));
}

// Rows of gate and up follow one another in a matrix of each expert.
TEST(Gemma4ConfigTest, JoinedExpertsAreCut) {
  Model model;
  model.Usual().UsualDivisors();
  model.Tensor("blk.2.ffn_gate_up_exps.weight", {1, 4, 2}, Floats({1, 2, 3, 4, 5, 6, 7, 8}));
  model.Tensor("blk.2.ffn_down_exps.scale", {2}, Floats({1, 2}));
  model.Tensor("blk.2.layer_output_scale.weight", {1}, Floats({1}));
  const std::string bytes = model.Bytes();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto named = NamedTensors(*file);
  ASSERT_TRUE(named.ok()) << named.status();
  const std::string layer = "model.layers.2.", experts = layer + "experts.";
  std::vector<std::string> names;
  for (const NamedTensor& tensor : *named) names.push_back(tensor.name);
  EXPECT_THAT(names,
              ::testing::ElementsAre(experts + "0.gate_proj.weight", experts + "0.up_proj.weight",
                                     experts + "1.gate_proj.weight", experts + "1.up_proj.weight",
                                     layer + "router.per_expert_scale", layer + "layer_scalar"));
  const std::string up(reinterpret_cast<const char*>((*named)[3].bytes.data()), 8);
  EXPECT_EQ(up, Floats({7, 8}));
}

}  // namespace
}  // namespace continuo::gguf
