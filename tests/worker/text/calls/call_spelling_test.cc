// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/call_spelling.h"

#include <gtest/gtest.h>

#include <string>

namespace continuo::text {
namespace {

// The form's texts, of a template that writes a call like this.
std::string Spelt(const char* name, const std::string& example) {
  ResponseFormat format = *NamedResponseFormat(name, "");
  format.example = example;
  format.example_name = "find_place";
  format.example_arguments = R"({"place": "Lima"})";
  const CallForm form = *FindCallForm(format);
  return FillForm(form.before, "", "") + "|" + FillForm(form.call, "N", "A") + "|" + form.after +
         (form.parameter.empty() ? "" : "|" + FillForm(form.parameter, "", "", "K", "V"));
}

TEST(CallSpellingTest, WhiteSpaceIsThatOfTheTemplatesCall) {
  EXPECT_EQ(Spelt("hermes",
                  "<think>\n</think>\n<tool_call>{\"name\":\"find_place\", "
                  "\"arguments\":{\"place\":\"Lima\"}}</tool_call><|im_end|>"),
            "|<tool_call>{\"name\":\"N\", \"arguments\":A}</tool_call>|");
  EXPECT_EQ(Spelt("mistral",
                  "[TOOL_CALLS] [{\"name\": \"find_place\", \"arguments\": "
                  "{\"place\": \"Lima\"}}]</s>"),
            "[TOOL_CALLS] [|{\"name\": \"N\", \"arguments\": A}|]");
  EXPECT_EQ(Spelt("qwen_xml",
                  "<tool_call>\n<function=find_place>\n<parameter=place>Lima"
                  "</parameter>\n\n</function>\n</tool_call>"),
            "|<tool_call>\n<function=N>\nA</function>\n</tool_call>||<parameter=K>V</parameter>"
            "\n\n");
}

TEST(CallSpellingTest, ACallThatIsAnotherOneLeavesTheFormAsItIs) {
  const std::string form = Spelt("hermes", "");
  EXPECT_EQ(Spelt("hermes", "<tool_call>\n{\"arguments\": {}}\n</tool_call>"), form);
  EXPECT_EQ(Spelt("hermes", "\n"), form);
}

TEST(CallSpellingTest, ATemplatesCallTellsWhichFormAFormatHas) {
  EXPECT_EQ(Spelt("qwen_xml",
                  "<seed:tool_call>\n<function=find_place>\n<parameter=place>Lima"
                  "</parameter>\n</function>\n</seed:tool_call>"),
            "|<seed:tool_call>\n<function=N>\nA</function>\n</seed:tool_call>||"
            "<parameter=K>V</parameter>\n");
  EXPECT_EQ(Spelt("deepseek",
                  "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find_place<｜tool▁sep｜>"
                  "{\"place\": \"Lima\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "<｜tool▁calls▁begin｜>|<｜tool▁call▁begin｜>N<｜tool▁sep｜>A<｜tool▁call▁end｜>|"
            "<｜tool▁calls▁end｜>");
}

}  // namespace
}  // namespace continuo::text
