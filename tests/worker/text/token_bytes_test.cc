// SPDX-License-Identifier: Apache-2.0
// Tests the bytes of one token under each decoder of tokenizer.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/worker/text/detokenizer.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using nlohmann::json;

// A model that knows `tokens`, with ids 0, 1, … and [UNK] after them.
std::unique_ptr<TextModel> ModelOf(const std::vector<std::string>& tokens, const json& decoder) {
  json vocab = json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[tokens[i]] = i;
  vocab["[UNK]"] = tokens.size();
  const json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
      {"post_processor", nullptr},
      {"decoder", decoder},
      {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "[UNK]"}}}};
  auto model = testing::OpenText({.tokenizer_json = tokenizer.dump()});
  EXPECT_TRUE(model.ok()) << model.status();
  CONTINUO_CHECK(model.ok());
  return *std::move(model);
}

TEST(TokenBytesTest, ByteLevelCharactersAreBytes) {
  const auto model = ModelOf({"Ġhe", "Ċ", "Ã", "ł", "ÿ", "no▁byte"}, {{"type", "ByteLevel"},
                                                                      {"add_prefix_space", true},
                                                                      {"trim_offsets", true},
                                                                      {"use_regex", true}});
  EXPECT_EQ(model->TokenBytes(0), " he");
  EXPECT_EQ(model->TokenBytes(1), "\n");
  EXPECT_EQ(model->TokenBytes(2), "\xC3");
  EXPECT_EQ(model->TokenBytes(3), "\xA0");
  EXPECT_EQ(model->TokenBytes(4), "\xFF");
  EXPECT_EQ(model->TokenBytes(5), "no▁byte");
}

TEST(TokenBytesTest, EveryByteHasItsByteLevelToken) {
  const auto model = testing::OpenTestModel("byte_level");
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(model->TokenBytes(byte), std::string(1, static_cast<char>(byte))) << byte;
  }
}

TEST(TokenBytesTest, ByteFallbackKeepsTheSpaceThatIsStrippedAtTheStartOfAText) {
  const json decoder = {{"type", "Sequence"},
                        {"decoders",
                         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}},
                          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const auto model = ModelOf({"▁he▁", "<0xE2>", "<0xe2>", "<0xZZ>", "<0x0A>"}, decoder);
  EXPECT_EQ(model->TokenBytes(0), " he ");
  EXPECT_EQ(model->TokenBytes(1), "\xE2");
  EXPECT_EQ(model->TokenBytes(2), "\xE2");
  EXPECT_EQ(model->TokenBytes(3), "<0xZZ>");
  EXPECT_EQ(model->TokenBytes(4), "\n");
}

TEST(TokenBytesTest, MetaspaceIsASpaceAlsoAtTheStart) {
  const auto model = ModelOf(
      {"▁he", "llo"},
      {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}});
  EXPECT_EQ(model->Decode(std::vector<int32_t>{0, 1}, false).value(), " hello");
}

TEST(TokenBytesTest, AWordPieceBeginsAWordUnlessItContinuesOne) {
  const auto model =
      ModelOf({"he", "##llo", "."}, {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}});
  EXPECT_EQ(model->Decode(std::vector<int32_t>{0, 1, 0, 2}, false).value(), " hello he.");
}

TEST(TokenBytesTest, AnEndOfWordSuffixIsASpace) {
  const auto model = ModelOf({"he", "llo</w>"}, {{"type", "BPEDecoder"}, {"suffix", "</w>"}});
  EXPECT_EQ(model->Decode(std::vector<int32_t>{0, 1, 0}, false).value(), "hello he");
}

TEST(TokenBytesTest, WithoutADecoderWordsHaveASpaceBetweenThem) {
  const auto model = ModelOf({"he", "she"}, nullptr);
  EXPECT_EQ(model->Decode(std::vector<int32_t>{0, 1}, false).value(), " he she");
}

TEST(TokenBytesTest, CtcRepeatsAreOneTokenInDecodeAndDetokenizer) {
  const auto model = ModelOf(
      {"<pad>", "h", "e", "|"},
      {{"type", "CTC"}, {"pad_token", "<pad>"}, {"word_delimiter_token", "|"}, {"cleanup", true}});
  const std::vector<int32_t> ids = {1, 1, 0, 1, 2, 2, 3, 3, 1};
  EXPECT_EQ(model->Decode(ids, false).value(), "hhe h");
  Detokenizer detokenizer(model.get(), {}, false);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id, true).text;
  EXPECT_EQ(text, "hhe h");
}

TEST(TokenBytesTest, AStripBeforeFuseIsOfEveryToken) {
  const auto model =
      ModelOf({"_a_", "b"}, {{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 1}});
  EXPECT_EQ(model->TokenBytes(0), "a");
}

TEST(TokenBytesTest, AReplacementThatWouldFillTheMemoryIsRefused) {
  const json decoder = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'x')}};
  const json tokenizer = {{"version", "1.0"},
                          {"added_tokens", json::array()},
                          {"decoder", decoder},
                          {"model",
                           {{"type", "WordLevel"},
                            {"vocab", {{std::string(1000, 'a'), 0}, {"u", 1}}},
                            {"unk_token", "u"}}}};
  const auto model = testing::OpenText({.tokenizer_json = tokenizer.dump()});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::text
