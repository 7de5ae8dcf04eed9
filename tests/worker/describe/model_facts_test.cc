// SPDX-License-Identifier: Apache-2.0
#include "services/worker/describe/model_facts.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/describe/mechanisms.h"
#include "services/worker/model/description/config.h"
#include "tests/testing/tiny_model.h"

namespace continuo::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing::TinyModel;

model::LoadOptions Options(const TinyModel& model) {
  model::LoadOptions options;
  options.source.dir = model.dir();
  options.device.isa = "scalar";
  return options;
}

void SetField(const TinyModel& model, const std::string& field, const nlohmann::json& value) {
  auto config = nlohmann::json::parse(model.Read("config.json"));
  config[field] = value;
  model.Write("config.json", config.dump());
}

ModelFacts FactsOf(const TinyModel& model) { return ReadModelFacts(Options(model), "auto"); }

TEST(ModelFactsTest, AModelThatRunsHasAllFacts) {
  const TinyModel model({.family = "qwen3", .dtype = "bf16"});
  const ModelFacts facts = FactsOf(model);
  EXPECT_TRUE(facts.would_run()) << FactsText(facts);
  EXPECT_EQ(facts.container, "safetensors");
  ASSERT_EQ(facts.stored.size(), 1);
  EXPECT_EQ(facts.stored[0].type, "BF16");
  EXPECT_EQ(facts.stored[0].bytes, 2 * facts.num_parameters);
  ASSERT_TRUE(facts.text.has_value());
  EXPECT_EQ(facts.text->tokenizer_source, "tokenizer.json");
  EXPECT_EQ(facts.text->tokenizer_kind, "byte-level BPE");
  EXPECT_TRUE(facts.text->has_chat_template);
  ASSERT_EQ(facts.text->end_tokens.size(), 1);
  EXPECT_EQ(facts.text->end_tokens[0].id, 300);
  ASSERT_TRUE(facts.estimate.has_value());
  // 2 layers, keys and values of 2 heads of 8 elements in bf16, 16 tokens a block.
  EXPECT_EQ(facts.estimate->bytes_per_block, 2 * 2 * 2 * 8 * 2 * 16);
  EXPECT_EQ(facts.estimate->min_blocks, 256 / 16);
  EXPECT_THAT(FactsText(facts), HasSubstr("would run     yes"));
}

TEST(ModelFactsTest, TheContextIsThatOfItsFlag) {
  const TinyModel model;
  model::LoadOptions options = Options(model);
  options.source.max_context_tokens = 64;
  const ModelFacts facts = ReadModelFacts(options, "auto");
  const auto json = nlohmann::json::parse(FactsJson(facts));
  EXPECT_EQ(json["memory"]["context"], 64);
  EXPECT_EQ(json["memory"]["kv_of_context"], 64 * json["memory"]["kv_per_token"].get<int>());
  options.source.max_context_tokens = 257;
  const ModelFacts beyond = ReadModelFacts(options, "auto");
  EXPECT_FALSE(beyond.would_run());
  EXPECT_THAT(FactsText(beyond), HasSubstr("max_context_tokens is 257"));
}

TEST(ModelFactsTest, TheStateOfASequenceIsTold) {
  const TinyModel model({.family = "lfm2", .dtype = "bf16"});
  const ModelFacts facts = FactsOf(model);
  EXPECT_TRUE(facts.would_run()) << FactsText(facts);
  // Three layers keep two rows of 48 channels in bf16.
  EXPECT_EQ(nlohmann::json::parse(FactsJson(facts))["memory"]["state_of_sequence"], 3 * 2 * 48 * 2);
  EXPECT_THAT(FactsText(facts), HasSubstr("576 bytes recurrent state of a sequence"));
  EXPECT_FALSE(nlohmann::json::parse(FactsJson(FactsOf(TinyModel())))["memory"].contains(
      "state_of_sequence"));
}

TEST(ModelFactsTest, EveryPartTellsItsOwnProblem) {
  const TinyModel model;
  std::filesystem::remove(model.dir() + "/tokenizer.json");
  std::filesystem::remove(model.dir() + "/model.safetensors");
  const ModelFacts facts = FactsOf(model);
  EXPECT_FALSE(facts.would_run());
  ASSERT_EQ(facts.problems.size(), 2);
  EXPECT_THAT(facts.problems[0].message(), HasSubstr("safetensors"));
  EXPECT_THAT(facts.problems[1].message(), HasSubstr("tokenizer.json"));
  EXPECT_TRUE(facts.config.has_value()) << "what can be read is told";
  const auto json = nlohmann::json::parse(FactsJson(facts));
  EXPECT_EQ(json["would_run"], false);
  EXPECT_EQ(json["problems"].size(), 2);
  EXPECT_EQ(json["model"]["architecture"], "LlamaForCausalLM");
  EXPECT_TRUE(json["memory"].is_null());
  EXPECT_TRUE(json["container"].is_null());
}

TEST(ModelFactsTest, OneCauseIsToldOnce) {
  const TinyModel model;
  model::LoadOptions options = Options(model);
  options.source.dir = model.dir() + "/nothing";
  const ModelFacts facts = ReadModelFacts(options, "auto");
  ASSERT_EQ(facts.problems.size(), 1);
  EXPECT_THAT(facts.problems[0].message(), HasSubstr("there is no such folder"));
}

TEST(ModelFactsTest, UnknownFamiliesAndTensorsAreNamed) {
  const TinyModel unknown, other;
  SetField(unknown, "architectures", {"NovelForCausalLM"});
  const ModelFacts facts = FactsOf(unknown);
  ASSERT_EQ(facts.problems.size(), 1);
  EXPECT_THAT(facts.problems[0].message(), HasSubstr("NovelForCausalLM"));
  EXPECT_EQ(facts.stored.size(), 1) << "headers are read all the same";

  SetField(other, "num_hidden_layers", 3);
  EXPECT_THAT(FactsText(FactsOf(other)), HasSubstr("model.layers.2."));
}

TEST(ModelFactsTest, AFormatThatTheDeviceLacksIsAProblem) {
  const TinyModel model;
  model::LoadOptions options = Options(model);
  options.precision.weights = "fp8";
  const ModelFacts facts = ReadModelFacts(options, "auto");
  EXPECT_FALSE(facts.would_run());
  EXPECT_THAT(FactsText(facts), HasSubstr("weights is fp8"));
}

TEST(ModelFactsTest, WarningsDoNotStopAModel) {
  const TinyModel model({.extra_config = R"({"eos_token_id": 99999})"});
  const ModelFacts facts = FactsOf(model);
  EXPECT_TRUE(facts.would_run());
  EXPECT_THAT(facts.warnings, Contains(HasSubstr("99999")));
}

TEST(MechanismsTest, FieldsOfTheConfigurationAreNamed) {
  const TinyModel gemma({.family = "gemma2"}), moe({.family = "qwen3_moe"}),
      phi({.family = "phi3"});
  EXPECT_THAT(
      MechanismsOf(*model::ReadModelConfig(gemma.dir())),
      IsSupersetOf({HasSubstr("sliding window: 24 tokens in 1 of 2 layers"),
                    HasSubstr("soft cap of attention scores"), HasSubstr("soft cap of logits"),
                    HasSubstr("GeGLU"), HasSubstr("scaled embedding")}));
  EXPECT_THAT(MechanismsOf(*model::ReadModelConfig(moe.dir())),
              IsSupersetOf({HasSubstr("experts: 3 of 7 in 1 of 2 layers"),
                            HasSubstr("norms of queries and keys")}));
  EXPECT_THAT(MechanismsOf(*model::ReadModelConfig(phi.dir())),
              Contains(HasSubstr("RoPE of a part of each head")));
  EXPECT_THAT(MechanismsOf(*model::ReadModelConfig(TinyModel().dir())),
              Not(Contains(HasSubstr("experts"))));
}

}  // namespace
}  // namespace continuo::worker
