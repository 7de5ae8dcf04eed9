// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/response_parser.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "services/worker/text/response/response_formats.h"
#include "tests/worker/text/response/response_text.h"

namespace continuo::text {
namespace {

const ResponseTemplate& Hermes() {
  static const ResponseFormat format = *NamedResponseFormat("hermes", "<think>");
  return format.response_template;
}

const ResponseTemplate& QwenXml() {
  static const ResponseFormat format = *NamedResponseFormat("qwen_xml", "<think>");
  return format.response_template;
}

std::string HermesLine(std::string_view answer) { return ParseLine(Hermes(), answer); }

TEST(ResponseParserTest, TextIsToldAsItComes) {
  ResponseParser parser(&Hermes(), {});
  ResponseEvents events;
  parser.Push("One two", &events);
  EXPECT_EQ(Line(events), R"(text "One two")");
  parser.Push(" <tool", &events);
  EXPECT_EQ(Line(events), R"(text "One two")") << "perhaps a marker, and white space before it";
  parser.Push("s> \n", &events);
  EXPECT_EQ(Line(events), R"(text "One two <tools>")");
  parser.Finish(&events);
  EXPECT_EQ(Line(events), "text \"One two <tools> \n\"") << "the ends of an answer are kept";
}

TEST(ResponseParserTest, ArgumentsAreToldAsTheyCome) {
  ResponseParser parser(&Hermes(), {});
  ResponseEvents events;
  parser.Push("<tool_call>\n{\"name\": \"f", &events);
  EXPECT_TRUE(events.empty());
  parser.Push("\", ", &events);
  EXPECT_EQ(Line(events), "call f");
  parser.Push("\"arguments\": {\"a\": \"x y", &events);
  EXPECT_EQ(Line(events), R"(call f {"a": "x y)");
  parser.Push("\"}}\n", &events);
  EXPECT_EQ(Line(events), R"(call f {"a": "x y"}.)");
  parser.Push("</tool_call>", &events);
  EXPECT_EQ(Line(events), R"(call f {"a": "x y"}.)");
}

TEST(ResponseParserTest, ThoughtsTextAndSeveralCalls) {
  EXPECT_EQ(
      HermesLine("<think>\nA</b\n</think>\n\n I call.\n\n<tool_call>{\"name\": \"f\", "
                 "\"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"g\", "
                 "\"arguments\": {\"a\": {\"b\": [1, -2.5e3, null, true]}}}</tool_call>Done."),
      "thought \"A</b\" text \"I call.\" call f {}. call g {\"a\": {\"b\": [1, -2.5e3, null, "
      "true]}}. text \"Done.\"");
}

// Returns what is told of an answer whose text stands behind its thoughts alone, however it is
// divided.
std::string LineBehindThoughts(const ResponseTemplate& format, std::string_view answer) {
  std::string whole;
  for (size_t cut = 0; cut <= answer.size(); ++cut) {
    ResponseParser parser(&format, {.calls = false, .thoughts_first = true});
    ResponseEvents events;
    parser.Push(answer.substr(0, cut), &events);
    parser.Push(answer.substr(cut), &events);
    parser.Finish(&events);
    if (cut == 0) whole = Line(events);
    EXPECT_EQ(Line(events), whole) << cut;
  }
  return whole;
}

TEST(ResponseParserTest, WithThoughtsFirstAllBehindThemIsText) {
  const auto line = [](std::string_view answer) { return LineBehindThoughts(Hermes(), answer); };
  EXPECT_EQ(line("<think>Hm</think>\n a <think>b</think> <tool_call>"),
            R"(thought "Hm" text "a <think>b</think> <tool_call>")");
  EXPECT_EQ(line("<thin <think>b</think>"), R"(text "<thin <think>b</think>")");
  EXPECT_EQ(line(" <think>b"), R"(text " <think>b")");
  EXPECT_EQ(line("<think>b</think><think>c"), R"(thought "b" text "<think>c")");
}

TEST(ResponseParserTest, WithThoughtsFirstAHeaderOfTextIsNoneOfIt) {
  static const ResponseFormat harmony = *NamedResponseFormat("harmony", "");
  const auto line = [](std::string_view answer) {
    return LineBehindThoughts(harmony.response_template, answer);
  };
  EXPECT_EQ(line("<|channel|>final<|message|> a "), R"(text " a ")");
  EXPECT_EQ(line("<|channel|>analysis<|message|>Hm<|end|>\n<|start|>assistant<|channel|>final "
                 "<|constrain|>json<|message|>{}"),
            R"(thought "Hm" text "{}")");
  // One header, before the text.
  EXPECT_EQ(line("<|channel|>final<|message|><|channel|>final<|message|>a"),
            R"(text "<|channel|>final<|message|>a")");
  EXPECT_EQ(line("a<|channel|>final<|message|>b"), R"(text "a<|channel|>final<|message|>b")");
  EXPECT_EQ(line("<|channel|>final<|message|><|channel|>analysis<|message|>a<|end|>"),
            R"(text "<|channel|>analysis<|message|>a<|end|>")");
}

TEST(ResponseParserTest, AMarkerInAStringIsPartOfIt) {
  EXPECT_EQ(
      HermesLine(R"(<tool_call>{"name": "f", "arguments": {"a": "</tool_call> \"}"}}</tool_call>)"),
      R"(call f {"a": "</tool_call> \"}"}.)");
}

TEST(ResponseParserTest, ASpecialTokenEndsACallAlsoInAString) {
  EXPECT_EQ(Line(ParseParts(Hermes(), {{R"(<tool_call>{"name": "f", "arguments": {"a": "b)", false},
                                       {"</tool_call>", true},
                                       {"Oh", false}})),
            R"(call f {"a": "b! text "Oh")");
}

TEST(ResponseParserTest, SpecialTokensAreNoText) {
  EXPECT_EQ(Line(ParseParts(Hermes(), {{"a", false},
                                       {"<|x|>", true},
                                       {"b", false},
                                       {"<think>", true},
                                       {"c", false},
                                       {"<|x|>", true},
                                       {"</think>", true},
                                       {"<tool_call>", true},
                                       {R"({"name": "f", "arguments": {"a": "b)", false},
                                       {"<|x|>", true},
                                       {"c\"}}", false},
                                       {"</tool_call>", true},
                                       {"<|im_end|>", true}})),
            R"(text "ab" thought "c" call f {"a": "bc"}.)");
}

TEST(ResponseParserTest, WhatIsNoCallIsText) {
  EXPECT_EQ(HermesLine("<tool_call>\nf(1)\n</tool_call>ok"), R"(text "f(1)ok")");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"nome": "f", "b": 1}</tool_call>)"),
            R"(text "{"nome": "f", "b": 1}")");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": 3}</tool_call>)"), R"(text "{"name": 3}")");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"arguments": {"a": 1}}</tool_call>)"),
            R"(text "{"arguments": {"a": 1}}")");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)"),
            R"(call f ! text ", "arguments": [1]}")");
  // What follows a call's end is text, the call stays.
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f", "arguments": {}}}</tool_call>)"),
            R"(call f {}. text "}")");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f", "arguments": {"a": 1, oops}}</tool_call>.)"),
            R"(call f {"a": 1, ! text "oops}}.")");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>)"),
            R"(call f {"a": 1}.)")
      << "only the last bracket is missing";
  EXPECT_EQ(HermesLine("<tool_call></tool_call>a"), R"(text "a")");
}

TEST(ResponseParserTest, ACutCallIsNotWhole) {
  const std::string answer = R"(<tool_call>{"name": "f", "arguments": {"a": "b)";
  EXPECT_EQ(HermesLine(answer), R"(call f {"a": "b!)");
  EXPECT_EQ(HermesLine(answer.substr(0, 22)), R"(text "{"name": "f")");
  EXPECT_EQ(HermesLine(answer + "\"}"), R"(call f {"a": "b"}.)");
  EXPECT_EQ(HermesLine("<think>a <"), R"(thought "a <")");
  EXPECT_EQ(HermesLine("a <tool_"), R"(text "a <tool_")");
}

TEST(ResponseParserTest, JsonOfModelsIsMadeJson) {
  EXPECT_EQ(
      HermesLine("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\t\"}}</tool_call>"),
      R"(call f {"a": "x\ny\t"}.)");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"arguments": "{\"a\": 1}", "name": "f"}</tool_call>)"),
            R"(call f {"a": 1}.)");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f"}</tool_call>)"), "call f {}.");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)"), "call f {}.");
  EXPECT_EQ(HermesLine(R"(<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>)"),
            R"(call f {"a": 1}.)");
  EXPECT_EQ(HermesLine(R"(<tool_call>[{"name": "f", "arguments": {}}, {"name": "g"}]</tool_call>)"),
            "call f {}. call g {}.");
}

TEST(ResponseParserTest, WhatIsNotWantedIsText) {
  EXPECT_EQ(ParseLine(Hermes(), "<think>a</think>b<tool_call>{}</tool_call>",
                      {.calls = false, .reasoning = false}),
            R"(text "ab<tool_call>{}</tool_call>")");
}

TEST(ResponseParserTest, ThePromptMayHaveBegunTheThought) {
  EXPECT_EQ(ParseLine(Hermes(), "a</think>\n\nb", {}, "<|im_start|>assistant\n<think>\n"),
            R"(thought "a" text "b")");
  EXPECT_EQ(ParseLine(Hermes(), "b", {}, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
            R"(text "b")");
  // Thoughts that nobody began.
  EXPECT_EQ(HermesLine("a</think>\nb"), R"(text "ab")");
}

TEST(ResponseParserTest, TagsBecomeWhatTheirTypesSay) {
  ParameterTypes types;
  types.Add("f", R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
    "b": {"type": ["boolean", "null"]}, "o": {"anyOf": [{"type": "object"}, {"type": "string"}]},
    "e": {"enum": ["1", "2"]}}})");
  const std::string answer =
      "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>"
      "\n<parameter=b>None</parameter><parameter=o>{\"a\": 1}</parameter><parameter=e>1</parameter>"
      "<parameter=u>[1]</parameter><parameter=w>a \"b\"\n c</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(ParseLine(QwenXml(), answer, {.types = &types}),
            R"(call f {"s": "12", "n": 12, "b": null, "o": {"a": 1}, "e": "1", "u": [1], )"
            R"("w": "a \"b\"\n c"}.)");
  EXPECT_EQ(ParseLine(QwenXml(), "<function=g><parameter=a>1</parameter></function>."),
            R"(call g {"a": 1}. text ".")");
  EXPECT_EQ(ParseLine(QwenXml(), "<tool_call><function=g></function></tool_call>"), "call g {}.");
}

TEST(ResponseParserTest, AStringInTagsIsToldAsItComes) {
  ParameterTypes types;
  types.Add("f", R"({"properties": {"s": {"type": "string"}}})");
  ResponseParser parser(&QwenXml(), {.types = &types});
  ResponseEvents events;
  parser.Push("<tool_call><function=f><parameter=s>\nint main() {\n", &events);
  EXPECT_EQ(Line(events), R"(call f {"s": "int main() {)");
  parser.Push("}\n</param", &events);
  EXPECT_EQ(Line(events), R"(call f {"s": "int main() {\n})");
  parser.Finish(&events);
  EXPECT_EQ(Line(events), R"(call f {"s": "int main() {\n}\n</param!)");
}

TEST(ResponseParserTest, TextBetweenTagsIsNotLost) {
  EXPECT_EQ(ParseLine(QwenXml(), "<function=f>Hm <parameter=a>1</parameter></function>"),
            R"(call f {"a": 1}. text "Hm")");
}

TEST(ResponseParserTest, LittleIsHeldBack) {
  const std::string part(1000, 'x');
  for (const char* begin :
       {"<tool_call>{\"x", "<tool_call>{\"arguments\": {\"a\": \"", "<tool_call>{\"arguments\": \"",
        "<tool_call>{\"y\": \"", "<tool_call>  "}) {
    ResponseParser parser(&Hermes(), {});
    ResponseEvents events;
    parser.Push(begin, &events);
    for (int i = 0; i < 70; ++i) parser.Push(part, &events);
    ASSERT_EQ(events.size(), 1u) << begin;
    const size_t told = events[0].bytes.size();
    EXPECT_GE(told + OpenCall::kMaxHeld, 70'000u) << begin;
    parser.Finish(&events);
    const size_t all = std::string_view(begin).size() - 11 + 70'000;
    EXPECT_GE(events[0].bytes.size() + 2, all) << begin;
  }
  ResponseParser parser(&QwenXml(), {});
  ResponseEvents events;
  parser.Push("<function=f><parameter=a>", &events);
  for (int i = 0; i < 70; ++i) parser.Push(part, &events);
  EXPECT_GE(events.back().bytes.size() + OpenCall::kMaxHeld, 70'000u);
}

}  // namespace
}  // namespace continuo::text
