// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace continuo::model {
namespace {

using ::testing::HasSubstr;

// As PEFT 0.21 writes it, most fields at their defaults.
nlohmann::json Published() {
  return nlohmann::json::parse(R"({
    "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
    "auto_mapping": null, "base_model_name_or_path": "org/model", "bias": "none",
    "corda_config": null, "ensure_weight_tying": false, "eva_config": null,
    "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
    "init_lora_weights": true, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 32, "lora_bias": false,
    "lora_dropout": 0.05, "lora_ga_config": null, "megatron_config": null,
    "megatron_core": "megatron.core", "modules_to_save": null, "peft_type": "LORA",
    "peft_version": "0.21.2", "qalora_group_size": 16, "r": 16, "rank_pattern": {},
    "revision": null, "target_modules": ["q_proj", "v_proj"], "target_parameters": null,
    "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
    "use_dora": false, "use_qalora": false, "use_rslora": false})");
}

absl::StatusOr<AdapterConfig> Parse(const nlohmann::json& json) {
  return AdapterConfig::Parse(json.dump());
}

constexpr char kQ[] = "model.layers.3.self_attn.q_proj";
constexpr char kV[] = "model.layers.13.self_attn.v_proj";

TEST(AdapterConfigTest, APublishedFileGivesRankAndFactor) {
  const auto config = Parse(Published());
  ASSERT_TRUE(config.ok()) << config.status();
  const auto module = config->Find(kQ);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->rank, 16);
  EXPECT_EQ(module->factor, 2);
}

TEST(AdapterConfigTest, RankStabilisedAdaptersDivideByTheRoot) {
  nlohmann::json json = Published();
  json["use_rslora"] = true;
  EXPECT_EQ(Parse(json)->Find(kQ)->factor, 8);
}

TEST(AdapterConfigTest, PatternsAreRegularExpressionsForTheEndOfAName) {
  nlohmann::json json = Published();
  json["rank_pattern"] = {{"v_proj", 4}, {R"(^model\.layers\.3\.self_attn\.q_proj)", 8}};
  json["alpha_pattern"] = {{R"(layers\.1\d\.self_attn\.v_proj)", 1.5}};
  const auto config = Parse(json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->Find(kQ)->rank, 8);
  EXPECT_EQ(config->Find(kQ)->factor, 4);
  EXPECT_EQ(config->Find(kV)->rank, 4);
  EXPECT_EQ(config->Find(kV)->factor, 0.375);
  EXPECT_EQ(config->Find("model.layers.4.self_attn.q_proj")->rank, 16);
}

TEST(AdapterConfigTest, PatternsThatContradictEachOtherAreRefused) {
  nlohmann::json json = Published();
  json["rank_pattern"] = {{"q_proj", 4}, {"self_attn.q_proj", 8}};
  const auto found = Parse(json)->Find(kQ);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("rank_pattern"));
}

TEST(AdapterConfigTest, ListedModulesAndLayersAreTheOnlyOnes) {
  nlohmann::json json = Published();
  EXPECT_THAT(std::string(Parse(json)->Find("model.layers.3.mlp.up_proj").status().message()),
              HasSubstr("target_modules does not name \"model.layers.3.mlp.up_proj\""));
  // Only a whole part of a name counts.
  EXPECT_FALSE(Parse(json)->Find("model.layers.3.self_attn.my_q_proj").ok());
  json["layers_to_transform"] = {2, 3};
  EXPECT_TRUE(Parse(json)->Find(kQ).ok());
  EXPECT_THAT(std::string(Parse(json)->Find(kV).status().message()),
              HasSubstr("layers_to_transform"));
  json["layers_to_transform"] = 13;
  EXPECT_FALSE(Parse(json)->Find(kQ).ok());
  EXPECT_TRUE(Parse(json)->Find(kV).ok());
  json = Published();
  // Tools write all names, one after the other.
  std::string all = ".*(q_proj";
  for (int i = 0; i < 200; ++i) all += absl::StrCat("|layers.", i, ".up_proj");
  for (const std::string& text : {std::string("all-linear"), all + ")"}) {
    json["target_modules"] = text;
    EXPECT_TRUE(Parse(json)->Find("model.layers.3.mlp.up_proj").ok()) << text;
  }
}

TEST(AdapterConfigTest, WhatAsksForMoreIsRefusedByName) {
  const struct {
    const char *field, *value;
  } cases[] = {{"peft_type", "\"LOHA\""},
               {"peft_type", "null"},
               {"task_type", "\"SEQ_CLS\""},
               {"bias", "\"lora_only\""},
               {"modules_to_save", "[\"lm_head\"]"},
               {"use_dora", "true"},
               {"fan_in_fan_out", "true"},
               {"lora_bias", "true"},
               {"use_qalora", "true"},
               {"init_lora_weights", "\"pissa_niter_4\""},
               {"init_lora_weights", "\"olora\""},
               {"layer_replication", "[[0, 2]]"},
               {"alora_invocation_tokens", "[1, 2]"},
               {"trainable_token_indices", "[7]"},
               {"target_parameters", "[\"mlp.experts.gate_up_proj\"]"},
               {"use_bdlora", "{\"nblocks\": 2}"},
               {"arrow_config", "{\"top_k\": 3}"},
               {"kasa_config", "{\"beta\": 1}"},
               {"velora_config", "{\"scale\": 1}"},
               {"monteclora_config", "{\"num_samples\": 2}"},
               {"megatron_config", "{\"a\": 1}"},
               {"of_a_later_release", "true"}};
  for (const auto& [field, value] : cases) {
    nlohmann::json json = Published();
    json[field] = nlohmann::json::parse(value);
    const auto config = Parse(json);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kUnimplemented) << field;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(field));
  }
  nlohmann::json json = Published();
  json["of_a_later_release"] = nlohmann::json::array();
  for (const char* init : {"gaussian", "eva", "orthogonal"}) {
    json["init_lora_weights"] = init;
    EXPECT_TRUE(Parse(json).ok()) << init;
  }
}

TEST(AdapterConfigTest, WrongValuesAreRefusedWithTheField) {
  const struct {
    const char *field, *value;
  } cases[] = {{"r", "0"},
               {"r", "257"},
               {"r", "\"8\""},
               {"r", "null"},
               {"lora_alpha", "1e7"},
               {"lora_alpha", "[]"},
               {"use_rslora", "1"},
               {"target_modules", "null"},
               {"target_modules", "[]"},
               {"target_modules", "[1]"},
               {"target_modules", "[\"\"]"},
               {"layers_to_transform", "[-1]"},
               {"layers_to_transform", "\"all\""},
               {"rank_pattern", "[]"},
               {"rank_pattern", "{\"q_proj\": 300}"},
               {"rank_pattern", "{\"q_proj\": 1.5}"},
               {"rank_pattern", "{\"q_proj\": null}"},
               {"rank_pattern", "{\"\": 4}"},
               {"rank_pattern", "{\"(\": 4}"},
               {"rank_pattern", "{\"a)|(b\": 4}"},
               {"rank_pattern", "{\"(?=q)q_proj\": 4}"},
               {"alpha_pattern", "{\"layers.[0-9]{,2}.q_proj\": 4}"},
               {"alpha_pattern", "{\"q_proj\": \"x\"}"}};
  for (const auto& [field, value] : cases) {
    nlohmann::json json = Published();
    json[field] = nlohmann::json::parse(value);
    const auto config = Parse(json);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << field << value;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(field)) << value;
  }
  EXPECT_FALSE(AdapterConfig::Parse("").ok());
  EXPECT_FALSE(AdapterConfig::Parse("[]").ok());
  nlohmann::json json = Published();
  json["rank_pattern"] = {{std::string(513, 'a'), 4}};
  EXPECT_FALSE(Parse(json).ok());
  json["rank_pattern"] = {{"(a{1000}){1000}", 4}};
  EXPECT_FALSE(Parse(json).ok()) << "a pattern that takes much memory";
}

}  // namespace
}  // namespace continuo::model
