// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "services/worker/text/text_model.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using nlohmann::json;
using testing::OpenText;

constexpr char kTokenizer[] = R"({
  "added_tokens": [{"id": 2, "content": "</s>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1}, "unk_token": "?"}})";

json InfoOf(const testing::TextFiles& files, int32_t end_id = -1) {
  auto model = OpenText(files);
  EXPECT_TRUE(model.ok()) << model.status();
  return json::parse((*model)->TokenizerInfo(end_id));
}

TEST(TokenizerInfoTest, TokensArePlainText) {
  const json info = InfoOf(
      {.tokenizer_json = kTokenizer,
       .tokenizer_config_json = R"({
           "tokenizer_class": "LlamaTokenizer", "add_bos_token": false,
           "model_max_length": 1000000000000000019884624838656,
           "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": false},
           "eos_token": "</s>", "pad_token": null,
           "additional_special_tokens": ["<x>", {"content": "<y>", "lstrip": true}],
           "added_tokens_decoder": {"2": {"content": "</s>", "special": true}},
           "vocab_file": "/models/secret/vocab.txt", "name_or_path": "/models/secret",
           "init": {"kept": [1, true, "\u00e9"]}})",
       .special_tokens_map_json = R"({"bos_token": "<other>", "unk_token": {"content": "?"}})"});
  EXPECT_EQ(info, json::parse(R"({
      "tokenizer_class": "LlamaTokenizer", "add_bos_token": false,
      "model_max_length": 1000000000000000019884624838656,
      "bos_token": "<s>", "eos_token": "</s>", "unk_token": "?", "pad_token": null,
      "additional_special_tokens": ["<x>", "<y>"], "added_tokens_decoder": {"2": "</s>"},
      "init": {"kept": [1, true, "\u00e9"]}})"));
}

TEST(TokenizerInfoTest, WhatClientsLookForIsThereWithoutAFile) {
  EXPECT_EQ(InfoOf({.tokenizer_json = kTokenizer}),
            json::parse(R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": null,
                            "eos_token": null, "pad_token": null})"));
  // An end that other files name.
  EXPECT_EQ(InfoOf({.tokenizer_json = kTokenizer}, 2)["eos_token"], "</s>");
  EXPECT_EQ(
      InfoOf({.tokenizer_json = kTokenizer, .tokenizer_config_json = R"({"eos_token": null})"},
             2)["eos_token"],
      "</s>");
  EXPECT_EQ(
      InfoOf({.tokenizer_json = kTokenizer, .special_tokens_map_json = R"({"eos_token": "?"})"},
             2)["eos_token"],
      "?");
}

TEST(TokenizerInfoTest, TheTemplateIsTheOneThatIsUsed) {
  const char* const named = R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                                  {"name": "default", "template": "d"}]})";
  EXPECT_EQ(InfoOf({.tokenizer_json = kTokenizer, .tokenizer_config_json = named})["chat_template"],
            "d");
  EXPECT_EQ(InfoOf({.tokenizer_json = kTokenizer,
                    .tokenizer_config_json = named,
                    .chat_template = "{{ 'file' }}"})["chat_template"],
            "{{ 'file' }}");
  const char* const other = R"({"chat_template": [{"name": "tool_use", "template": "t"}]})";
  EXPECT_EQ(InfoOf({.tokenizer_json = kTokenizer, .tokenizer_config_json = other})["chat_template"],
            "t");
  const char* const unknown = R"({"chat_template": [{"name": "rag", "template": "r"}]})";
  EXPECT_FALSE(InfoOf({.tokenizer_json = kTokenizer, .tokenizer_config_json = unknown})
                   .contains("chat_template"));
}

TEST(TokenizerInfoTest, TheLargestMembersGiveWay) {
  json config = {{"eos_token", "</s>"}, {"small", std::string(1000, 's')}};
  config["large"] = std::string(2 << 20, 'l');
  config["larger"] = std::string(3 << 20, 'm');
  const json info = InfoOf(
      {.tokenizer_json = kTokenizer, .tokenizer_config_json = config.dump(), .chat_template = "c"});
  EXPECT_EQ(info["eos_token"], "</s>");
  EXPECT_EQ(info["small"], std::string(1000, 's'));
  EXPECT_EQ(info["chat_template"], "c");
  EXPECT_FALSE(info.contains("large"));
  EXPECT_FALSE(info.contains("larger"));
}

TEST(TokenizerInfoTest, TokensHaveTheNamesOfTheVocabulary) {
  const auto model = testing::OpenTestModel("byte_level");
  const int32_t space = testing::IdOf(*model, " ");
  ASSERT_GE(space, 0);
  EXPECT_EQ(model->TokenName(space), "\xc4\xa0");
  const int32_t end = testing::IdOf(*model, "<|end|>");
  ASSERT_GE(end, 0);
  EXPECT_EQ(model->TokenName(end), "<|end|>");
  EXPECT_EQ(model->TokenName(-1), "");
  EXPECT_EQ(model->TokenName(model->vocab_size()), "");
}

}  // namespace
}  // namespace continuo::text
