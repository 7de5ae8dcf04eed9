// SPDX-License-Identifier: Apache-2.0
// The tokenizers of GGUF files beside those of the Hugging Face folders that they were made of.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "services/worker/text/text_model.h"
#include "tests/testing/gguf_writer.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo {
namespace {

using nlohmann::json;
using testing::ReadFile;
using testing::SharedPath;

std::unique_ptr<text::TextModel> Open(const std::string& path) {
  auto model = text::TextModel::Open(path);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// Lines of a novel, and what tokenizers differ in.
std::vector<std::string> Texts() {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "  two  spaces ",
                                    "\n\n\t tab",
                                    "it's 12345 o'clock",
                                    "naïve café — “quotes”",
                                    "日本語のテキスト",
                                    "😀👩‍👩‍👧 emoji",
                                    "a\u0301 combining",
                                    "<s> </s> <|endoftext|>",
                                    "\u2581\u2581 under",
                                    "snake_case(x)[0] += 0x1F;",
                                    std::string("nul\0byte", 8)};
  std::istringstream novel(ReadFile(SharedPath("data/prompts/sonnet.txt")));
  std::string line;
  while (texts.size() < 2000 && std::getline(novel, line)) texts.push_back(line);
  return texts;
}

void ExpectSameTokenizer(const text::TextModel& expected, const text::TextModel& got) {
  EXPECT_EQ(got.vocab_size(), expected.vocab_size());
  for (const std::string& text : Texts()) {
    for (const bool add_special : {false, true}) {
      const auto a = expected.Encode(text, add_special), b = got.Encode(text, add_special);
      ASSERT_TRUE(a.ok()) << a.status();
      ASSERT_TRUE(b.ok()) << b.status();
      ASSERT_EQ(*b, *a) << text;
      if (!add_special) {
        EXPECT_EQ(*got.Decode(*b, true), *expected.Decode(*a, true)) << text;
      }
    }
  }
  for (int32_t id = 0; id < expected.vocab_size(); ++id) {
    ASSERT_EQ(got.TokenBytesKeepSpecial(id), expected.TokenBytesKeepSpecial(id)) << id;
    ASSERT_EQ(got.IsSpecial(id), expected.IsSpecial(id)) << id;
  }
}

TEST(GgufTokenizerConformanceTest, SentencePieceByScoresIsThatOfTheFolder) {
  for (const std::string name : {"stories260K", "babyllama105"}) {
    const std::string folder = "data/models/" + name + "/";
    CONTINUO_NEED_SHARED(folder + name + "-q8_0.gguf");
    const auto expected = Open(SharedPath(folder + "hf"));
    const auto got = Open(SharedPath(folder + name + "-q8_0.gguf"));
    ASSERT_TRUE(expected != nullptr && got != nullptr);
    ExpectSameTokenizer(*expected, *got);
  }
}

// Writes what a GGUF file has of a tokenizer.json with byte-level BPE.
std::string WriteGguf(const std::string& folder, const std::string& pre, bool adds_bos) {
  const json tokenizer = json::parse(ReadFile(folder + "/tokenizer.json"));
  const json config = json::parse(ReadFile(folder + "/tokenizer_config.json"));
  std::vector<std::string> tokens;
  std::vector<int> kinds;
  const auto put = [&](const std::string& token, size_t id, int kind) {
    if (tokens.size() <= id) {
      tokens.resize(id + 1, "");
      kinds.resize(id + 1, 5);
    }
    tokens[id] = token;
    kinds[id] = kind;
  };
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) put(token, id, 1);
  for (const json& token : tokenizer["added_tokens"]) {
    put(token["content"], token["id"], token["special"] ? 3 : 4);
  }
  std::vector<std::string> merges;
  for (const json& merge : tokenizer["model"]["merges"]) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  testing::GgufWriter writer;
  writer.Key("general.architecture", std::string("llama"))
      .Key("tokenizer.ggml.model", std::string("gpt2"))
      .Key("tokenizer.ggml.pre", pre)
      .Key("tokenizer.ggml.tokens", tokens)
      .Key("tokenizer.ggml.token_type", kinds)
      .Key("tokenizer.ggml.merges", merges)
      .Key("tokenizer.ggml.add_bos_token", adds_bos);
  const json& bos = config.contains("bos_token") ? config["bos_token"] : json();
  for (uint32_t id = 0; bos.is_string() && id < tokens.size(); ++id) {
    if (tokens[id] == bos) writer.Key("tokenizer.ggml.bos_token_id", id);
  }
  const std::string path = ::testing::TempDir() + "tokenizer_" + pre + ".gguf";
  std::ofstream(path, std::ios::binary) << writer.Bytes();
  return path;
}

TEST(GgufTokenizerConformanceTest, ByteLevelVocabulariesAreThoseOfTheFolder) {
  struct Case {
    const char* folder;
    const char* pre;
    bool adds_bos;
  };
  const Case cases[] = {{"llama3.2", "llama-bpe", true}, {"qwen2.5", "qwen2", false}};
  for (const Case& c : cases) {
    const std::string folder = std::string("data/tokenizers/assembled/") + c.folder;
    CONTINUO_NEED_SHARED(folder + "/tokenizer.json");
    const std::string path = WriteGguf(SharedPath(folder), c.pre, c.adds_bos);
    const auto expected = Open(SharedPath(folder)), got = Open(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(expected != nullptr && got != nullptr);
    ExpectSameTokenizer(*expected, *got);
  }
}

}  // namespace
}  // namespace continuo
