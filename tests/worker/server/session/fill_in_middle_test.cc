// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/fill_in_middle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "services/worker/server/session/prompt.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

// The text model "byte_level" with more tokens; `special` says what their entries say.
std::unique_ptr<text::TextModel> OpenWithTokens(const std::vector<std::string>& names,
                                                bool special) {
  const testing::TempFolder folder;
  auto json = nlohmann::json::parse(testing::ReadFile(
      testing::SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json")));
  int id = testing::kVocab;
  for (const std::string& name : names) {
    auto token = json["added_tokens"][0];
    token["id"] = id++;
    token["content"] = name;
    token["special"] = special;
    json["added_tokens"].push_back(token);
  }
  std::ofstream(folder.path() / "tokenizer.json") << json.dump();
  auto model = text::TextModel::Open(folder.path().string());
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

constexpr int kFirst = testing::kVocab;

TEST(FillInMiddleTest, PromptsAreThoseOfTheFamilies) {
  const struct {
    std::vector<std::string> names;
    std::vector<int32_t> prompt;  // of "ab" before the gap and "c" after it
  } cases[] = {
      {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
       {kFirst, 'a', 'b', kFirst + 1, 'c', kFirst + 2}},
      {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
       {kFirst, 'a', 'b', kFirst + 1, 'c', kFirst + 2}},
      {{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
       {kFirst, 'a', 'b', kFirst + 1, 'c', kFirst + 2}},
      {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
       {kFirst, 'a', 'b', kFirst + 1, 'c', kFirst + 2}},
      {{"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"},
       {kFirst + 1, 'c', kFirst, 'a', 'b', kFirst + 2}},
      {{"[PREFIX]", "[SUFFIX]"}, {kFirst + 1, 'c', kFirst, 'a', 'b'}},
  };
  for (const auto& c : cases) {
    for (const bool special : {false, true}) {
      const auto text = OpenWithTokens(c.names, special);
      ServedModel model = testing::MakeServedModel(text.get());
      ASSERT_TRUE(model.fill_in_middle.has_value()) << c.names[0];
      v1::GenerateRequest request;
      request.set_text("ab");
      request.set_suffix("c");
      const auto prompt = EncodePrompt(request, absl::UnixEpoch(), model);
      ASSERT_TRUE(prompt.ok()) << prompt.status();
      EXPECT_EQ(prompt->tokens, c.prompt) << c.names[0];
      request.set_text("");
      EXPECT_EQ(EncodePrompt(request, absl::UnixEpoch(), model)->tokens.size(),
                c.prompt.size() - 2);
    }
  }
}

TEST(FillInMiddleTest, ASetWithAGapIsNone) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, {"<|fim_prefix|>", "<|fim_suffix|>"}, {"[SUFFIX]"}}) {
    const auto text = OpenWithTokens(names, /*special=*/true);
    ServedModel model = testing::MakeServedModel(text.get());
    EXPECT_FALSE(model.fill_in_middle.has_value());
    v1::GenerateRequest request;
    request.set_text("a");
    request.set_suffix("b");
    const absl::Status status = EncodePrompt(request, absl::UnixEpoch(), model).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(protocol::FieldOf(status), "suffix");
  }
}

TEST(FillInMiddleTest, BothTextsTogetherAreBoundedByTheContext) {
  const auto text =
      OpenWithTokens({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /*special=*/true);
  const ServedModel model = testing::MakeServedModel(text.get());
  v1::GenerateRequest request;
  request.set_text(std::string(128 * text->max_token_bytes() / 2, 'a'));
  request.set_suffix(std::string(128 * text->max_token_bytes() / 2 + 1, 'b'));
  EXPECT_FALSE(EncodePrompt(request, absl::UnixEpoch(), model).ok());
}

}  // namespace
}  // namespace continuo::server
