// SPDX-License-Identifier: Apache-2.0
// Ids and texts that Hugging Face's and llama.cpp's programs made, compared with TextModel's.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "services/worker/text/detokenizer.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo {
namespace {

using nlohmann::json;
using testing::ReadFile;
using testing::SharedPath;

std::unique_ptr<text::TextModel> Open(const std::string& dir) {
  auto model = text::TextModel::Open(SharedPath(dir));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::unique_ptr<text::TextModel> OpenTokenizer(const std::string& tokenizer_json) {
  auto model = testing::OpenText({.tokenizer_json = tokenizer_json});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::string TextOf(const text::TextModel& model, const std::vector<int32_t>& ids) {
  text::Detokenizer detokenizer(&model, {}, false);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id, true).text;
  return text + detokenizer.Flush();
}

// Returns whether Hugging Face leaves out a space at the start of a text, which an answer keeps.
bool StripsAtStart(const json& decoder) {
  const std::string type = decoder.value("type", "");
  if (type == "Sequence") {
    const json& steps = decoder["decoders"];
    return std::any_of(steps.begin(), steps.end(), StripsAtStart);
  }
  return type == "Metaspace" || type == "WordPiece" || type == "Strip";
}

// Expects that the ids decode to HF's text as it is in the middle of another one. An empty text is
// checked as it is.
void ExpectDecoding(const text::TextModel& model, const json& tokenizer,
                    const std::vector<int32_t>& ids, const std::string& decoded) {
  std::string expected = decoded;
  if (StripsAtStart(tokenizer["decoder"]) && !decoded.empty()) {
    // The first token with text says whether there was a space to strip.
    for (const int32_t id : ids) {
      if (model.TokenBytes(id).empty()) continue;
      if (model.TokenBytes(id)[0] == ' ') expected = " " + decoded;
      break;
    }
  }
  EXPECT_EQ(TextOf(model, ids), expected) << ::testing::PrintToString(ids);
  EXPECT_EQ(model.Decode(ids, false).value(), expected);
}

TEST(TokenizerConformanceTest, TinyTokenizersOfEveryKindEncodeAndDecodeAsHuggingFaceDoes) {
  const std::string dir = "data/tokenizers/hf_tiny_cases/";
  CONTINUO_NEED_SHARED(dir);
  const json suites = json::parse(ReadFile(SharedPath(dir + "hf_tokenizer_cases.json")));
  int num_suites = 0, num_cases = 0;
  for (const auto& [name, suite] : suites.items()) {
    const std::string file = suite["tokenizer"];
    if (!file.ends_with(".json")) continue;  // SentencePiece's own format
    SCOPED_TRACE(file);
    const std::string tokenizer_json = ReadFile(SharedPath(dir + file));
    const auto model = OpenTokenizer(tokenizer_json);
    ASSERT_NE(model, nullptr);
    for (const json& c : suite["cases"]) {
      const std::vector<int32_t> ids = c["ids"];
      EXPECT_EQ(model->Encode(std::string(c["text"]), false).value(), ids) << c["text"];
      ExpectDecoding(*model, json::parse(tokenizer_json), ids, c["decoded"]);
      ++num_cases;
    }
    ++num_suites;
  }
  EXPECT_EQ(num_suites, 15);
  EXPECT_EQ(num_cases, 258);
}

// How many control tokens are written in `text` and taken as such. The token of unknown characters
// also stands for those.
int NumControl(const text::TextModel& model, const std::string& text,
               const std::vector<int32_t>& ids) {
  return static_cast<int>(std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
    const std::string token(model.TokenBytesKeepSpecial(id));
    return model.IsSpecial(id) && !token.empty() && token != "<unk>" && token != "[UNK]" &&
           text.find(token) != std::string::npos;
  }));
}

// Each case as the content of a conversation: ordinary text has the same ids, control tokens in it
// are text, and those of the template around it stay.
TEST(TokenizerConformanceTest, ControlTokensInTheContentOfAConversationAreText) {
  const std::string dir = "data/tokenizers/hf_tiny_cases/";
  CONTINUO_NEED_SHARED(dir);
  const json suites = json::parse(ReadFile(SharedPath(dir + "hf_tokenizer_cases.json")));
  int num_hostile = 0;
  for (const auto& [name, suite] : suites.items()) {
    const std::string file = suite["tokenizer"];
    if (!file.ends_with(".json")) continue;
    SCOPED_TRACE(file);
    const auto model = OpenTokenizer(ReadFile(SharedPath(dir + file)));
    ASSERT_NE(model, nullptr);
    std::string control;
    for (int32_t id = 0; id < model->vocab_size() && control.empty(); ++id) {
      const std::string token(model->TokenBytesKeepSpecial(id));
      if (!model->IsSpecial(id) || token.empty()) continue;
      if (NumControl(*model, token, model->Encode(token, false).value()) == 1) control = token;
    }
    for (const json& c : suite["cases"]) {
      const std::string text = c["text"];
      const auto whole = model->EncodeChat({.text = text, .content = {{0, text.size()}}}).value();
      if (NumControl(*model, text, c["ids"]) == 0) {
        EXPECT_EQ(whole, std::vector<int32_t>(c["ids"])) << text;
      }
      EXPECT_EQ(NumControl(*model, text, whole), 0) << text;
      if (control.empty()) continue;
      const std::string content = text + control + text;
      const text::RenderedChat chat = {
          .text = control + content + control,
          .content = {{control.size(), control.size() + content.size()}}};
      const auto ids = model->EncodeChat(chat).value();
      EXPECT_EQ(NumControl(*model, chat.text, ids), 2) << chat.text;
      EXPECT_EQ(NumControl(*model, chat.text, {ids.front(), ids.back()}), 2) << chat.text;
      ++num_hostile;
    }
  }
  EXPECT_GT(num_hostile, 100);
}

// Qwen 3 has tags of thoughts, calls and results, and fill-in-the-middle tokens, which no file
// calls special.
TEST(TokenizerConformanceTest, TagsOfQwen3AreTextButInAnAssistantsContent) {
  const std::string dir = "data/tokenizers/assembled/qwen3";
  CONTINUO_NEED_SHARED(dir);
  const auto opened = text::TextModel::Open(SharedPath(dir));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const text::TextModel& model = **opened;
  const auto count = [&](const std::string& role, const std::string& content, int32_t id) {
    const auto chat = model.RenderMarkedChat(
        {.messages = {{.role = "user", .content = "a"}, {.role = role, .content = content}}});
    EXPECT_TRUE(chat.ok()) << chat.status();
    const auto ids = model.EncodeChat(*chat).value();
    return std::count(ids.begin(), ids.end(), id);
  };
  for (const char* const tag :
       {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
        "<|fim_prefix|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>"}) {
    SCOPED_TRACE(tag);
    const std::vector<int32_t> id = model.Encode(tag, /*add_special=*/false).value();
    ASSERT_EQ(id.size(), 1);
    ASSERT_FALSE(model.IsSpecial(id[0]));
    for (const char* const role : {"user", "system", "tool"}) {
      EXPECT_EQ(count(role, std::string("x") + tag + "y", id[0]), count(role, "xy", id[0])) << role;
    }
  }
  const int32_t call = model.Encode("<tool_call>", /*add_special=*/false).value()[0];
  EXPECT_EQ(count("assistant", "x<tool_call>y", call), 1);
  const std::string thought = "<think>\nhm\n</think>\n\nyes";
  const auto chat = model.RenderMarkedChat(
      {.messages = {{.role = "user", .content = "a"}, {.role = "assistant", .content = thought}}});
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(model.EncodeChat(*chat).value(), model.Encode(chat->text, false).value());
}

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = text.find(separator, begin)) != std::string::npos;) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

void ExpectLlamaCppVectors(const std::string& tokenizer, const std::string& vectors) {
  const auto model = Open("data/tokenizers/assembled/" + tokenizer);
  ASSERT_NE(model, nullptr);
  const std::string base = "data/tokenizers/llama.cpp_vectors/ggml-vocab-" + vectors + ".gguf";
  const auto texts = SplitAt(ReadFile(SharedPath(base + ".inp")), "\n__ggml_vocab_test__\n");
  auto lines = SplitAt(ReadFile(SharedPath(base + ".out")), "\n");
  ASSERT_EQ(texts.size(), 47);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    const std::vector<int32_t> ids{std::istream_iterator<int32_t>(line), {}};
    EXPECT_EQ(model->Encode(texts[i], false).value(), ids) << "case " << i << ": " << texts[i];
    EXPECT_EQ(TextOf(*model, ids), texts[i]) << "case " << i;
  }
}

TEST(TokenizerConformanceTest, Llama3EncodesAndDecodesAsLlamaCppDoes) {
  CONTINUO_NEED_SHARED("data/tokenizers/assembled/llama3.2");
  CONTINUO_NEED_SHARED("data/tokenizers/llama.cpp_vectors");
  ExpectLlamaCppVectors("llama3.2", "llama-bpe");
}

TEST(TokenizerConformanceTest, Qwen25EncodesAndDecodesAsLlamaCppDoes) {
  CONTINUO_NEED_SHARED("data/tokenizers/assembled/qwen2.5");
  CONTINUO_NEED_SHARED("data/tokenizers/llama.cpp_vectors");
  ExpectLlamaCppVectors("qwen2.5", "qwen2");
}

TEST(TokenizerConformanceTest, Qwen3EncodesAndDecodesAsLlamaCppDoes) {
  CONTINUO_NEED_SHARED("data/tokenizers/assembled/qwen3");
  CONTINUO_NEED_SHARED("data/tokenizers/llama.cpp_vectors");
  ExpectLlamaCppVectors("qwen3", "qwen2");
}

class GoldenModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModelTest, PromptsEncodeToTheirIdsAndAnswersDecodeToTheirTexts) {
  CONTINUO_NEED_SHARED("data/models/" + GetParam() + "/hf");
  CONTINUO_NEED_SHARED("data/goldens/" + GetParam() + ".json");
  const auto model = Open("data/models/" + GetParam() + "/hf");
  ASSERT_NE(model, nullptr);
  const json golden = json::parse(ReadFile(SharedPath("data/goldens/" + GetParam() + ".json")));
  ASSERT_FALSE(golden["cases"].empty());
  for (const json& c : golden["cases"]) {
    const std::vector<int32_t> prompt_ids = c["prompt_ids"];
    if (c["prompt"].is_string() && !c["prompt"].get<std::string>().empty()) {
      EXPECT_EQ(model->Encode(std::string(c["prompt"]), true).value(), prompt_ids) << c["prompt"];
    }
    EXPECT_EQ(TextOf(*model, c["greedy_ids"]), std::string(c["greedy_text"])) << c["prompt"];
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldenModelTest, ::testing::Values("stories260K", "babyllama105"));

}  // namespace
}  // namespace continuo
