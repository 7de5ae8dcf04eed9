// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/text_model.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IdOf;
using ::testing::IsEmpty;
using testing::OpenTestModel;
using testing::ReadFile;
using testing::SourcePath;

std::string TestFile(const std::string& name) {
  return ReadFile(SourcePath("tests/worker/text/testdata/" + name));
}

absl::StatusOr<std::unique_ptr<TextModel>> WithTokenizer(const std::string& tokenizer_json) {
  return testing::OpenText({.tokenizer_json = tokenizer_json});
}

TEST(TextModelTest, AMissingTokenizerIsNotFoundAndNamed) {
  const auto model = TextModel::Open(testing::TempFolder().path().string());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("tokenizer.json"));
}

TEST(TextModelTest, AFileThatCannotBeReadIsInvalidAndNamed) {
  const testing::TempFolder folder;
  const std::filesystem::path& dir = folder.path();
  std::ofstream(dir / "tokenizer.json") << TestFile("byte_level/tokenizer.json");
  std::ofstream(dir / "tokenizer_config.json") << "{";
  const auto model = TextModel::Open(dir.string());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("tokenizer_config.json"));
}

TEST(TextModelTest, HostileTokenizersAreRefused) {
  const std::string good = TestFile("byte_level/tokenizer.json");
  ASSERT_TRUE(WithTokenizer(good).ok());
  const std::pair<std::string, std::string> edits[] = {
      {"\"he\": 256", "\"he\": 4194304"},              // an id beyond the limit
      {"\"he\": 256", "\"he\": 4294967295"},           // the largest id of its type
      {"\"he\": 256", "\"he\": 255"},                  // an id twice
      {"\"he\": 256", "\"he\": -1"},                   // no id
      {"\"h e\"", "\"h 語\""},                         // a merge of what is no token
      {"\"version\": \"1.0\"", "\"version\": \"9\""},  // another format
      {"\"normalizer\": null",
       "\"normalizer\": {\"type\": \"Precompiled\", "
       "\"precompiled_charsmap\": \"AAAA\"}"},  // panics in its library
      {"\"normalizer\": null", "\"normalizer\": {\"type\": \"None\"}"},
      {"\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"######\""},
  };
  for (const auto& [from, to] : edits) {
    const std::string bad = absl::StrReplaceAll(good, {{from, to}});
    ASSERT_NE(bad, good) << from;
    const auto model = WithTokenizer(bad);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << to;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("tokenizer.json")) << to;
  }
  EXPECT_EQ(WithTokenizer("").status().code(), absl::StatusCode::kNotFound);
  for (const std::string bad : {"[]", "{", "{}", "null", "\xFF"}) {
    EXPECT_EQ(WithTokenizer(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  const std::string deep(100000, '[');
  EXPECT_EQ(WithTokenizer(deep).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TextModelTest, VocabSizeCountsAddedTokens) {
  const auto model = OpenTestModel("byte_level");
  EXPECT_EQ(IdOf(*model, "<think>"), model->vocab_size() - 1);
  EXPECT_EQ(IdOf(*model, "nothing of the kind"), -1);
}

TEST(TextModelTest, TheLongestTokenIsKnown) {
  EXPECT_EQ(OpenTestModel("byte_level")->max_token_bytes(), std::string("<|assistant|>").size());
}

TEST(TextModelTest, ATokenizerMayDropBytesUnlessItIsKnownNotTo) {
  EXPECT_TRUE(OpenTestModel("byte_level")->keeps_bytes());
  // Its mark for a space is three bytes where a text has it itself.
  EXPECT_FALSE(OpenTestModel("byte_fallback")->keeps_bytes());
  const nlohmann::json good = nlohmann::json::parse(TestFile("byte_level/tokenizer.json"));
  const auto keeps = [](const nlohmann::json& tokenizer) {
    const auto model = WithTokenizer(tokenizer.dump());
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() && (*model)->keeps_bytes();
  };
  nlohmann::json json = good;
  const nlohmann::json cut = {{"type", "Split"},
                              {"pattern", {{"Regex", "\\s+"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {cut, good["pre_tokenizer"]}}};
  EXPECT_TRUE(keeps(json));
  json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
  EXPECT_FALSE(keeps(json)) << "white space";
  json["pre_tokenizer"]["pretokenizers"][0] = {{"type", "WhitespaceSplit"}};
  EXPECT_FALSE(keeps(json)) << "white space";
  for (const char* const normalizer : {"NFC", "StripAccents", "Nmt"}) {
    json = good;
    json["normalizer"] = {{"type", normalizer}};
    EXPECT_FALSE(keeps(json)) << normalizer;
  }
  json = good;
  json["added_tokens"][0]["lstrip"] = true;
  EXPECT_FALSE(keeps(json)) << "white space in front of a token";
  json = good;
  json["model"]["vocab"].erase("~");
  EXPECT_FALSE(keeps(json)) << "a byte that no token has";
}

TEST(TextModelTest, SpecialTokensInTheTextCountAsSuch) {
  const auto model = OpenTestModel("byte_level");
  EXPECT_THAT(model->Encode("hello<|end|> world", false).value(),
              ElementsAre(IdOf(*model, "hello"), IdOf(*model, "<|end|>"), IdOf(*model, " world")));
}

TEST(TextModelTest, WhatTheTokenizerAddsByItselfIsAddedOnRequest) {
  const auto model = OpenTestModel("byte_fallback");
  const int32_t cat = IdOf(*model, " cat");
  EXPECT_THAT(model->Encode("cat", true).value(), ElementsAre(1, cat));
  EXPECT_THAT(model->Encode("cat", false).value(), ElementsAre(cat));
  EXPECT_THAT(model->Encode("", false).value(), IsEmpty());
}

TEST(TextModelTest, ConfigDecidesWhatALlamaTokenizerAdds) {
  const std::string tokenizer = TestFile("byte_fallback/tokenizer.json");
  const auto encode = [&](std::string_view config) {
    const auto model =
        testing::OpenText({.tokenizer_json = tokenizer, .tokenizer_config_json = config});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->Encode("t", true).value();
  };
  const std::string names = R"("tokenizer_class": "LlamaTokenizer", "bos_token": "<s>",
                               "eos_token": "</s>")";
  const int32_t t = encode("").back();
  EXPECT_THAT(encode(""), ElementsAre(1, t));
  EXPECT_THAT(encode("{" + names + "}"), ElementsAre(1, t));
  EXPECT_THAT(encode("{" + names + R"(, "add_bos_token": false})"), ElementsAre(t));
  EXPECT_THAT(encode("{" + names + R"(, "add_eos_token": true})"), ElementsAre(1, t, 2));
}

TEST(TextModelTest, TextThatIsNotUtf8IsRefused) {
  const auto model = OpenTestModel("byte_level");
  EXPECT_EQ(model->Encode("a\xFF", false).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TextModelTest, AnIdOutsideTheVocabularyIsNamed) {
  const auto model = OpenTestModel("byte_level");
  for (const int32_t id : {-1, model->vocab_size(), 2147483647}) {
    const auto text = model->Decode(std::vector<int32_t>{0, id}, false);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(absl::StrCat(id)));
    EXPECT_EQ(model->TokenBytes(id), "");
    EXPECT_EQ(model->TokenBytesKeepSpecial(id), "");
    EXPECT_FALSE(model->IsSpecial(id));
  }
}

TEST(TextModelTest, DecodeLeavesSpecialTokensOutUnlessTheyAreToBeKept) {
  const auto model = OpenTestModel("byte_level");
  const std::vector<int32_t> ids = model->Encode("hello<|end|><think>", false).value();
  EXPECT_EQ(model->Decode(ids, false).value(), "hello<think>");
  EXPECT_EQ(model->Decode(ids, true).value(), "hello<|end|><think>");
}

TEST(TextModelTest, DecodeReplacesWhatIsNoCharacter) {
  const auto model = OpenTestModel("byte_level");
  const std::vector<int32_t> ids = {0xE2, 0x82, 'a', 0xFF, 0xF0, 0x9F};
  EXPECT_EQ(model->Decode(ids, false).value(), "\uFFFDa\uFFFD\uFFFD");
}

TEST(TextModelTest, TokensThatTheConfigurationCallsSpecialAreSpecial) {
  const auto model = testing::OpenText(
      {.tokenizer_json = TestFile("byte_level/tokenizer.json"),
       .tokenizer_config_json = R"({"eos_token": "hello", "added_tokens_decoder":
           {"271": {"content": "<think>", "special": true}, "1": {"content": "b"}}})",
       .special_tokens_map_json = R"({"pad_token": {"content": "ld"}, "unk_token": "absent"})"});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->IsSpecial(IdOf(**model, "hello")));
  EXPECT_TRUE((*model)->IsSpecial(IdOf(**model, "<think>")));
  EXPECT_TRUE((*model)->IsSpecial(IdOf(**model, "ld")));
  EXPECT_FALSE((*model)->IsSpecial(IdOf(**model, "b")));
  EXPECT_EQ((*model)->vocab_size(), OpenTestModel("byte_level")->vocab_size());
  EXPECT_EQ((*model)->TokenBytes(IdOf(**model, "hello")), "");
}

TEST(TextModelTest, TruncationPaddingAndDropoutOfTheFileAreNotApplied) {
  const std::string good = TestFile("byte_level/tokenizer.json");
  const std::string edited = absl::StrReplaceAll(
      good, {{"\"truncation\": null",
              R"("truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst",
                 "stride": 0})"},
             {"\"padding\": null",
              R"("padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_id": 0,
                 "pad_type_id": 0, "pad_token": "a", "pad_to_multiple_of": null})"},
             {"\"dropout\": null", "\"dropout\": 0.9"}});
  ASSERT_NE(edited, good);
  const auto model = WithTokenizer(edited);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto plain = OpenTestModel("byte_level");
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ((*model)->Encode("hello world", true).value(),
              plain->Encode("hello world", true).value());
  }
}

TEST(TextModelTest, TextAtWhichTheRegularExpressionGivesUpIsRefusedAndTheNextOneWorks) {
  const std::string tokenizer =
      absl::StrReplaceAll(TestFile("byte_level/tokenizer.json"),
                          {{R"("pre_tokenizer": {)",
                            R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a)*b"},
            "behavior": "Isolated", "invert": false}, "unused": {)"}});
  const auto model = WithTokenizer(tokenizer);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto ids = (*model)->Encode(std::string(40, 'a') + "cb", false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*model)->Encode("b", false).value(), std::vector<int32_t>{'b'});
}

TEST(TextModelTest, DigestsDoNotDependOnHowTheJsonIsWritten) {
  const std::string tokenizer = TestFile("byte_level/tokenizer.json");
  const std::string config = TestFile("byte_level/tokenizer_config.json");
  const auto open = [](std::string_view tokenizer, std::string_view config) {
    return testing::OpenText({.tokenizer_json = tokenizer, .tokenizer_config_json = config})
        .value();
  };
  const auto model = open(tokenizer, config);
  EXPECT_EQ(model->tokenizer_digest().size(), 64);
  EXPECT_EQ(model->template_digest().size(), 64);

  const std::string spaced = absl::StrReplaceAll(tokenizer, {{"\n", " \n "}});
  EXPECT_EQ(open(spaced, config)->tokenizer_digest(), model->tokenizer_digest());
  const std::string other = absl::StrReplaceAll(tokenizer, {{"\"<think>\"", "\"<thunk>\""}});
  EXPECT_NE(open(other, config)->tokenizer_digest(), model->tokenizer_digest());
  EXPECT_EQ(open(other, config)->template_digest(), model->template_digest());

  const std::string template_edit = absl::StrReplaceAll(config, {{"no role", "NO role"}});
  ASSERT_NE(template_edit, config);
  EXPECT_EQ(open(tokenizer, template_edit)->tokenizer_digest(), model->tokenizer_digest());
  EXPECT_NE(open(tokenizer, template_edit)->template_digest(), model->template_digest());
  const std::string special_edit =
      absl::StrReplaceAll(config, {{"\"bos_token\": null", "\"bos_token\": \"<|user|>\""}});
  ASSERT_NE(special_edit, config);
  EXPECT_NE(open(tokenizer, special_edit)->template_digest(), model->template_digest());
  // Only changes of an encoding or a rendering count.
  const std::string length = absl::StrReplaceAll(config, {{"{\n", "{\"model_max_length\": 7,\n"}});
  EXPECT_EQ(open(tokenizer, length)->tokenizer_digest(), model->tokenizer_digest());
}

TEST(TextModelTest, ManyThreadsMayUseItAtOnce) {
  const auto model = OpenTestModel("byte_level");
  const ChatPrompt prompt{.messages = {{.role = "user", .content = "hello world"}}};
  const auto ids = model->Encode("hello world", true).value();
  const std::string rendered = model->RenderChat(prompt).value();
  std::vector<std::thread> threads;
  std::atomic<int> num_equal = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        if (model->Encode("hello world", true).value() == ids &&
            model->RenderChat(prompt).value() == rendered && !model->Encode("\xFF", true).ok()) {
          ++num_equal;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_equal, 400);
}

}  // namespace
}  // namespace continuo::text
