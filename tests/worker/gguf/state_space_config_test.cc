// SPDX-License-Identifier: Apache-2.0
// Metadata and names of files of models with Mamba-2's states.
#include "services/worker/gguf/config_parts.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/worker/gguf/gguf_config.h"
#include "tests/testing/gguf_writer.h"

namespace continuo::gguf {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

absl::StatusOr<GgufFile> Parse(const std::string& bytes) {
  return GgufFile::Parse("x.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

std::string ErrorOf(const std::string& bytes) {
  const auto file = Parse(bytes);
  if (!file.ok()) return std::string(file.status().message());
  return std::string(ConfigOf(*file).status().message());
}

// A file with these layers: s (a state), a (attention), m (an MLP), e (experts).
class Model {
 public:
  Model(const std::string& architecture, const std::string& layers) : name_(architecture) {
    writer_.Key("general.architecture", architecture)
        .Key(name_ + ".embedding_length", uint32_t{16})
        .Key(name_ + ".attention.layer_norm_rms_epsilon", 1e-5f);
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      Matrix(layer + "attn_norm.weight");
      if (layers[i] == 's') Matrix(layer + "ssm_in.weight");
      if (layers[i] == 'a') Matrix(layer + "attn_q.weight");
      if (layers[i] == 'm') Matrix(layer + "ffn_up.weight");
      if (layers[i] == 'e') Matrix(layer + "ffn_gate_inp.weight");
    }
    Number("block_count", static_cast<uint32_t>(layers.size()));
  }
  Model& Matrix(const std::string& name) {
    writer_.Tensor(name, {4, 3}, 0, std::string(48, 'e'));
    return *this;
  }
  template <typename T>
  Model& Number(const std::string& key, T value) {
    writer_.Key(name_ + "." + key, value);
    return *this;
  }
  Model& Sizes(uint32_t inner = 32) {
    return Number("ssm.conv_kernel", uint32_t{4})
        .Number("ssm.state_size", uint32_t{10})
        .Number("ssm.group_count", uint32_t{2})
        .Number("ssm.time_step_rank", uint32_t{4})
        .Number("ssm.inner_size", inner);
  }
  std::string Bytes() { return writer_.Bytes(); }

 private:
  std::string name_;
  GgufWriter writer_;
};

json ConfigOfModel(Model& model) {
  const std::string bytes = model.Bytes();
  const auto file = Parse(bytes);
  if (!file.ok()) return std::string(file.status().message());
  const auto texts = ConfigOf(*file);
  return texts.ok() ? json::parse(texts->config) : json(std::string(texts.status().message()));
}

TEST(StateSpaceConfigTest, PartsOfNemotronAreThoseOfItsTensors) {
  Model model("nemotron_h_moe", "sea");
  model.Sizes()
      .Matrix("blk.0.ssm_conv1d.bias")
      .Number("attention.head_count", uint32_t{4})
      .Number("attention.head_count_kv", std::vector<float>{0, 0, 2})
      .Number("feed_forward_length", std::vector<float>{0, 20, 0})
      .Number("expert_count", uint32_t{6})
      .Number("expert_used_count", uint32_t{2})
      .Number("expert_shared_feed_forward_length", uint32_t{28})
      .Number("moe_latent_size", uint32_t{12});
  const json config = ConfigOfModel(model);
  ASSERT_TRUE(config.is_object()) << config;
  EXPECT_EQ(config["layers_block_type"], json({"linear_attention", "moe", "full_attention"}));
  EXPECT_EQ(config["num_attention_heads"], 4);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["mamba_num_heads"], 4);
  EXPECT_EQ(config["mamba_head_dim"], 8);
  EXPECT_EQ(config["n_groups"], 2);
  EXPECT_EQ(config["ssm_state_size"], 10);
  EXPECT_EQ(config["use_conv_bias"], true);
  EXPECT_EQ(config["n_routed_experts"], 6);
  EXPECT_EQ(config["moe_shared_expert_intermediate_size"], 28);
  EXPECT_EQ(config["moe_latent_size"], 12);
  EXPECT_FALSE(config.contains("rms_norm_eps"));
  EXPECT_TRUE(config.contains("layer_norm_epsilon"));

  Model other("nemotron_h", "sa");
  other.Sizes()
      .Number("attention.layer_norm_epsilon", 1e-3f)
      .Number("attention.head_count", uint32_t{4})
      .Number("attention.head_count_kv", std::vector<float>{0, 2});
  EXPECT_NEAR(ConfigOfModel(other)["layer_norm_epsilon"], 1e-5, 1e-9) << "of an RmsNorm";

  // The last block predicts further tokens.
  Model more("nemotron_h_moe", "saea");
  more.Sizes()
      .Number("nextn_predict_layers", uint32_t{1})
      .Number("attention.head_count", uint32_t{4})
      .Number("attention.head_count_kv", std::vector<float>{0, 2, 0, 2});
  EXPECT_EQ(ConfigOfModel(more)["layers_block_type"],
            json({"linear_attention", "full_attention", "moe"}));
}

TEST(StateSpaceConfigTest, LayersOfGraniteHaveAStateOrAttention) {
  Model model("granitehybrid", "sas");
  model.Sizes()
      .Matrix("blk.0.ffn_gate.weight")
      .Number("attention.head_count", std::vector<float>{0, 4, 0})
      .Number("attention.head_count_kv", std::vector<float>{0, 2, 0})
      .Number("feed_forward_length", uint32_t{3})
      .Number("rope.scaling.finetuned", true);
  const json config = ConfigOfModel(model);
  ASSERT_TRUE(config.is_object()) << config;
  EXPECT_EQ(config["layer_types"], json({"mamba", "attention", "mamba"}));
  EXPECT_EQ(config["num_local_experts"], 0);
  EXPECT_EQ(config["shared_intermediate_size"], 3);
  EXPECT_EQ(config["head_dim"], 4) << "embedding_length by the heads of attention";
  EXPECT_EQ(config["mamba_expand"], 2);
  EXPECT_EQ(config["mamba_conv_bias"], false);
  EXPECT_EQ(config["position_embedding_type"], "rope");
}

TEST(StateSpaceConfigTest, AModelOfStatesAloneHasNoHeads) {
  Model model("mamba2", "ss");
  model.Sizes()
      .Number("attention.head_count", uint32_t{0})
      .Number("feed_forward_length", uint32_t{0});
  const json config = ConfigOfModel(model);
  ASSERT_TRUE(config.is_object()) << config;
  EXPECT_FALSE(config.contains("num_attention_heads") || config.contains("intermediate_size"));
  EXPECT_EQ(config["head_dim"], 8);
  EXPECT_EQ(config["num_heads"], 4);
  EXPECT_EQ(config["expand"], 2);
}

TEST(StateSpaceConfigTest, WhatIsWrongIsNamed) {
  const auto with_heads = [](std::vector<float> heads) {
    return Model("nemotron_h", "sa")
        .Sizes()
        .Number("attention.head_count", uint32_t{4})
        .Number("attention.head_count_kv", std::move(heads))
        .Bytes();
  };
  EXPECT_EQ(ErrorOf(with_heads({0, 2})), "");
  EXPECT_THAT(ErrorOf(with_heads({0, 0})), HasSubstr("head_count_kv is 0 in all layers"));
  EXPECT_THAT(ErrorOf(with_heads({2, 4})), HasSubstr("one and the same whole number"));
  EXPECT_THAT(ErrorOf(with_heads({0, 2.5})), HasSubstr("one and the same whole number"));
  EXPECT_THAT(ErrorOf(with_heads({0, std::nanf("")})), HasSubstr("one and the same whole number"));
  EXPECT_THAT(ErrorOf(Model("mamba2", "s").Bytes()), HasSubstr("mamba2.ssm.conv_kernel"));
  EXPECT_THAT(ErrorOf(Model("mamba2", "s").Sizes(33).Bytes()),
              HasSubstr("must be a multiple of mamba2.ssm.time_step_rank"));
  EXPECT_THAT(ErrorOf(Model("mamba2", "s").Sizes(36).Bytes()),
              HasSubstr("must be a multiple of mamba2.embedding_length"));
  EXPECT_THAT(ErrorOf(Model("mamba2", "s").Sizes().Number("moe_latent_size", uint32_t{8}).Bytes()),
              HasSubstr("moe_latent_size"));
}

// A tensor whose rows are put into another order head by head must have whole heads.
TEST(StateSpaceNamesTest, RowsThatAreNoHeadsAreRefused) {
  for (const uint32_t head : {2u, 4u, 6u, 8u}) {
    const std::string bytes = GgufWriter()
                                  .Key("general.architecture", std::string("granitehybrid"))
                                  .Key("granitehybrid.attention.key_length", head)
                                  .Tensor("blk.0.attn_q.weight", {3, 4}, 0, std::string(48, 'e'))
                                  .Bytes();
    const auto file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto named = NamedTensors(*file);
    EXPECT_EQ(named.ok(), head <= 4) << head;
    if (!named.ok()) {
      EXPECT_THAT(std::string(named.status().message()), HasSubstr("is not of whole heads of"));
    }
  }
}

TEST(StateSpaceNamesTest, NumbersOfHeadsAreAVectorAndGainsToo) {
  const std::string bytes = GgufWriter()
                                .Key("general.architecture", std::string("mamba2"))
                                .Tensor("token_embd.weight", {2, 2}, 0, std::string(16, 'e'))
                                .Tensor("output_norm.weight", {2}, 0, std::string(8, 'n'))
                                .Tensor("blk.0.ssm_a", {1, 4}, 0, std::string(16, 'a'))
                                .Tensor("blk.0.ssm_d", {1, 4}, 0, std::string(16, 'd'))
                                .Tensor("blk.0.ssm_norm.weight", {4, 2}, 0, std::string(32, 'g'))
                                .Tensor("blk.0.ssm_conv1d.weight", {4, 6}, 0, std::string(96, 'c'))
                                .Bytes();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto named = NamedTensors(*file);
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_EQ(named->size(), 6u);
  EXPECT_EQ((*named)[0].name, "model.embeddings.weight");
  EXPECT_EQ((*named)[1].name, "model.norm_f.weight");
  EXPECT_EQ((*named)[2].name, "model.layers.0.mixer.A_log");
  EXPECT_THAT((*named)[2].shape, ElementsAre(4));
  EXPECT_TRUE((*named)[2].is_rate);
  EXPECT_EQ((*named)[3].name, "model.layers.0.mixer.D");
  EXPECT_THAT((*named)[3].shape, ElementsAre(4));
  EXPECT_FALSE((*named)[3].is_rate);
  EXPECT_EQ((*named)[4].name, "model.layers.0.mixer.norm.weight");
  EXPECT_THAT((*named)[4].shape, ElementsAre(8));
  EXPECT_THAT((*named)[5].shape, ElementsAre(6, 1, 4));
}

}  // namespace
}  // namespace continuo::gguf
