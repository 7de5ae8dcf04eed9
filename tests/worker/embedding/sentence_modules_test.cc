// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/sentence_modules.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/testing/temp_folder.h"

namespace continuo::embedding {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kModules = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
constexpr std::string_view kPooling = R"({
  "word_embedding_dimension": 1024, "pooling_mode_cls_token": false,
  "pooling_mode_mean_tokens": false, "pooling_mode_max_tokens": false,
  "pooling_mode_mean_sqrt_len_tokens": false, "pooling_mode_weightedmean_tokens": false,
  "pooling_mode_lasttoken": true, "include_prompt": true})";

// A model's folder.
class Folder {
 public:
  void Write(const std::string& file, std::string_view text) const {
    const std::filesystem::path path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  absl::StatusOr<std::optional<SentenceModules>> Read() const {
    return ReadSentenceModules(folder_.path().string());
  }

 private:
  testing::TempFolder folder_;
};

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST(SentenceModulesTest, AFolderWithoutModulesIsNone) {
  const Folder folder;
  EXPECT_FALSE(folder.Read()->has_value());
  EXPECT_FALSE(ReadSentenceModules("/nowhere")->has_value());
}

TEST(SentenceModulesTest, AQwen3EmbeddingFolderIsRead) {
  const Folder folder;
  folder.Write("modules.json", kModules);
  folder.Write("1_Pooling/config.json", kPooling);
  folder.Write("config_sentence_transformers.json", R"({
    "prompts": {"query": "Instruct: find\nQuery:", "document": ""},
    "default_prompt_name": null, "similarity_fn_name": "cosine"})");
  const auto modules = folder.Read();
  ASSERT_TRUE(modules.ok()) << modules.status();
  EXPECT_EQ((*modules)->dimension, 1024);
  EXPECT_TRUE((*modules)->normalises);
  EXPECT_EQ((*modules)->max_tokens, 0);
  ASSERT_EQ((*modules)->prompts.size(), 2u);
  EXPECT_EQ((*modules)->prompts[0].name, "document");
  EXPECT_EQ((*modules)->prompts[1].text, "Instruct: find\nQuery:");
  EXPECT_EQ((*modules)->default_prompt, "");
}

TEST(SentenceModulesTest, NewerNamesAndDenseModulesAreRead) {
  const Folder folder;
  folder.Write("modules.json", R"([
    {"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
    {"idx": 1, "path": "1_Pooling",
     "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"},
    {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.base.modules.dense.Dense"},
    {"idx": 3, "path": "3_Dense", "type": "sentence_transformers.base.modules.dense.Dense"}])");
  folder.Write(
      "1_Pooling/config.json",
      R"({"embedding_dimension": 8, "pooling_mode": "lasttoken", "include_prompt": true})");
  folder.Write("2_Dense/config.json", R"({"in_features": 8, "out_features": 24, "bias": false,
    "activation_function": "torch.nn.modules.linear.Identity",
    "module_input_name": "sentence_embedding", "module_output_name": null})");
  folder.Write("3_Dense/config.json", R"({"in_features": 24, "out_features": 6})");
  folder.Write("sentence_bert_config.json", R"({"max_seq_length": 2048, "do_lower_case": false,
    "transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward"}}})");
  const auto modules = folder.Read();
  ASSERT_TRUE(modules.ok()) << modules.status();
  EXPECT_FALSE((*modules)->normalises);
  EXPECT_EQ((*modules)->max_tokens, 2048);
  ASSERT_EQ((*modules)->dense.size(), 2u);
  EXPECT_EQ((*modules)->dense[0].folder, "2_Dense");
  EXPECT_FALSE((*modules)->dense[0].has_bias);
  EXPECT_EQ((*modules)->dense[0].activation, Activation::kIdentity);
  EXPECT_EQ((*modules)->dense[1].out_features, 6);
  EXPECT_TRUE((*modules)->dense[1].has_bias);
  EXPECT_EQ((*modules)->dense[1].activation, Activation::kTanh);
}

TEST(SentenceModulesTest, AModelOfScoresHasLogitScoreOrNothingBehindItsTransformer) {
  const Folder folder;
  folder.Write("modules.json", R"([
    {"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
    {"idx": 1, "path": "1_LogitScore",
     "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}])");
  folder.Write("1_LogitScore/config.json", R"({"true_token_id": 9693, "false_token_id": 2152,
    "module_input_name": "causal_logits"})");
  folder.Write("sentence_bert_config.json", R"({"max_seq_length": 8192,
    "transformer_task": "text-generation", "module_output_name": "causal_logits"})");
  folder.Write("config_sentence_transformers.json",
               R"({"prompts": {"web": "Find passages."}, "default_prompt_name": "web",
                   "activation_fn": "torch.nn.modules.linear.Identity"})");
  const auto tokens = folder.Read();
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_TRUE((*tokens)->scores());
  EXPECT_EQ((*tokens)->score, (ScoreTokens{.relevant = 9693, .irrelevant = 2152}));
  EXPECT_EQ((*tokens)->max_tokens, 8192);
  EXPECT_EQ((*tokens)->default_prompt, "web");
  folder.Write("modules.json", R"([{"path": "", "type": "a.Transformer"}])");
  EXPECT_THAT(ErrorOf(folder.Read().status()), HasSubstr("sequence-classification"));
  folder.Write("sentence_bert_config.json", R"({"transformer_task": "sequence-classification",
    "module_output_name": "scores"})");
  const auto head = folder.Read();
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_TRUE((*head)->scores());
  EXPECT_TRUE((*head)->has_score_head);
  for (const std::string_view bad :
       {"", "{}", R"({"true_token_id": -1})", R"({"true_token_id": 1, "false_token_id": "no"})",
        R"({"true_token_id": 1, "module_input_name": "logits"})",
        R"({"true_token_id": 1, "gamma": 2})"}) {
    EXPECT_FALSE(ParseLogitScore("l", bad).ok()) << bad;
  }
}

TEST(SentenceModulesTest, WhatIsNotSupportedIsNamed) {
  const auto error = [](std::string_view modules, std::string_view pooling) {
    const Folder folder;
    folder.Write("modules.json", modules);
    folder.Write("1_Pooling/config.json", pooling);
    const auto read = folder.Read();
    EXPECT_EQ(read.status().code(), absl::StatusCode::kUnimplemented) << read.status();
    return ErrorOf(read.status());
  };
  EXPECT_THAT(
      error(kModules, R"({"word_embedding_dimension": 8, "pooling_mode_max_tokens": true})"),
      AllOf(HasSubstr("1_Pooling/config.json"), HasSubstr("\"max\"")));
  EXPECT_THAT(error(kModules, R"({"embedding_dimension": 8, "pooling_mode": "weightedmean"})"),
              HasSubstr("\"weightedmean\""));
  EXPECT_THAT(error(kModules, R"({"embedding_dimension": 8, "pooling_mode": ["cls", "max"]})"),
              HasSubstr("pooling"));
  EXPECT_THAT(error(kModules, R"({"embedding_dimension": 8, "pooling_mode": "lasttoken",
                                  "gamma": 1})"),
              HasSubstr("\"gamma\""));
  EXPECT_THAT(error(R"([{"type": "a.Transformer", "path": ""},
                        {"type": "a.WordWeights", "path": "1_Pooling"}])",
                    kPooling),
              HasSubstr("\"WordWeights\""));
  EXPECT_THAT(error(R"([{"type": "a.Transformer", "path": "0_Transformer"},
                        {"type": "a.Pooling", "path": "1_Pooling"}])",
                    kPooling),
              HasSubstr("0_Transformer"));
  EXPECT_THAT(error(R"([{"type": "a.Transformer", "path": ""},
                        {"type": "a.Pooling", "path": "1_Pooling"},
                        {"type": "a.Normalize", "path": "2_Normalize"},
                        {"type": "a.Dense", "path": "3_Dense"}])",
                    kPooling),
              HasSubstr("\"Normalize\""))
      << "it comes last";
}

TEST(SentenceModulesTest, PoolingsAreReadFromOldAndNewFiles) {
  const auto pooling = [](std::string_view json) {
    SentenceModules modules;
    const absl::Status status = ParsePooling("p", json, &modules);
    EXPECT_TRUE(status.ok()) << status;
    return modules.pooling;
  };
  EXPECT_EQ(pooling(R"({"word_embedding_dimension": 8, "pooling_mode_mean_tokens": true,
                        "pooling_mode_cls_token": false})"),
            Pooling::kMean);
  EXPECT_EQ(pooling(R"({"embedding_dimension": 8, "pooling_mode": ["cls"]})"), Pooling::kFirst);
  EXPECT_EQ(pooling(R"({"embedding_dimension": 8, "pooling_mode": "lasttoken"})"), Pooling::kLast);
  EXPECT_EQ(pooling(R"({"embedding_dimension": 8})"), Pooling::kMean) << "the library's default";
  // A mean of a part of a text would need the prompt's length.
  SentenceModules modules;
  EXPECT_FALSE(
      ParsePooling("p", R"({"embedding_dimension": 8, "include_prompt": false})", &modules).ok());
  EXPECT_TRUE(ParseTransformer(R"({"do_lower_case": true})", &modules).ok());
  EXPECT_TRUE(modules.lowercases);
}

TEST(SentenceModulesTest, HostileFilesAreRefused) {
  for (const std::string_view bad :
       {"", "{}", "null", "[1]", R"([{"type": 7}])", R"([{"type": "a.Pooling", "path": "../x"}])",
        R"([{"type": "a.Pooling", "path": "a/b"}])", R"([{"type": "a", "path": 7}])"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseModules(bad).status())) << bad;
  }
  SentenceModules modules;
  for (const std::string_view bad : {"", "[]", R"({"embedding_dimension": 0})",
                                     R"({"embedding_dimension": 1e9})", R"({"pooling_mode": 7})"}) {
    EXPECT_FALSE(ParsePooling("p", bad, &modules).ok()) << bad;
  }
  for (const std::string_view bad :
       {"", "{}", R"({"in_features": 1})", R"({"in_features": -1, "out_features": 1})",
        R"({"in_features": 1, "out_features": 1, "use_residual": true})",
        R"({"in_features": 1, "out_features": 1, "module_input_name": "token_embeddings"})",
        R"({"in_features": 1, "out_features": 1, "activation_function": "os.system"})"}) {
    EXPECT_FALSE(ParseDense("d", bad).ok()) << bad;
  }
  for (const std::string_view bad :
       {"[]", R"({"max_seq_length": 0})", R"({"max_seq_length": "x"})", R"({"do_lower_case": 7})",
        R"({"transformer_task": "fill-mask"})"}) {
    EXPECT_FALSE(ParseTransformer(bad, &modules).ok()) << bad;
  }
  for (const std::string_view bad :
       {"[]", R"({"prompts": []})", R"({"prompts": {"a": 7}})", R"({"prompts": {"": "x"}})",
        R"({"prompts": {"a": "x"}, "default_prompt_name": "b"})"}) {
    EXPECT_FALSE(ParsePrompts(bad, &modules).ok()) << bad;
  }
}

TEST(SentenceModulesTest, AMissingModuleIsNamed) {
  const Folder folder;
  folder.Write("modules.json", kModules);
  EXPECT_EQ(folder.Read().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace continuo::embedding
