// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace continuo::text {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Choice = CallGrammarOptions::Choice;

const CallTool kTool = {
    "f", R"({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})"};

ResponseFormat Format(const char* name) { return *NamedResponseFormat(name, "<think>"); }

TEST(CallGrammarTest, ACallIsSpeltAsTheTemplateSpellsIt) {
  EXPECT_EQ(
      *CallGrammar(Format("hermes"), {{kTool}}, {}, {.parallel = false}),
      R"lark(start: (T4? "<tool_call>\n{\"name\": \"" r3)
r0: %json {"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false,)lark"
      R"lark("x-guidance":{"whitespace_flexible":false,"item_separator":", ?","key_separator":": ?",)lark"
      R"lark("json_allowed_escapes":"nrbtf\"\\"}}
r1: "f\", \"arguments\": " r0 "}\n</tool_call>"
r2: r1
r3: r2 ""
T4: /\n{1,2}/
)lark");
}

TEST(CallGrammarTest, SpecialTokensAreTokensAndThoseThatEndAreLeftOut) {
  const std::vector<SpecialToken> tokens = {
      {"<|channel|>", 7}, {"<|message|>", 8}, {"<|call|>", 9, true}};
  const std::string lark = *CallGrammar(Format("harmony"), {{kTool}}, tokens, {});
  EXPECT_THAT(lark, HasSubstr("<[7]> \"commentary to=functions.f <|constrain|>json\" <[8]>"));
  EXPECT_THAT(lark, Not(HasSubstr("call|")));
  EXPECT_THAT(lark, Not(HasSubstr("<[9]>")));
}

TEST(CallGrammarTest, OnlyStrictToolsAreConstrainedWhereNoCallIsRequired) {
  CallTool strict = kTool;
  strict.strict = true;
  const CallGrammarOptions options = {.choice = Choice::kAuto};
  EXPECT_THAT(*CallGrammar(Format("hermes"), {{strict}}, {}, options),
              HasSubstr(R"("required":["a"])"));
  EXPECT_THAT(*CallGrammar(Format("hermes"), {{kTool}}, {}, options),
              Not(HasSubstr(R"("required")")));
}

TEST(CallGrammarTest, WhatCannotBeIsNamed) {
  const auto message = [](const char* format, std::vector<CallTool> tools,
                          const CallGrammarOptions& options = {}) {
    const auto lark = CallGrammar(Format(format), tools, {}, options);
    EXPECT_TRUE(absl::IsInvalidArgument(lark.status())) << lark.status();
    return std::string(lark.status().message());
  };
  EXPECT_THAT(message("hermes", {}), HasSubstr("no tools"));
  EXPECT_THAT(message("hermes", {kTool, kTool}), HasSubstr("two tools have the name \"f\""));
  EXPECT_THAT(message("hermes", {kTool}, {.choice = Choice::kNamed, .name = "g"}),
              HasSubstr("no tool has the name \"g\""));
  EXPECT_THAT(message("hermes", {{"", ""}}), HasSubstr("its name is empty"));
  EXPECT_THAT(message("hermes", {{std::string(2'000, 'f'), ""}}), HasSubstr("too long"));
  EXPECT_THAT(message("hermes", {{"\xff", ""}}), HasSubstr("not printable"));
  EXPECT_THAT(message("qwen_xml", {{"a>b", ""}}), HasSubstr("its name is none"));
  EXPECT_THAT(message("pythonic", {{"a b", ""}}), HasSubstr("its name is none"));
  EXPECT_THAT(message("hermes", {{"f", "[]"}}), HasSubstr("must be a JSON object"));
  EXPECT_THAT(message("hermes", {{"f", R"({"type": "string"})"}}),
              HasSubstr("must have the type \"object\""));
  EXPECT_THAT(message("hermes", {{"f", std::string(200, '[')}}), HasSubstr("nested deeper"));
  EXPECT_THAT(message("qwen_xml", {{"f", R"({"minProperties": 1})"}}),
              HasSubstr("the tool \"f\": \"minProperties\" of the parameters"));
  EXPECT_THAT(
      message("qwen_xml", {{"f", R"({"properties": {"a": {"type": "string", "format": "x"}}})"}}),
      HasSubstr("the parameter \"a\": the format \"x\""));
  EXPECT_THAT(message("lfm2", {{"f", R"({"properties": {"a b": {}}, "required": ["a b"]})"}}),
              HasSubstr("the parameter \"a b\" is no name"));
  EXPECT_THAT(
      message("hermes", {{"f", R"({"description": ")" + std::string(300'000, 'x') + "\"}"}}),
      HasSubstr("more than 262144 bytes"));
}

TEST(CallGrammarTest, LarkOfTheTextStandsBesideTheCallsAndAHeaderBeforeText) {
  const CallGrammarOptions options = {
      .choice = Choice::kAuto, .text = GrammarSource{GrammarSource::Kind::kLark, "start: \"a\""}};
  EXPECT_THAT(*CallGrammar(Format("hermes"), {{kTool}}, {}, options), HasSubstr(" | @text)"));
  EXPECT_EQ(CallHead(Format("hermes"), {}), "<tool_call>\n{\"name\": \"");
  const std::vector<SpecialToken> tokens = {{"<tool_call>", 5}, {"<|channel|>", 7}};
  EXPECT_EQ(CallHead(Format("hermes"), tokens), "");
  EXPECT_EQ(TextFrame(Format("hermes"), tokens), "");
  EXPECT_EQ(TextFrame(Format("harmony"), tokens),
            "start: (\"<|start|>assistant\")? <[7]> \"final<|message|>\" @text\n");
}

TEST(CallGrammarTest, AFormatWithoutCallsHasNoGrammar) {
  EXPECT_TRUE(absl::IsUnimplemented(CallGrammar(Format("none"), {{kTool}}, {}, {}).status()));
}

// A model's own response_template is turned around.
TEST(CallGrammarTest, AResponseTemplateIsTurnedAround) {
  const auto lark = [](const std::string& field) {
    const auto parsed =
        ResponseTemplate::Parse(R"({"fields": {"content": {}, "tool_calls": )" + field + "}}");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return CallGrammar({"template", *parsed}, {{kTool}}, {}, {.parallel = false});
  };
  EXPECT_THAT(*lark(R"({"open": "<call>", "close": "</call>", "content": "json",
                        "transform": {"function": "{content}"}})"),
              HasSubstr(R"lark("f\", \"arguments\": " r0 "}</call>")lark"));
  EXPECT_THAT(*lark(R"({"open_pattern": "<c (?P<name>\\w+)>\\s*", "close_pattern": "\\s*</c>",
                        "content": "json",
                        "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})"),
              HasSubstr(R"lark("f>" r0 "</c>")lark"));
  EXPECT_THAT(*lark(R"({"open_pattern": "<c (?P<name>\\w+)>", "close": "</c>",
                        "content": "xml-inline", "content_args": {
                        "tag_pattern": "<(?P<key>\\w+)>(?P<value>.*?)</>"},
                        "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})"),
              HasSubstr("\"<a>\""));
  EXPECT_THAT(*lark(R"({"open": "<py>", "close": "</py>", "content": "python"})"),
              HasSubstr("\"f(\" r2 \")\""));
  const absl::Status status =
      lark(R"({"open_pattern": "<c id=\\d+>", "close": "</c>", "content": "json",
               "transform": {"function": "{content}"}})")
          .status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("leaves characters to choose"));
}

}  // namespace
}  // namespace continuo::text
