// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/quantisation_config.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace continuo::quantised {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<QuantisationConfig> Read(const json& quantisation) {
  return ReadQuantisationConfig({{"quantization_config", quantisation}});
}

std::string ErrorOf(const json& quantisation) {
  const auto config = Read(quantisation);
  EXPECT_FALSE(config.ok()) << quantisation;
  return std::string(config.status().message());
}

json Packed(const json& changes = json::object(), const json& weights = json::object()) {
  json config = {{"quant_method", "compressed-tensors"},
                 {"format", "pack-quantized"},
                 {"config_groups",
                  {{"group_0",
                    {{"targets", {"Linear"}},
                     {"weights", {{"num_bits", 4}, {"group_size", 128}, {"strategy", "group"}}}}}}},
                 {"ignore", {"lm_head"}}};
  if (!weights.is_null()) config["config_groups"]["group_0"]["weights"].update(weights);
  if (!changes.is_null()) config.update(changes);
  return config;
}

TEST(QuantisationConfigTest, WithoutOneNothingIsQuantised) {
  for (const json& config : std::vector<json>{json::object(),
                                              {{"quantization_config", nullptr}},
                                              {{"text_config", json::object()}},
                                              3}) {
    const auto read = ReadQuantisationConfig(config);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->method, Method::kNone);
  }
}

TEST(QuantisationConfigTest, ItIsFoundWhereFilesHaveIt) {
  const json awq = {{"quant_method", "awq"}};
  for (const json& config : std::vector<json>{{{"quantization_config", awq}},
                                              {{"text_config", {{"quantization_config", awq}}}},
                                              {{"compression_config", awq}},
                                              {{"text_config", {{"compression_config", awq}}}}}) {
    const auto read = ReadQuantisationConfig(config);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->method, Method::kAwq);
    EXPECT_EQ(read->groups[0].scheme.group_size, 128);
  }
}

TEST(QuantisationConfigTest, FieldsBecomeSchemes) {
  const auto fp8 = Read({{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}});
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_EQ(fp8->groups[0].scheme.block_rows, 128);
  EXPECT_EQ(fp8->groups[0].scheme.block_columns, 64);
  const auto gptq =
      Read({{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}, {"desc_act", true}});
  ASSERT_TRUE(gptq.ok()) << gptq.status();
  EXPECT_EQ(gptq->groups[0].scheme.bits, 8);
  EXPECT_EQ(gptq->groups[0].scheme.group_size, 0);
  EXPECT_TRUE(gptq->groups[0].scheme.zeros_less_one);
  const auto second = Read({{"quant_method", "gptq"}, {"checkpoint_format", "gptq_v2"}});
  EXPECT_FALSE(second->groups[0].scheme.zeros_less_one);
  const auto old =
      Read({{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 64}, {"version", "GEMM"}});
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->groups[0].scheme.group_size, 64);
  const auto packed = Read(Packed({}, {{"symmetric", false}}));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->groups[0].scheme.format, Format::kPackedInt);
  EXPECT_FALSE(packed->groups[0].scheme.symmetric);
  // Without a strategy it follows from the size of groups.
  EXPECT_EQ(Read(Packed({}, {{"strategy", nullptr}}))->groups[0].scheme.sharing, Sharing::kGroup);
  EXPECT_EQ(Read(Packed({}, {{"strategy", nullptr}, {"group_size", -1}}))->groups[0].scheme.sharing,
            Sharing::kChannel);
  EXPECT_EQ(
      Read(Packed({}, {{"strategy", nullptr}, {"group_size", nullptr}}))->groups[0].scheme.sharing,
      Sharing::kTensor);
}

TEST(QuantisationConfigTest, WhatIsNotTakenIsRefusedByName) {
  for (const char* const method :
       {"bitsandbytes", "hqq", "aqlm", "torchao", "quanto", "eetq", "modelopt", "fbgemm_fp8",
        "auto-round", "quark", "bitnet", "nonsense"}) {
    EXPECT_THAT(ErrorOf({{"quant_method", method}, {"load_in_4bit", true}}),
                AllOf(HasSubstr(method), HasSubstr("fp8, compressed-tensors, awq, gptq, mxfp4")));
  }
  struct Case {
    json config;
    std::string expected;
  };
  const json gptq = {{"quant_method", "gptq"}}, awq = {{"quant_method", "awq"}},
             fp8 = {{"quant_method", "fp8"}};
  const auto with = [](json config, const json& changes) {
    config.update(changes);
    return config;
  };
  for (const Case& one : std::vector<Case>{
           {json::array(), "quantization_config is []; it must be an object"},
           {{{"bits", 4}}, "has no quant_method"},
           {{{"quant_method", 4}}, "quant_method is 4"},
           {with(gptq, {{"bits", 3}}), "bits 3 is not supported; supported is 4 or 8"},
           {with(gptq, {{"bits", "4"}}), "bits is \"4\""},
           {with(gptq, {{"group_size", 0}}), "group_size is 0"},
           {with(gptq, {{"group_size", -2}}), "group_size is -2"},
           {with(gptq, {{"group_size", 1e300}}), "group_size is 1e+300"},
           {with(gptq, {{"checkpoint_format", "marlin"}}), "marlin"},
           {with(gptq, {{"format", "gptq_p"}}), "gptq_p"},
           {with(gptq, {{"is_marlin_format", true}}), "is_marlin_format"},
           {with(gptq, {{"pack_dtype", "int16"}}), "pack_dtype"},
           {with(gptq, {{"dynamic", {{"+:.*down.*", {{"bits", 8}}}}}}), "dynamic"},
           {with(gptq, {{"dynamic", 3}}), "dynamic is 3"},
           {with(awq, {{"bits", 8}}), "bits 8"},
           {with(awq, {{"version", "gemv"}}), "gemv"},
           {with(awq, {{"backend", "llm-awq"}}), "llm-awq"},
           {with(awq, {{"modules_to_not_convert", "gate"}}), "modules_to_not_convert"},
           {with(fp8, {{"weight_block_size", {128}}}), "weight_block_size is [128]"},
           {with(fp8, {{"weight_block_size", {0, 128}}}), "weight_block_size is [0,128]"},
           {with(fp8, {{"weight_block_size", {1e9, 128}}}), "weight_block_size"},
           {with(fp8, {{"fmt", "e5m2"}}), "e5m2"},
           {with(fp8, {{"expert_dtype", "fp4"}}), "fp4"},
           {Packed({{"format", "marlin-24"}}), "marlin-24"},
           {Packed({{"format", "dense"}}), "dense"},
           {Packed({{"config_groups", json::object()}}), "config_groups is {}"},
           {Packed({{"config_groups", {{"W4A16", {"Linear"}}}}}), "W4A16 is [\"Linear\"]"},
           {Packed({{"quantization_status", "frozen"}}), "frozen"},
           {Packed({{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}), "sparsity_config"},
           {Packed({{"transform_config", {{"config_groups", {{"u", 1}}}}}}), "transform_config"},
           {Packed({}, {{"num_bits", 3}}), "num_bits 3"},
           {Packed({}, {{"type", "float"}}), "type \"float\""},
           {Packed({}, {{"strategy", "token"}}), "strategy \"token\""},
           {Packed({}, {{"group_size", 0}}), "group_size is 0"},
           {Packed({}, {{"strategy", "block"}}), "block_structure is null"},
           {Packed({{"ignore", {"re:("}}}), "ignore"},
       }) {
    EXPECT_THAT(ErrorOf(one.config),
                AllOf(HasSubstr("config.json: quantization_config"), HasSubstr(one.expected)));
  }
}

TEST(QuantisationConfigTest, WhatChangesNothingIsTaken) {
  for (const json& config : std::vector<json>{
           Packed({{"sparsity_config", {{"format", "dense"}}}}),
           Packed({{"sparsity_config", json::object()}}),
           Packed({{"transform_config", json::object()}}),
           Packed({{"kv_cache_scheme", {{"num_bits", 8}}}}),
           {{"quant_method", "gptq"}, {"dynamic", {{"-:.*gate.*", json::object()}}}},
           {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn"}}}}) {
    const auto read = Read(config);
    EXPECT_TRUE(read.ok()) << read.status();
  }
  EXPECT_EQ(Read(Packed())->notes.size(), 0u);
  EXPECT_EQ(Read(Packed({{"kv_cache_scheme", {{"num_bits", 8}}}}))->notes.size(), 1u);
}

TEST(QuantisationConfigTest, ModulesThatAreLeftHaveNoScheme) {
  const auto config = Read(Packed());
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(SchemeOf(*config, "model.layers.0.mlp.up_proj", "t").ok());
  EXPECT_THAT(std::string(SchemeOf(*config, "lm_head", "lm_head.weight_packed").status().message()),
              HasSubstr("tensor lm_head.weight_packed is quantised, and"));
  EXPECT_THAT(std::string(SchemeOf(*config, "model.embed_tokens", "t").status().message()),
              HasSubstr("no group"));
}

}  // namespace
}  // namespace continuo::quantised
