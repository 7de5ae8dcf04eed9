// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/network/rope.h"
#include "services/worker/model/tools/make_model.h"
#include "tests/worker/model/description/config_cases.h"

namespace continuo::model {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigTest, LlamaDefaultsAreThoseOfHuggingFace) {
  json config = Llama();
  config.erase("num_key_value_heads");
  config.erase("max_position_embeddings");
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.num_kv_heads, 8);
  EXPECT_EQ(parsed.head_dim, 8);
  EXPECT_EQ(parsed.context_length, 2048);
  EXPECT_FLOAT_EQ(parsed.norm_eps, 1e-6f);
  EXPECT_EQ(parsed.ropes[0].theta, 10000);
  EXPECT_FALSE(parsed.tied_embeddings || parsed.qkv_bias || parsed.output_bias || parsed.mlp_bias);
  EXPECT_EQ(parsed.qk_norm, QueryKeyNorm::kNone);
  EXPECT_THAT(parsed.windows, ElementsAre(0, 0, 0, 0));
}

TEST(ConfigTest, LlamaBiasesComeFromTheirFields) {
  const ModelConfig parsed = *Parse(With(Llama(), {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(parsed.qkv_bias && parsed.output_bias && parsed.mlp_bias);
}

TEST(ConfigTest, Llama3ScalingIsReadFromBothPlaces) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 1024}};
  const ModelConfig older =
      *Parse(With(Llama(), {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}));
  EXPECT_EQ(older.ropes[0].type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(older.ropes[0].factor, 8);
  EXPECT_EQ(older.ropes[0].original_context, 1024);
  EXPECT_EQ(older.ropes[0].theta, 500000);
  EXPECT_EQ(older.context_length, 2048);  // stated after scaling
  json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const ModelConfig newer =
      *Parse(With(Llama(), {{"rope_parameters", parameters}, {"dtype", "bfloat16"}}));
  EXPECT_EQ(newer.ropes[0].theta, 500000);
  EXPECT_EQ(RopeFrequencies(newer.ropes[0], 8, 2048), RopeFrequencies(older.ropes[0], 8, 2048));
}

// Computed by hand for theta 10000, head_dim 8: frequencies 1, 0.1, 0.01, 0.001; turns in 1000
// positions 159, 15.9, 1.59, 0.159.
TEST(ConfigTest, Llama3ScalesLongWavesOnly) {
  RopeConfig rope;
  rope.type = RopeConfig::Type::kLlama3;
  rope.factor = 4;
  rope.original_context = 1000;
  const std::vector<float> f = RopeFrequencies(rope, 8, 2048);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.1f);
  const double turns = 1000 * 0.01 / 6.283185307179586;
  const double keep = (turns - 1) / 3;
  EXPECT_FLOAT_EQ(f[2], static_cast<float>((1 - keep) * 0.01 / 4 + keep * 0.01));
  EXPECT_FLOAT_EQ(f[3], 0.00025f);
}

TEST(ConfigTest, LinearScalingStretchesTheContext) {
  const ModelConfig parsed =
      *Parse(With(Llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}));
  EXPECT_EQ(parsed.context_length, 8192);
  const std::vector<float> scaled = RopeFrequencies(parsed.ropes[0], 8, 2048);
  EXPECT_FLOAT_EQ(scaled[0], 0.25f);
  EXPECT_FLOAT_EQ(scaled[3], 0.00025f);
}

TEST(ConfigTest, MistralWindowsEveryLayerUnlessNull) {
  json config = With(Llama(), {{"architectures", {"MistralForCausalLM"}}, {"sliding_window", 100}});
  EXPECT_THAT(Parse(config)->windows, ElementsAre(100, 100, 100, 100));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(Parse(config)->windows, Each(0));
  config["sliding_window"] = 4096;  // hides nothing in 2048 tokens
  EXPECT_THAT(Parse(config)->windows, Each(0));
  config.erase("sliding_window");
  config["max_position_embeddings"] = 32768;
  EXPECT_THAT(Parse(config)->windows, Each(4096));
}

TEST(ConfigTest, Qwen2WindowsItsLaterLayersWhereSwitchedOn) {
  json config = With(
      Llama(),
      {{"architectures", {"Qwen2ForCausalLM"}}, {"sliding_window", 100}, {"max_window_layers", 3}});
  EXPECT_THAT(Parse(config)->windows, Each(0));
  EXPECT_TRUE(Parse(config)->qkv_bias);
  EXPECT_FALSE(Parse(config)->output_bias);
  config["use_sliding_window"] = true;
  EXPECT_THAT(Parse(config)->windows, ElementsAre(0, 0, 0, 100));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "full_attention"};
  EXPECT_THAT(Parse(config)->windows, ElementsAre(100, 0, 0, 0));
  config["layer_types"] = {"full_attention"};
  EXPECT_THAT(Error(config), HasSubstr("layer_types"));
}

TEST(ConfigTest, Qwen3HasNormsAndItsOwnHeadDim) {
  const ModelConfig parsed = *Parse(With(Llama(), {{"architectures", {"Qwen3ForCausalLM"}}}));
  EXPECT_EQ(parsed.qk_norm, QueryKeyNorm::kHeads);
  EXPECT_EQ(parsed.head_dim, 128);
}

TEST(ConfigTest, MixtralNormalisesTheWeightsOfItsExperts) {
  const ModelConfig parsed = *Parse(With(Llama(), {{"architectures", {"MixtralForCausalLM"}}}));
  EXPECT_EQ(parsed.experts.num_experts, 8);
  EXPECT_EQ(parsed.experts.per_token, 2);
  EXPECT_EQ(parsed.experts.intermediate_size, 172);
  EXPECT_TRUE(parsed.experts.normalise);
  EXPECT_THAT(parsed.experts.layers, Each(true));
  EXPECT_THAT(parsed.windows, Each(0));
  EXPECT_EQ(parsed.ropes[0].theta, 1e6);
}

TEST(ConfigTest, Qwen3MoeLayersAreDenseWhereTheFieldsSaySo) {
  json config = With(Llama(), {{"architectures", {"Qwen3MoeForCausalLM"}},
                               {"num_experts", 16},
                               {"num_experts_per_tok", 4},
                               {"moe_intermediate_size", 24},
                               {"norm_topk_prob", true}});
  EXPECT_THAT(Parse(config)->experts.layers, ElementsAre(true, true, true, true));
  EXPECT_EQ(Parse(config)->qk_norm, QueryKeyNorm::kHeads);
  EXPECT_EQ(Parse(config)->head_dim, 8);
  config["decoder_sparse_step"] = 2;
  EXPECT_THAT(Parse(config)->experts.layers, ElementsAre(false, true, false, true));
  config["mlp_only_layers"] = {3};
  EXPECT_THAT(Parse(config)->experts.layers, ElementsAre(false, true, false, false));
  for (const json& layer : {json(4), json(-1), json(1.5), json("0")}) {
    EXPECT_THAT(Error(With(config, {{"mlp_only_layers", {layer}}})),
                AllOf(HasSubstr("mlp_only_layers"), HasSubstr("from 0 to 3")));
  }
  EXPECT_THAT(Error(With(config, {{"num_experts_per_tok", 17}})),
              AllOf(HasSubstr("num_experts_per_tok"), HasSubstr("from 1 to 16")));
  EXPECT_THAT(Error(With(config, {{"num_experts", 1024}, {"num_hidden_layers", 1000}})),
              AllOf(HasSubstr("num_experts"), HasSubstr("65536")));
}

TEST(ConfigTest, GemmaTakesItsCapsScalesAndWindows) {
  json config =
      With(Llama(),
           {{"architectures", {"Gemma2ForCausalLM"}}, {"head_dim", 16}, {"sliding_window", 100}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.attention_softcap, 50);
  EXPECT_EQ(parsed.final_softcap, 30);
  EXPECT_EQ(parsed.attention_scale, 1.0 / 16);
  EXPECT_EQ(parsed.embedding_scale, 8);
  EXPECT_THAT(parsed.windows, ElementsAre(100, 0, 100, 0));
  EXPECT_TRUE(parsed.tied_embeddings && parsed.gains_less_one && parsed.output_norms);
  config["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(Parse(config)->attention_softcap, 0);
  config["layer_types"] = {"full_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  EXPECT_THAT(Parse(config)->windows, ElementsAre(0, 0, 0, 100));
  EXPECT_THAT(Error(With(config, {{"hidden_activation", "gelu"}})), HasSubstr("gelu"));
  EXPECT_THAT(Error(With(config, {{"attention_bias", true}})), HasSubstr("attention_bias"));
}

TEST(ConfigTest, Phi3RotatesAPartOfEachHead) {
  json config = With(Llama(), {{"architectures", {"Phi3ForCausalLM"}}});
  EXPECT_EQ(Parse(config)->rotary_dim, 8);
  config["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(Parse(config)->rotary_dim, 6);
  config["partial_rotary_factor"] = 0.4;
  EXPECT_THAT(Error(config), AllOf(HasSubstr("partial_rotary_factor"), HasSubstr("3 of 8")));
  config["partial_rotary_factor"] = 0;
  EXPECT_THAT(Error(config), HasSubstr("partial_rotary_factor"));
}

TEST(ConfigTest, LongRopePicksItsFactorsByTheContextThatIsServed) {
  json config = With(Llama(), {{"architectures", {"Phi3ForCausalLM"}},
                               {"max_position_embeddings", 8192},
                               {"original_max_position_embeddings", 2048},
                               {"rope_scaling",
                                {{"type", "longrope"},
                                 {"short_factor", {1.0, 1.0, 2.0, 4.0}},
                                 {"long_factor", {1.0, 2.0, 8.0, 16.0}}}}});
  const ModelConfig parsed = *Parse(config);
  EXPECT_EQ(parsed.context_length, 8192);
  const std::vector<float> short_ones = RopeFrequencies(parsed.ropes[0], 8, 2048);
  EXPECT_FLOAT_EQ(short_ones[2], 0.005f);
  EXPECT_FLOAT_EQ(short_ones[3], 0.00025f);
  const std::vector<float> long_ones = RopeFrequencies(parsed.ropes[0], 8, 2049);
  EXPECT_FLOAT_EQ(long_ones[1], 0.05f);
  EXPECT_FLOAT_EQ(long_ones[3], 0.0000625f);
  // √(1 + ln 4 / ln 2048)
  EXPECT_NEAR(parsed.ropes[0].attention_factor, std::sqrt(1 + std::log(4.0) / std::log(2048.0)),
              1e-12);
  for (const json& factors : {json{1.0, 1.0, 2.0}, json{1.0, 1.0, 2.0, "4"}, json(1.0),
                              json{1.0, 1.0, 2.0, 0.5}, json{1.0, 1.0, 2.0, 1e300}}) {
    config["rope_scaling"]["long_factor"] = factors;
    EXPECT_THAT(Error(config), AllOf(HasSubstr("long_factor"), HasSubstr("list of 4 numbers")));
  }
}

TEST(ConfigTest, ModelTypeServesWhereArchitecturesIsMissing) {
  json config = With(Llama(), {{"model_type", "qwen2"}});
  config.erase("architectures");
  EXPECT_EQ(Parse(config)->architecture, "Qwen2ForCausalLM");
}

TEST(ConfigTest, ModelsAreFoundByWhatTheirArchitecturesPlainlyMean) {
  struct Case {
    json architectures;
    const char* model_type;
    const char* expected;  // empty: refused
  };
  const Case cases[] = {
      {{"LlamaModel"}, "llama", "LlamaForCausalLM"},
      {{"LlamaModel"}, nullptr, "LlamaForCausalLM"},
      {{"LLaMAForCausalLM"}, "llama", "LlamaForCausalLM"},
      {{"LlamaLMHeadModel"}, "llama", "LlamaForCausalLM"},
      {{"Llama"}, nullptr, "LlamaForCausalLM"},
      {{"llama"}, nullptr, "LlamaForCausalLM"},
      {"LlamaForCausalLM", "llama", "LlamaForCausalLM"},
      {"LlamaModel", nullptr, "LlamaForCausalLM"},
      {{"MistralModel"}, "mistral", "MistralForCausalLM"},
      {{"MixtralModel"}, "mixtral", "MixtralForCausalLM"},
      {{"Qwen2Model"}, "qwen2", "Qwen2ForCausalLM"},
      {{"Qwen3Model"}, "qwen3", "Qwen3ForCausalLM"},
      {{"Qwen3MoeModel"}, "qwen3_moe", "Qwen3MoeForCausalLM"},
      {{"qwen3_moe"}, nullptr, "Qwen3MoeForCausalLM"},
      {{"Phi3Model"}, "phi3", "Phi3ForCausalLM"},
      {json::array(), "llama", "LlamaForCausalLM"},
      {nullptr, "mistral", "MistralForCausalLM"},
      {{"Unheard", "LlamaForCausalLM"}, "other", "LlamaForCausalLM"},
      {{7, "LlamaModel"}, "llama", "LlamaForCausalLM"},
      // These mean something else, or nobody knows what.
      {{"LlamaForSequenceClassification"}, "llama", "LlamaForCausalLM"},
      {{"LlamaForTokenClassification"}, "llama", ""},
      {{"LlamaForCausalLMEagle3"}, "llama", ""},
      {{"LlamaModel"}, "qwen2", ""},
      {{"Qwen2"}, "llama", ""},
      {{"Qwen2VLForConditionalGeneration"}, "qwen2_vl", ""},
      {{"GemmaModel"}, "gemma", "GemmaForCausalLM"},
      {{"GPT2Model"}, "gpt2", ""},
      {{"Model"}, nullptr, ""},
      {{""}, nullptr, ""},
      {json::array(), "unheard", ""},
      {json::array(), nullptr, ""},
      {json::object(), nullptr, ""},
  };
  for (const Case& one : cases) {
    json config = With(Llama(), {{"architectures", one.architectures}});
    if (one.model_type != nullptr) config["model_type"] = one.model_type;
    const auto parsed = Parse(config);
    if (*one.expected != '\0') {
      ASSERT_TRUE(parsed.ok()) << config << parsed.status();
      EXPECT_EQ(parsed->architecture, one.expected) << config;
    } else {
      ASSERT_FALSE(parsed.ok()) << config;
      EXPECT_THAT(std::string(parsed.status().message()),
                  AllOf(HasSubstr("archite"), HasSubstr("known are LlamaForCausalLM, ")));
    }
  }
}

TEST(ConfigTest, EndOfSequenceIsTheUnionOfWhatTheFilesName) {
  const json config = With(Llama(), {{"eos_token_id", 2}});
  const auto ids = [](const json& config, const std::string& generation) {
    const auto parsed = Parse(config, generation);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(parsed->warnings, ::testing::IsEmpty());
    return parsed->defaults.eos_token_ids;
  };
  EXPECT_THAT(ids(config, ""), ElementsAre(2));
  EXPECT_THAT(ids(config, R"({"eos_token_id":[7,3,7]})"), ElementsAre(2, 3, 7));
  EXPECT_THAT(ids(config, R"({"eos_token_id":2})"), ElementsAre(2));
  EXPECT_THAT(ids(config, R"({"temperature":0.5})"), ElementsAre(2));
  EXPECT_THAT(ids(config, R"({"eos_token_id":null})"), ElementsAre(2));
  EXPECT_THAT(ids(Llama(), R"({"eos_token_id":511})"), ElementsAre(511));
  EXPECT_THAT(ids(Llama(), R"({"eos_token_id":4.0})"), ElementsAre(4));
  EXPECT_THAT(ids(Llama(), "{}"), ::testing::IsEmpty());
  EXPECT_THAT(ids(With(config, {{"text_config", {{"eos_token_id", {9, 1}}}}}), ""),
              ElementsAre(1, 2, 9));
  EXPECT_THAT(ids(With(config, {{"text_config", "none"}}), ""), ElementsAre(2));
  for (const json& wrong : {json("2"), json(true), json(1.5), json::object(), json{{"a", 1}},
                            json{2, "3"}, json(std::vector<int>(65, 1))}) {
    EXPECT_THAT(Error(With(Llama(), {{"eos_token_id", wrong}})), HasSubstr("eos_token_id"));
    EXPECT_THAT(Error(With(Llama(), {{"text_config", {{"eos_token_id", wrong}}}})),
                HasSubstr("text_config: eos_token_id"));
    EXPECT_THAT(Error(Llama(), json{{"eos_token_id", wrong}}.dump()),
                HasSubstr("generation_config.json: eos_token_id"));
  }
}

TEST(ConfigTest, EndsThatTheModelCannotSampleAreLeftOutWithAWarning) {
  for (const json& id : {json(512), json(151645), json(-1), json(1e300), json(uint64_t{1} << 63)}) {
    const json ends = {{"eos_token_id", {3, id}}};
    const auto in_config = Parse(With(Llama(), ends)), in_generation = Parse(Llama(), ends.dump());
    for (const auto& parsed : {in_config, in_generation}) {
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_THAT(parsed->defaults.eos_token_ids, ElementsAre(3));
      EXPECT_THAT(parsed->warnings, ElementsAre(AllOf(HasSubstr("eos_token_id has " + id.dump()),
                                                      HasSubstr("vocabulary of 512"))));
    }
  }
}

TEST(ConfigTest, GenerationDefaultsAreReadAndTheRestIgnored) {
  const ModelConfig parsed = *Parse(Llama(), R"({"temperature":0.6,"top_k":20,"top_p":0.95,
      "min_p":0.1,"repetition_penalty":1.05,"do_sample":true,"transformers_version":"4"})");
  EXPECT_FLOAT_EQ(*parsed.defaults.temperature, 0.6f);
  EXPECT_EQ(*parsed.defaults.top_k, 20);
  EXPECT_FLOAT_EQ(*parsed.defaults.top_p, 0.95f);
  EXPECT_FLOAT_EQ(*parsed.defaults.min_p, 0.1f);
  EXPECT_FLOAT_EQ(*parsed.defaults.repetition_penalty, 1.05f);
  EXPECT_FALSE(Parse(Llama())->defaults.top_k.has_value());
  EXPECT_THAT(parsed.warnings, ::testing::IsEmpty());
}

TEST(ConfigTest, GenerationDefaultsBeyondTheirLimitsAreClampedWithAWarning) {
  struct Case {
    const char* field;
    json value;
    double expected;
  };
  const Case cases[] = {
      {"temperature", -1, 0},
      {"temperature", 1000, 100},
      {"temperature", -1e300, 0},
      {"top_p", 2, 1},
      {"top_p", 1.5, 1},
      {"top_p", 0, 1e-6},
      {"top_p", -0.5, 1e-6},
      {"min_p", -0.1, 0},
      {"min_p", 7, 1},
      {"repetition_penalty", 0, 1},
      {"top_k", -5, 0},
      {"repetition_penalty", 3.5, 2},
      {"repetition_penalty", -1, 1},
      {"top_k", 5000000000, 2147483647},
      {"top_k", -1e18, 0},
      {"top_k", 1e300, 2147483647},
  };
  for (const Case& one : cases) {
    const auto parsed = Parse(Llama(), json{{one.field, one.value}}.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const GenerationDefaults& d = parsed->defaults;
    const std::map<std::string, double> values = {
        {"temperature", d.temperature.value_or(-7)},
        {"top_p", d.top_p.value_or(-7)},
        {"min_p", d.min_p.value_or(-7)},
        {"repetition_penalty", d.repetition_penalty.value_or(-7)},
        {"top_k", d.top_k.value_or(-7)}};
    EXPECT_FLOAT_EQ(values.at(one.field), one.expected) << one.field << one.value;
    EXPECT_THAT(parsed->warnings,
                ElementsAre(AllOf(HasSubstr("generation_config.json: "), HasSubstr(one.field),
                                  HasSubstr(" is " + one.value.dump()), HasSubstr("is used"))));
  }
  // Limits themselves, and another way to say all, are no reason to warn.
  for (const char* fine : {R"({"top_k":-1})", R"({"top_k":0})", R"({"top_k":50.0})",
                           R"({"temperature":0})", R"({"temperature":100})", R"({"top_p":1})",
                           R"({"min_p":0,"repetition_penalty":2})", R"({"temperature":null})"}) {
    const auto parsed = Parse(Llama(), fine);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(parsed->warnings, ::testing::IsEmpty()) << fine;
  }
  EXPECT_EQ(Parse(Llama(), R"({"top_k":-1})")->defaults.top_k, 0);
  // A default that would change answers and is not taken is told, unless its value changes nothing.
  const std::pair<const char*, const char*> unsupported[] = {
      {R"({"suppress_tokens":[1,2]})", "suppress_tokens is not supported"},
      {R"({"stop_strings":"###"})",
       "stop_strings is not supported as a default; a request can send stop"},
      {R"({"stop_strings":["a"]})", "stop_strings"},
      {R"({"bad_words_ids":[[3]]})", "bad_words_ids"},
      {R"({"num_beams":4})", "num_beams"},
      {R"({"no_repeat_ngram_size":3})", "no_repeat_ngram_size"},
      {R"({"typical_p":0.9})", "typical_p"},
      {R"({"min_new_tokens":5})", "min_new_tokens"},
      {R"({"max_new_tokens":5})",
       "max_new_tokens is not supported as a default; a request can send max_tokens"},
      {R"({"max_length":7})", "max_length"},
      {R"({"repetition_penalty":0})", "repetition_penalty is 0; it must be above 0, and 1 is used"},
      {R"({"repetition_penalty":-1.5})", "repetition_penalty is -1.5; it must be above 0"},
      {R"({"forced_eos_token_id":2})", "forced_eos_token_id"},
      {R"({"sequence_bias":[[[1],2.0]]})", "sequence_bias"},
      {R"({"watermarking_config":{"ngram_len":4}})", "watermarking_config"},
      {R"({"do_sample":false})", "do_sample is not supported as a default"},
  };
  for (const auto& [text, warning] : unsupported) {
    const auto parsed = Parse(Llama(), text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(parsed->warnings,
                ElementsAre(AllOf(HasSubstr("generation_config.json: "), HasSubstr(warning))));
  }
  for (const char* neutral :
       {R"({"suppress_tokens":[],"stop_strings":null,"num_beams":1,"no_repeat_ngram_size":0})",
        R"({"typical_p":1.0,"min_length":0,"guidance_scale":1,"sequence_bias":null})",
        R"({"do_sample":true,"max_length":20,"use_cache":true,"transformers_version":"4.40.0"})",
        R"({"do_sample":false,"temperature":0})"}) {
    const auto parsed = Parse(Llama(), neutral);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(parsed->warnings, ::testing::IsEmpty()) << neutral;
  }
  for (const char* wrong :
       {R"({"temperature":"0.7"})", R"({"top_p":true})", R"({"top_k":[50]})", R"({"top_k":1.5})",
        R"({"min_p":{}})", R"({"repetition_penalty":"1"})"}) {
    EXPECT_THAT(Error(Llama(), wrong), HasSubstr("generation_config.json: ")) << wrong;
  }
}

TEST(ConfigTest, WhatIsNoJsonIsToldByLine) {
  const std::string good = Llama().dump();
  EXPECT_TRUE(ParseModelConfig("\xEF\xBB\xBF" + good, "\xEF\xBB\xBF{}").ok());
  struct Case {
    std::string text, expected;
  };
  for (const Case& one :
       std::vector<Case>{{"{\n\"rope_theta\": NaN}", "line 2, column 15: NaN is no JSON"},
                         {"{\n\n\"rope_theta\": Infinity}", "line 3, column 15: Infinity"},
                         {"{\n\n\"rope_theta\": -Infinity}", "line 3, column 15: -Infinity"},
                         {"{\"a\": 1,\n\"a\": 2}",
                          "line 2, column 3: field \"a\" is there twice, first in line 1"},
                         {"{\n\"a\": 1,\n}", "line 3, column 1: not JSON"}}) {
    EXPECT_THAT(std::string(ParseModelConfig(one.text, "").status().message()),
                HasSubstr("config.json: " + one.expected));
    EXPECT_THAT(std::string(ParseModelConfig(good, one.text).status().message()),
                HasSubstr("generation_config.json: " + one.expected));
  }
}

TEST(ConfigTest, WhatIsNotKnownIsRefusedByName) {
  EXPECT_THAT(Error(With(Llama(), {{"architectures", {"GPT2LMHeadModel"}}})),
              AllOf(HasSubstr("GPT2LMHeadModel"), HasSubstr("Qwen3ForCausalLM")));
  EXPECT_THAT(Error(With(Llama(), {{"hidden_act", "gelu"}})), HasSubstr("gelu"));
  EXPECT_THAT(Error(With(Llama(), {{"quantization_config", {{"bits", 4}}}})),
              HasSubstr("quantization_config"));
  EXPECT_THAT(Error(With(Llama(), {{"rope_scaling", {{"rope_type", "axial"}, {"factor", 4}}}})),
              HasSubstr("axial"));
  EXPECT_THAT(Error(With(Llama(), {{"partial_rotary_factor", 0.5}})),
              HasSubstr("partial_rotary_factor"));
}

TEST(ConfigTest, ErrorsNameTheFieldItsValueAndTheLimit) {
  const auto hostile = [](const std::string& field, const json& value, const std::string& limit) {
    EXPECT_THAT(Error(With(Llama(), {{field, value}})), AllOf(HasSubstr(field), HasSubstr(limit)))
        << field << " = " << value;
  };
  for (const json& value : {json(0), json(-1), json(1e300), json(uint64_t{1} << 63), json(1.5),
                            json("64"), json(true), json::array(), json::object()}) {
    hostile("vocab_size", value, "from 1 to 4194304");
    hostile("hidden_size", value, "from 1 to 131072");
    hostile("num_hidden_layers", value, "from 1 to 1024");
    hostile("max_position_embeddings", value, "from 1 to 16777216");
  }
  hostile("num_key_value_heads", 3, "divide num_attention_heads, 8");
  hostile("num_attention_heads", 1024, "head");
  hostile("head_dim", 7, "even");
  hostile("rms_norm_eps", -1, "from 0 to 1");
  hostile("rope_theta", 0, "from 1");
  hostile("tie_word_embeddings", "yes", "true or false");
  hostile("rope_scaling", "llama3", "object");
  hostile("rope_scaling", {{"rope_type", "llama3"}}, "factor");
  json missing = Llama();
  missing.erase("hidden_size");
  EXPECT_THAT(Error(missing), HasSubstr("hidden_size is missing"));
}

TEST(ConfigTest, TextThatIsNoConfigurationIsRefused) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), deep,
        R"({"rope_scaling":)" + deep + "}", std::string("{\"vocab_size\":1,\"vocab_size\":2}"),
        std::string("\xff\xfe{}"), std::string(1, '\0')}) {
    EXPECT_FALSE(ParseModelConfig(text, "").ok());
    // An empty text is no generation_config.json.
    EXPECT_EQ(ParseModelConfig(Llama().dump(), text).ok(), text.empty());
  }
}

TEST(ConfigTest, DamagedTextNeverEndsTheProcess) {
  for (const char* shape : {"llama-3.1-8b", "qwen3-30b-a3b", "gemma-2-2b", "phi-3-mini"}) {
    const std::string whole = *ConfigOfShape(shape);
    std::mt19937 random(1);
    int refused = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text = whole;
      for (uint32_t n = 1 + random() % 4; n > 0; --n) {
        // Half of the bytes are digits, which leave a valid configuration more often.
        text[random() % text.size()] =
            static_cast<char>(random() % 2 == 0 ? '0' + random() % 10 : random());
      }
      const auto parsed = ParseModelConfig(text, "");
      refused += parsed.ok() ? 0 : 1;
      if (!parsed.ok()) continue;
      EXPECT_EQ(parsed->experts.layers.size(), static_cast<size_t>(parsed->num_layers));
      if (i % 50 == 0) {
        EXPECT_GT(NumParameters(*parsed), 0);
      }
      for (const float frequency :
           RopeFrequencies(parsed->ropes[0], parsed->rotary_dim, parsed->context_length)) {
        EXPECT_TRUE(frequency >= 0 && frequency <= 1);
      }
    }
    EXPECT_GT(refused, 500) << shape;
  }
}

TEST(ConfigTest, ParametersOfPublicShapesAreThePublishedNumbers) {
  const auto count = [](const char* shape) {
    return NumParameters(*ParseModelConfig(*ConfigOfShape(shape), ""));
  };
  EXPECT_EQ(count("qwen3-0.6b"), 596049920);
  EXPECT_EQ(count("llama-3.2-1b"), 1235814400);
  EXPECT_EQ(count("llama-3.1-8b"), 8030261248);
  EXPECT_EQ(count("qwen3-30b-a3b"), 30532122624);
  EXPECT_EQ(count("mixtral-8x7b"), 46702792704);
  EXPECT_EQ(count("gemma-2-2b"), 2614341888);
  EXPECT_EQ(count("phi-3-mini"), 3821079552);
  EXPECT_EQ(count("lfm2-350m"), 354483968);
}

}  // namespace
}  // namespace continuo::model
