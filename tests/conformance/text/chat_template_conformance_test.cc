// SPDX-License-Identifier: Apache-2.0
// Conversations that Jinja2 rendered with 68 published templates, compared with ours. They go
// through the C function, which also takes tools and tool calls.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/worker/text/continuo_text.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo {
namespace {

using nlohmann::ordered_json;
using testing::ReadFile;
using testing::SharedPath;
using testing::SourcePath;

constexpr int64_t kNow = 1752105600;  // 2025-07-10

ContinuoSlice SliceOf(std::string_view s) { return {.data = s.data(), .size = s.size()}; }

std::string LastError() {
  const ContinuoSlice error = continuo_text_error();
  return std::string(error.data, error.size);
}

// Returns the rendering, or nothing with the reason in `error`.
std::optional<std::string> Render(const std::string& chat_template, const ordered_json& inputs,
                                  std::string* error) {
  const std::string tokenizer =
      ReadFile(SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
  const std::string config =
      ordered_json{{"bos_token", inputs["bos_token"]}, {"eos_token", inputs["eos_token"]}}.dump();
  const testing::TextFolder folder({.tokenizer_json = tokenizer,
                                    .tokenizer_config_json = config,
                                    .chat_template = chat_template});
  const std::string path = folder.path();
  ContinuoText* text = continuo_text_open(SliceOf(path), SliceOf("tokenizer.json"));
  if (text == nullptr) {
    *error = LastError();
    return std::nullopt;
  }
  const std::string request = ordered_json{
      {"messages", inputs["messages"]},
      {"tools", inputs["tools"]},
      {"add_generation_prompt", inputs["add_generation_prompt"]},
      {"now_seconds", kNow}}.dump();
  std::optional<std::string> result;
  ContinuoString rendered;
  if (continuo_text_render_chat(text, SliceOf(request), &rendered, nullptr) == CONTINUO_TEXT_OK) {
    result.emplace(rendered.data, rendered.size);
    continuo_string_free(rendered);
  } else {
    *error = LastError();
  }
  continuo_text_free(text);
  return result;
}

// Without the extension that transformers adds, Jinja2 does not know the tag.
bool KnowsNoGenerationTag(const ordered_json& error) {
  return error.is_string() &&
         error.get<std::string>().find("tag 'generation'") != std::string::npos;
}

TEST(ChatTemplateConformanceTest, WhatJinja2RendersIsEqualAndWhatItRefusesIsRefused) {
  CONTINUO_NEED_SHARED("data/chat_templates/rendered_by_jinja2.json");
  const ordered_json cases =
      ordered_json::parse(ReadFile(SharedPath("data/chat_templates/rendered_by_jinja2.json")));
  ASSERT_EQ(cases.size(), 340);
  int num_equal = 0, num_refused = 0, num_generation = 0;
  for (const ordered_json& c : cases) {
    const std::string file = c["template_file"];
    SCOPED_TRACE(file + " case " + c["case"].dump());
    const std::string chat_template = ReadFile(SharedPath("data/chat_templates/llama.cpp/" + file));
    std::string error;
    const auto rendered = Render(chat_template, c["inputs"], &error);
    if (KnowsNoGenerationTag(c["error"])) {
      EXPECT_TRUE(rendered.has_value()) << error;
      ++num_generation;
    } else if (c["expected"].is_string()) {
      ASSERT_TRUE(rendered.has_value()) << error;
      EXPECT_EQ(*rendered, c["expected"].get<std::string>());
      ++num_equal;
    } else {
      EXPECT_FALSE(rendered.has_value()) << c["error"];
      ++num_refused;
    }
  }
  EXPECT_EQ(num_equal, 289);
  EXPECT_EQ(num_refused, 31);
  EXPECT_EQ(num_generation, 20);
}

}  // namespace
}  // namespace continuo
