// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/encoder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "services/worker/model/description/config.h"

namespace continuo::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Bert() {
  return {{"architectures", {"BertModel"}},
          {"model_type", "bert"},
          {"vocab_size", 100},
          {"hidden_size", 32},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 64},
          {"max_position_embeddings", 40}};
}

json ModernBert() {
  json config = Bert();
  config.update({{"architectures", {"ModernBertForMaskedLM"}},
                 {"model_type", "modernbert"},
                 {"num_hidden_layers", 5},
                 {"local_attention", 16}});
  return config;
}

json With(json config, const json& more) {
  config.update(more);
  return config;
}

absl::StatusOr<ModelConfig> Parse(const json& config) {
  return ParseModelConfig(config.dump(), "");
}

std::string ErrorOf(const json& config) {
  const absl::StatusOr<ModelConfig> parsed = Parse(config);
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

TEST(EncoderConfigTest, BertNormalisesItsStreamAndCountsPositionsFromZero) {
  const ModelConfig config = *Parse(Bert());
  EXPECT_TRUE(config.encoder.is_encoder && config.encoder.stream_norms);
  EXPECT_FALSE(config.encoder.final_norm || config.input_norms || config.gated);
  EXPECT_EQ(config.context_length, 40);
  EXPECT_EQ(config.encoder.first_position, 0);
  EXPECT_EQ(config.encoder.num_token_types, 2);
  EXPECT_EQ(config.activation, Activation::kGeluErf);
  EXPECT_EQ(config.norm_eps, 1e-12f);
  EXPECT_FALSE(config.has_rope(0));
  EXPECT_EQ(Parse(With(Bert(), {{"hidden_act", "gelu_new"}}))->activation, Activation::kGeluTanh);
}

// Row padding + 1 is the first position's, as in fairseq, which transformers follows.
TEST(EncoderConfigTest, PositionsOfRobertaBeginBehindThePadding) {
  for (const auto& [architecture, type] :
       {std::pair{"RobertaModel", "roberta"}, {"XLMRobertaForMaskedLM", "xlm-roberta"}}) {
    json config = With(Bert(), {{"architectures", {architecture}}, {"model_type", type}});
    EXPECT_EQ(Parse(config)->encoder.first_position, 2);
    EXPECT_EQ(Parse(config)->context_length, 38);
    config["pad_token_id"] = 5;
    EXPECT_EQ(Parse(config)->context_length, 34);
    config["pad_token_id"] = 39;
    EXPECT_THAT(ErrorOf(config), HasSubstr("max_position_embeddings"));
  }
}

TEST(EncoderConfigTest, LayersOfModernBertHaveWindowsToBothSides) {
  const ModelConfig config = *Parse(ModernBert());
  EXPECT_THAT(config.windows, ElementsAre(0, 9, 9, 0, 9));
  EXPECT_THAT(config.layer_ropes, ElementsAre(0, 1, 1, 0, 1));
  EXPECT_EQ(config.ropes[0].theta, 160000);
  EXPECT_EQ(config.ropes[1].theta, 10000);
  EXPECT_TRUE(config.encoder.first_layer_reads_x && config.encoder.final_norm && config.gated);
  const json newer = With(
      ModernBert(), {{"layer_types",
                      {"sliding_attention", "full_attention", "sliding_attention",
                       "sliding_attention", "full_attention"}},
                     {"rope_parameters",
                      {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 500.0}}},
                       {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 50.0}}}}}});
  EXPECT_THAT(Parse(newer)->windows, ElementsAre(9, 0, 9, 9, 0));
  EXPECT_EQ(Parse(newer)->ropes[0].theta, 500);
  EXPECT_EQ(Parse(newer)->ropes[1].theta, 50);
}

TEST(EncoderConfigTest, GemmaIsAnEncoderWhereItsFileSaysSo) {
  const json gemma = {{"architectures", {"Gemma3TextModel"}},
                      {"model_type", "gemma3_text"},
                      {"vocab_size", 100},
                      {"hidden_size", 32},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 1},
                      {"intermediate_size", 64},
                      {"max_position_embeddings", 2048},
                      {"sliding_window", 512},
                      {"layer_types", {"sliding_attention", "full_attention"}}};
  EXPECT_FALSE(Parse(gemma)->encoder.is_encoder);
  EXPECT_THAT(Parse(gemma)->windows, ElementsAre(512, 0));
  const ModelConfig encoder = *Parse(With(gemma, {{"use_bidirectional_attention", true}}));
  EXPECT_TRUE(encoder.encoder.is_encoder && encoder.encoder.final_norm);
  EXPECT_THAT(encoder.windows, ElementsAre(257, 0));
}

TEST(EncoderConfigTest, WhatIsNotKnownIsNamed) {
  for (const auto& [more, word] :
       {std::pair<json, const char*>{{{"position_embedding_type", "relative_key"}},
                                     "position_embedding_type"},
        {{{"is_decoder", true}}, "is_decoder"},
        {{{"add_cross_attention", true}}, "add_cross_attention"},
        {{{"hidden_act", "relu"}}, "hidden_act"},
        {{{"num_attention_heads", 5}}, "num_attention_heads"},
        {{{"type_vocab_size", -1}}, "type_vocab_size"},
        {{{"layer_norm_eps", "x"}}, "layer_norm_eps"},
        {{{"embedding_size", 16}}, "embedding_size"}}) {
    EXPECT_THAT(ErrorOf(With(Bert(), more)), HasSubstr(word));
  }
  for (const auto& [more, word] :
       {std::pair<json, const char*>{{{"attention_bias", true}}, "attention_bias"},
        {{{"mlp_bias", true}}, "mlp_bias"},
        {{{"layer_types", {"full_attention"}}}, "layer_types"},
        {{{"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}}}, "rope_parameters"},
        {{{"local_attention", 0}}, "local_attention"},
        {{{"hidden_activation", "silu"}}, "hidden_activation"}}) {
    EXPECT_THAT(ErrorOf(With(ModernBert(), more)), HasSubstr(word));
  }
}

TEST(EncoderConfigTest, AClassOrElseTheModelTypeNamesTheFamily) {
  json config = Bert();
  config.erase("architectures");
  EXPECT_TRUE(Parse(config)->encoder.is_encoder);
  config["architectures"] = {"BertForQuestionAnswering"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("BertForQuestionAnswering"));
  config["architectures"] = {"BertForSequenceClassification"};
  EXPECT_TRUE(Parse(config)->has_score_head());
}

TEST(EncoderConfigTest, AClassOfSequencesHasItsFamilysHead) {
  using Form = ScoreHeadConfig::Form;
  EXPECT_FALSE(Parse(Bert())->has_score_head());
  EXPECT_EQ(
      Parse(With(Bert(), {{"architectures", {"BertForSequenceClassification"}}}))->score_head.form,
      Form::kPooler);
  for (const char* name :
       {"RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"}) {
    EXPECT_EQ(Parse(With(Bert(), {{"architectures", {name}}}))->score_head.form, Form::kClassifier);
  }
  json config = With(ModernBert(), {{"architectures", {"ModernBertForSequenceClassification"}}});
  const ScoreHeadConfig plain = Parse(config)->score_head;
  EXPECT_EQ(plain.form, Form::kPrediction);
  EXPECT_FALSE(plain.dense_bias);
  EXPECT_EQ(plain.activation, Activation::kGeluErf);
  config.update({{"classifier_bias", true},
                 {"classifier_pooling", "mean"},
                 {"classifier_activation", "gelu_pytorch_tanh"}});
  const ScoreHeadConfig other = Parse(config)->score_head;
  EXPECT_TRUE(other.reads_mean && other.dense_bias);
  EXPECT_EQ(other.activation, Activation::kGeluTanh);
  EXPECT_THAT(ErrorOf(With(config, {{"classifier_pooling", "max"}})),
              HasSubstr("classifier_pooling"));
  EXPECT_THAT(ErrorOf(With(config, {{"classifier_activation", "silu"}})),
              HasSubstr("classifier_activation"));
}

}  // namespace
}  // namespace continuo::model
