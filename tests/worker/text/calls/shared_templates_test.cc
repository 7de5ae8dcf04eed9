// SPDX-License-Identifier: Apache-2.0
// The grammars of the formats that shared chat templates speak.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"
#include "services/worker/text/calls/call_grammar.h"
#include "tests/testing/shared_data.h"
#include "tests/worker/text/calls/call_model.h"
#include "tests/worker/text/grammar/random_answer.h"

namespace continuo::text {
namespace {

// Returns whether the call that stands somewhere in the text, from its first byte to its last one,
// is an answer of the grammar.
bool Takes(const TextModel& model, const Grammar& grammar, const std::string& text) {
  const auto fresh = *grammar.NewMatcher();
  for (size_t begin = 0; begin < text.size(); ++begin) {
    auto matcher = *fresh->Clone();
    for (size_t at = begin; at < text.size(); ++at) {
      if (!matcher->Accept(testing::IdOf(model, text.substr(at, 1)))) break;
      if (matcher->CanEnd()) return true;
    }
  }
  return false;
}

TEST(SharedTemplatesTest, EachFormatHasAGrammarAndItTakesTheTemplatesCall) {
  CONTINUO_NEED_SHARED("data/chat_templates/rendered_by_jinja2.json");
  const std::string folder = testing::SharedPath("data/chat_templates/");
  // By the template's file: rendering of a conversation with a tool, and of one with its call.
  std::map<std::string, std::pair<nlohmann::json, nlohmann::json>> rendered;
  for (const auto& one :
       nlohmann::json::parse(testing::ReadFile(folder + "rendered_by_jinja2.json"))) {
    if (one["case"] == 2) rendered[one["template_file"]].first = one["expected"];
    if (one["case"] == 3) rendered[one["template_file"]].second = one["expected"];
  }
  const CallTool tool = {.name = "get_weather",
                         .parameters = R"({"type": "object", "properties": {"city":
                             {"type": "string"}}, "required": ["city"]})"};
  const auto model = testing::OpenModelWith({}, {});
  std::map<std::string, std::string> found;
  for (const auto& [file, texts] : rendered) {
    const std::string source = testing::ReadFile(folder + "llama.cpp/" + file);
    RenderedCall call{.name = "get_weather", .arguments = R"({"city": "Paris"})"};
    const bool is_rendered = texts.first.is_string() && texts.second.is_string();
    if (is_rendered) {
      call.prompt = texts.first;
      call.with_call = texts.second;
    }
    const ResponseFormat format = FindResponseFormat(source, is_rendered ? &call : nullptr);
    const auto lark = CallGrammar(format, {{tool}}, {}, {});
    if (!lark.ok()) {
      found[file] = format.name + ": " + std::string(lark.status().message());
      continue;
    }
    const auto grammar = Grammar::Compile(
        *model, {.kind = GrammarSource::Kind::kLark, .text = *lark, .is_own_lark = true});
    ASSERT_TRUE(grammar.ok()) << file << grammar.status() << *lark;
    found[file] = format.name + (format.example.empty()                     ? ""
                                 : Takes(*model, **grammar, format.example) ? ": its own call"
                                                                            : ": another spelling");
  }
  const std::string golden = "tests/worker/text/calls/testdata/templates.json";
  if (std::getenv("CONTINUO_WRITE_GOLDENS") != nullptr) {
    std::ofstream(golden) << nlohmann::json(found).dump(1) << "\n";
  }
  EXPECT_EQ(nlohmann::json(found), nlohmann::json::parse(testing::ReadFile(golden)));
}

}  // namespace
}  // namespace continuo::text
