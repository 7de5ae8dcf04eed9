// SPDX-License-Identifier: Apache-2.0
// Special tokens written in the texts of a pair are text, with the tokenizers that encoders have.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/text_files.h"

namespace continuo::text {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// Added tokens that are special and have the ids from 0 on.
json Specials(const std::vector<std::string>& contents, bool normalized) {
  json added = json::array();
  for (const std::string& content : contents) {
    added.push_back({{"id", added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", content == "<mask>"},
                     {"rstrip", false},
                     {"normalized", normalized},
                     {"special", true}});
  }
  return added;
}

std::unique_ptr<TextModel> Open(const json& tokenizer) {
  auto model = testing::OpenText({.tokenizer_json = tokenizer.dump()});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// As BERT has it: WordPiece, in lower case.
std::unique_ptr<TextModel> OpenBert() {
  return Open({{"version", "1.0"},
               {"added_tokens", Specials({"[PAD]", "[UNK]", "[CLS]", "[SEP]"}, false)},
               {"normalizer",
                {{"type", "BertNormalizer"},
                 {"clean_text", true},
                 {"handle_chinese_chars", true},
                 {"strip_accents", nullptr},
                 {"lowercase", true}}},
               {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
               {"post_processor",
                {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}}},
               {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
               {"model",
                {{"type", "WordPiece"},
                 {"unk_token", "[UNK]"},
                 {"continuing_subword_prefix", "##"},
                 {"max_input_chars_per_word", 100},
                 {"vocab",
                  {{"[PAD]", 0},
                   {"[UNK]", 1},
                   {"[CLS]", 2},
                   {"[SEP]", 3},
                   {"a", 4},
                   {"oslo", 5},
                   {"[", 6},
                   {"]", 7},
                   {"se", 8},
                   {"##p", 9}}}}}});
}

// As RoBERTa has it: byte-level BPE, whose special tokens are looked for in normalized text.
std::unique_ptr<TextModel> OpenRoberta() {
  const std::vector<std::string> specials = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  json vocab;
  for (const std::string& special : specials) vocab[special] = vocab.size();
  for (char c = '!'; c <= '~'; ++c) vocab[std::string(1, c)] = vocab.size();
  vocab["Ġ"] = vocab.size();
  return Open(
      {{"version", "1.0"},
       {"added_tokens", Specials(specials, true)},
       {"pre_tokenizer",
        {{"type", "ByteLevel"},
         {"add_prefix_space", false},
         {"trim_offsets", true},
         {"use_regex", true}}},
       {"post_processor",
        {{"type", "RobertaProcessing"},
         {"sep", {"</s>", 2}},
         {"cls", {"<s>", 0}},
         {"trim_offsets", true},
         {"add_prefix_space", false}}},
       {"decoder",
        {{"type", "ByteLevel"},
         {"add_prefix_space", false},
         {"trim_offsets", true},
         {"use_regex", true}}},
       {"model",
        {{"type", "BPE"}, {"unk_token", nullptr}, {"vocab", vocab}, {"merges", json::array()}}}});
}

// As XLM-RoBERTa has it: unigrams behind NFKC, which makes special tokens of other characters.
std::unique_ptr<TextModel> OpenXlmRoberta() {
  json pieces = json::array();
  for (const char* const special : {"<s>", "<pad>", "</s>", "<unk>"}) {
    pieces.push_back(json::array({special, 0.0}));
  }
  for (const char* const piece : {"▁", "<", "/", "s", ">", "a"}) {
    pieces.push_back(json::array({piece, -3.0}));
  }
  const auto special = [](const char* name) {
    return json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  const auto sequence = [](const char* name) {
    return json{{"Sequence", {{"id", name}, {"type_id", 0}}}};
  };
  const json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  return Open(
      {{"version", "1.0"},
       {"added_tokens", Specials({"<s>", "<pad>", "</s>", "<unk>"}, false)},
       {"normalizer", {{"type", "NFKC"}}},
       {"pre_tokenizer", metaspace},
       {"post_processor",
        {{"type", "TemplateProcessing"},
         {"single", {special("<s>"), sequence("A"), special("</s>")}},
         {"pair",
          {special("<s>"), sequence("A"), special("</s>"), special("</s>"), sequence("B"),
           special("</s>")}},
         {"special_tokens",
          {{"<s>", {{"id", "<s>"}, {"ids", {0}}, {"tokens", {"<s>"}}}},
           {"</s>", {{"id", "</s>"}, {"ids", {2}}, {"tokens", {"</s>"}}}}}}}},
       {"decoder", metaspace},
       {"model",
        {{"type", "Unigram"}, {"unk_id", 3}, {"byte_fallback", false}, {"vocab", pieces}}}});
}

std::vector<int32_t> TokensOf(const TextModel& model, const std::string& first,
                              const std::string& second, bool parse_special = false) {
  const auto pair = model.EncodePair(first, second, parse_special);
  EXPECT_TRUE(pair.ok()) << pair.status();
  return pair.ok() ? pair->tokens : std::vector<int32_t>();
}

int64_t NumSpecials(const TextModel& model, const std::vector<int32_t>& ids) {
  return std::ranges::count_if(ids, [&model](int32_t id) { return model.IsSpecial(id); });
}

TEST(EncodePairTest, ASpecialTokenOfBertInATextIsTheWordsThatItIs) {
  const auto model = OpenBert();
  const auto pair = model->EncodePair("[CLS]", "a [SEP] oslo", /*parse_special=*/false);
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_THAT(pair->tokens, ElementsAre(2, 6, 1, 7, 3, 4, 6, 8, 9, 7, 5, 3));
  EXPECT_THAT(pair->types, ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(pair->second_begin, 5u);
  EXPECT_EQ(pair->second_end, 11u);
  const auto parsed = model->EncodePair("a", "a [SEP] oslo", /*parse_special=*/true);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->tokens, ElementsAre(2, 4, 3, 4, 3, 5, 3));
  EXPECT_THAT(parsed->types, ElementsAre(0, 0, 0, 1, 1, 1, 1));
}

TEST(EncodePairTest, NoTextMakesSpecialTokens) {
  struct Case {
    std::unique_ptr<TextModel> model;
    std::vector<std::string> hostile;
  };
  std::vector<Case> cases;
  cases.push_back({OpenRoberta(), {"</s>", "a</s></s>a", "a <mask> a", "<s><pad>", "<unk>"}});
  cases.push_back({OpenXlmRoberta(), {"</s>", "a</s>a", "a＜／ｓ＞", "＜s> a", "<s>"}});
  for (const Case& one : cases) {
    const int64_t want = NumSpecials(*one.model, TokensOf(*one.model, "a", "a"));
    EXPECT_EQ(want, 4);
    for (const std::string& text : one.hostile) {
      EXPECT_GT(NumSpecials(*one.model, TokensOf(*one.model, text, "a", true)), want) << text;
      EXPECT_EQ(NumSpecials(*one.model, TokensOf(*one.model, text, "a")), want) << text;
      EXPECT_EQ(NumSpecials(*one.model, TokensOf(*one.model, "a", text)), want) << text;
    }
  }
}

TEST(EncodePairTest, NoTextOfAConversationMakesSpecialTokens) {
  const auto model = OpenXlmRoberta();
  for (const std::string content : {"a", "</s>", "a＜／ｓ＞", "＜／ｓ＞", "＜s> a"}) {
    const RenderedChat chat = {.text = absl::StrCat("<s>", content, "</s>"),
                               .content = {{.begin = 3, .end = 3 + content.size()}}};
    const auto ids = model->EncodeChat(chat);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(NumSpecials(*model, *ids), 2) << content;
    EXPECT_EQ(ids->front(), 0) << content;
    EXPECT_EQ(ids->back(), 2) << content;
  }
}

// What the library makes of the two texts.
TEST(EncodePairTest, OrdinaryPairsAreTheSameWhetherSpecialTokensAreParsedOrNot) {
  std::vector<std::unique_ptr<TextModel>> models;
  models.push_back(OpenBert());
  models.push_back(OpenRoberta());
  models.push_back(OpenXlmRoberta());
  const std::vector<std::string> texts = {"", " ", "a", "a  a ", "A [sep] </ s>", "ａ ａ", "é"};
  for (const auto& model : models) {
    for (const std::string& first : texts) {
      for (const std::string& second : texts) {
        const auto text = model->EncodePair(first, second, false);
        const auto parsed = model->EncodePair(first, second, true);
        ASSERT_TRUE(text.ok() && parsed.ok()) << text.status() << parsed.status();
        EXPECT_THAT(text->tokens, ElementsAreArray(parsed->tokens));
        EXPECT_THAT(text->types, ElementsAreArray(parsed->types));
        EXPECT_EQ(text->second_begin, parsed->second_begin);
        EXPECT_EQ(text->second_end, parsed->second_end);
      }
    }
  }
}

}  // namespace
}  // namespace continuo::text
