// SPDX-License-Identifier: Apache-2.0
// The tokenizers of GGUF files beside those of the Hugging Face folders that they were made of.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
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
  // Another process may write the same vocabulary at the same time.
  const std::string path =
      absl::StrCat(::testing::TempDir(), "tokenizer_", pre, "_", ::getpid(), ".gguf");
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

// DeepSeek-V3's, from its tokenizer.json.
constexpr char kDeepSeek3[] = R"json({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
    {"type": "Split", "pattern": {"Regex": "[一-龥\u3040-ゟ゠-ヿ]+"}, "behavior": "Isolated",
     "invert": false},
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})json";

TEST(GgufTokenizerConformanceTest, RulesDivideTextAsTheTokenizersThatTheyNameDo) {
  struct Case {
    const char* file;  // a small vocabulary, made with the tokenizer's own rule
    const char* pre;
    bool normalises = false;         // the tokenizer does, the small one does not
    const char* own_rule = nullptr;  // instead of the file's
  };
  const Case cases[] = {
      {"bytelevel", "exaone4"},
      {"digits_bytelevel", "exaone"},
      {"digits_bytelevel", "command-r", true},
      {"split_cl100k", "glm4"},
      {"split_qwen2", "hunyuan"},
      {"split_qwen2", "qwen2", true},
      {"split_qwen35", "qwen35", true},
      {"split_qwen35_ascii", "qwen35", true},
      {"split_o200k_harmony", "gpt-4o"},
      {"split_deepseek", "deepseek-llm"},
      {"split_o200k_harmony", "deepseek-v3", false, kDeepSeek3},
      {"split_deepseek", "hunyuan-dense", false, kDeepSeek3},
  };
  const std::string folder = ::testing::TempDir() + "gguf_rules";
  for (const Case& c : cases) {
    SCOPED_TRACE(c.pre);
    const std::string file =
        std::string("data/tokenizers/hf_tiny_cases/tiny_bpe_") + c.file + "_tokenizer.json";
    CONTINUO_NEED_SHARED(file);
    json tokenizer = json::parse(ReadFile(SharedPath(file)));
    if (c.normalises) tokenizer["normalizer"] = {{"type", "NFC"}};
    if (c.own_rule != nullptr) tokenizer["pre_tokenizer"] = json::parse(c.own_rule);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/tokenizer.json") << tokenizer;
    std::ofstream(folder + "/tokenizer_config.json") << "{}";
    const std::string path = WriteGguf(folder, c.pre, /*adds_bos=*/false);
    const auto expected = Open(folder), got = Open(path);
    std::filesystem::remove(path);
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(expected != nullptr && got != nullptr);
    ExpectSameTokenizer(*expected, *got);
  }
}

// The pieces that a rule divides an ASCII text into, of a vocabulary that joins each of them.
std::vector<std::string> Pieces(const std::string& pre, const std::string& text) {
  const auto written = [](std::string_view bytes) {  // as byte-level vocabularies write them
    std::string result;
    for (const char c : bytes) {
      if (c == ' ' || c == '\n') {
        result += c == ' ' ? "\u0120" : "\u010a";
      } else {
        result += c;
      }
    }
    return result;
  };
  std::vector<std::string> tokens, merges;
  std::set<std::string> seen;
  for (size_t size = 1; size <= text.size(); ++size) {
    for (size_t begin = 0; begin + size <= text.size(); ++begin) {
      const std::string whole = text.substr(begin, size);
      if (!seen.insert(whole).second) continue;
      tokens.push_back(written(whole));
      for (size_t at = 1; at < size; ++at) {
        merges.push_back(written(whole.substr(0, at)) + " " + written(whole.substr(at)));
      }
    }
  }
  const std::string path = ::testing::TempDir() + "pieces_" + pre + ".gguf";
  std::ofstream(path, std::ios::binary) << testing::GgufWriter()
                                               .Key("general.architecture", std::string("llama"))
                                               .Key("tokenizer.ggml.model", std::string("gpt2"))
                                               .Key("tokenizer.ggml.pre", pre)
                                               .Key("tokenizer.ggml.tokens", tokens)
                                               .Key("tokenizer.ggml.merges", merges)
                                               .Bytes();
  const auto model = Open(path);
  std::filesystem::remove(path);
  std::vector<std::string> pieces;
  if (model == nullptr) return pieces;
  const auto ids = model->Encode(text, /*add_special=*/false);
  EXPECT_TRUE(ids.ok()) << ids.status();
  for (const int32_t id : ids.value_or(std::vector<int32_t>())) {
    pieces.emplace_back(model->TokenBytes(id));
  }
  return pieces;
}

// Rules without a vocabulary at hand, by what they divide.
TEST(GgufTokenizerConformanceTest, RulesDivideTextAsTheyAreWritten) {
  struct Case {
    const char* pre;
    const char* text;
    std::vector<std::string> pieces;
  };
  const Case cases[] = {
      {"seed-coder", "it's 12!!\n a", {"it", "'s", " ", "1", "2", "!!", "\n", " a"}},
      {"stablelm2", "it's 12!!\n a", {"it", "'s", " ", "1", "2", "!!\n", " a"}},
      {"minicpm5", "12345 it's", {"123", "45", " it", "'s"}},
      {"tiny_aya", "x 1234567", {"x", " ", "1", "234", "567"}},
      {"deepseek-coder", "a =b\n12", {"a", " =", "b", "\n", "1", "2"}},
      {"deepseek-llm", "ab, 12\n", {"ab", ",", " ", "1", "2", "\n"}},
      {"tekken", "HelloWorld 12", {"Hello", "World", " ", "1", "2"}},
      {"lfm2", "HelloWorld 1234", {"HelloWorld", " ", "123", "4"}},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Pieces(c.pre, c.text), ::testing::ElementsAreArray(c.pieces)) << c.pre;
  }
}

}  // namespace
}  // namespace continuo
