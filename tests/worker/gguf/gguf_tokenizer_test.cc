// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_tokenizer.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/gguf_writer.h"

namespace continuo::gguf {
namespace {

using nlohmann::json;
using testing::GgufWriter;
using ::testing::HasSubstr;

using Texts = std::vector<std::string>;
using Floats = std::vector<float>;
using Kinds = std::vector<int>;

absl::StatusOr<TokenizerTexts> TokenizerOfBytes(const std::string& bytes) {
  const auto file =
      GgufFile::Parse("x.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!file.ok()) return file.status();
  return TokenizerOf(*file);
}

GgufWriter ByteLevel() {
  GgufWriter writer;
  writer.Key("tokenizer.ggml.model", std::string("gpt2"))
      .Key("tokenizer.ggml.tokens", Texts{"<s>", "a", "b", "ab"})
      .Key("tokenizer.ggml.token_type", Kinds{3, 1, 1, 1})
      .Key("tokenizer.ggml.bos_token_id", uint32_t{0});
  return writer;
}

TEST(GgufTokenizerTest, ByteLevelTokenizersKeepTheirMerges) {
  const auto texts = TokenizerOfBytes(ByteLevel()
                                          .Key("tokenizer.ggml.pre", std::string("llama-bpe"))
                                          .Key("tokenizer.ggml.merges", Texts{"a b"})
                                          .Bytes());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const json tokenizer = json::parse(texts->tokenizer);
  EXPECT_EQ(tokenizer["model"]["vocab"], json({{"<s>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}));
  EXPECT_EQ(tokenizer["model"]["merges"], json::parse(R"([["a", "b"]])"));
  EXPECT_EQ(tokenizer["model"]["ignore_merges"], true);
  EXPECT_EQ(tokenizer["added_tokens"][0]["content"], "<s>");
  EXPECT_EQ(tokenizer["added_tokens"].size(), 1u);
  // This rule adds the token that begins a text.
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
  EXPECT_EQ(json::parse(texts->tokenizer_config)["bos_token"], "<s>");
}

TEST(GgufTokenizerTest, SentencePieceMergesComeFromScores) {
  const auto texts = TokenizerOfBytes(
      GgufWriter()
          .Key("tokenizer.ggml.model", std::string("llama"))
          .Key("tokenizer.ggml.tokens", Texts{"<unk>", "a", "b", "c", "bc", "abc", "ab"})
          .Key("tokenizer.ggml.token_type", Kinds{2, 1, 1, 1, 1, 1, 1})
          .Key("tokenizer.ggml.scores", Floats{0, -9, -9, -9, -1, -3, -2})
          .Key("tokenizer.ggml.unknown_token_id", uint32_t{0})
          .Bytes());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const json tokenizer = json::parse(texts->tokenizer);
  EXPECT_EQ(tokenizer["model"]["merges"],
            json::parse(R"([["b", "c"], ["a", "b"], ["a", "bc"], ["ab", "c"]])"));
  EXPECT_EQ(tokenizer["model"]["unk_token"], "<unk>");
  EXPECT_EQ(tokenizer["model"]["byte_fallback"], true);
  EXPECT_EQ(tokenizer["normalizer"]["normalizers"][0]["type"], "Prepend");
  EXPECT_EQ(tokenizer["post_processor"], json());  // there is no token to begin with
}

// Gemma 4's files have merges, and texts are not divided.
TEST(GgufTokenizerTest, WholeTextsAreMergedInGemma4) {
  const auto writer = [] {
    GgufWriter one;
    one.Key("tokenizer.ggml.model", std::string("gemma4"))
        .Key("tokenizer.ggml.tokens", Texts{"<bos>", "<unk>", "a", "\u2581", "\u2581a"})
        .Key("tokenizer.ggml.token_type", Kinds{3, 2, 1, 1, 1})
        .Key("tokenizer.ggml.scores", Floats{0, 0, 0, 0, 0})
        .Key("tokenizer.ggml.bos_token_id", uint32_t{0})
        .Key("tokenizer.ggml.unknown_token_id", uint32_t{1})
        .Key("tokenizer.ggml.add_space_prefix", false);
    return one;
  };
  const auto texts =
      TokenizerOfBytes(writer().Key("tokenizer.ggml.merges", Texts{"\u2581 a"}).Bytes());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const json tokenizer = json::parse(texts->tokenizer);
  EXPECT_EQ(tokenizer["model"]["merges"], json::parse("[[\"\u2581\", \"a\"]]"));
  EXPECT_EQ(tokenizer["model"]["byte_fallback"], true);
  EXPECT_EQ(tokenizer["model"]["unk_token"], "<unk>");
  EXPECT_EQ(tokenizer["normalizer"]["normalizers"].size(), 1u);  // no space in front
  EXPECT_EQ(tokenizer["pre_tokenizer"], json());
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], "<bos>");
  EXPECT_THAT(std::string(TokenizerOfBytes(writer().Bytes()).status().message()),
              HasSubstr("has no tokenizer.ggml.merges"));
}

TEST(GgufTokenizerTest, TemplatesHaveTheirNames) {
  const auto config = [](GgufWriter writer) {
    const auto texts = TokenizerOfBytes(writer.Key("tokenizer.ggml.pre", std::string("gpt-2"))
                                            .Key("tokenizer.ggml.merges", Texts{})
                                            .Bytes());
    EXPECT_TRUE(texts.ok()) << texts.status();
    return json::parse(texts->tokenizer_config)["chat_template"];
  };
  EXPECT_EQ(config(ByteLevel()), json());
  EXPECT_EQ(config(ByteLevel().Key("tokenizer.chat_template", std::string("A"))), "A");
  EXPECT_EQ(config(ByteLevel()
                       .Key("tokenizer.chat_template", std::string("A"))
                       .Key("tokenizer.chat_template.tool_use", std::string("B"))
                       .Key("tokenizer.chat_templates", Texts{"tool_use"})),
            json::parse(R"([{"name": "default", "template": "A"},
                            {"name": "tool_use", "template": "B"}])"));
}

TEST(GgufTokenizerTest, WhatIsMissingOrNotKnownIsNamed) {
  struct Case {
    GgufWriter writer;
    const char* error;
  };
  const std::string tokens = "tokenizer.ggml.tokens", pre = "tokenizer.ggml.pre";
  const std::string model = "tokenizer.ggml.model", merges = "tokenizer.ggml.merges";
  const Case cases[] = {
      {GgufWriter(), "it has no tokenizer"},
      {GgufWriter().Key(tokens, Texts{"a"}), "tokenizer.ggml.model is missing"},
      {GgufWriter().Key(tokens, Texts{"a"}).Key(model, std::string("bert")),
       "\"bert\" is not known"},
      {GgufWriter()
           .Key(tokens, Texts{"a"})
           .Key(model, std::string("t5"))
           .Key("tokenizer.ggml.scores", std::vector<float>{-1.0f}),
       "\"t5\" is SentencePiece's unigram model, which is not supported in GGUF files"},
      {GgufWriter().Key(tokens, Texts{"\xff"}).Key(model, std::string("gpt2")),
       "token 0 is not UTF-8"},
      {ByteLevel(), "has no tokenizer.ggml.pre"},
      {ByteLevel().Key(pre, std::string("strange")), "\"strange\" is not known; known are gpt-2"},
      {ByteLevel().Key(pre, std::string("gpt-2")), "has no tokenizer.ggml.merges"},
      {ByteLevel().Key(pre, std::string("gpt-2")).Key(merges, Texts{"ab"}), "0 that is no pair"},
      {ByteLevel()
           .Key(pre, std::string("gpt-2"))
           .Key(merges, Texts{"a b"})
           .Key("tokenizer.ggml.eos_token_id", uint32_t{4}),
       "eos_token_id is 4, and there are 4 tokens"},
      {GgufWriter().Key(tokens, Texts{"a", "b"}).Key("tokenizer.ggml.token_type", Kinds{1}),
       "2 tokens and 1 token types"},
      {GgufWriter().Key(tokens, Texts{"a"}).Key(model, std::string("llama")),
       "tokenizer.ggml.scores has 0 elements"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(std::string(TokenizerOfBytes(c.writer.Bytes()).status().message()),
                HasSubstr(c.error));
  }
}

}  // namespace
}  // namespace continuo::gguf
