// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/response_template.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/text/response/response_text.h"

namespace continuo::text {
namespace {

using ::testing::HasSubstr;

std::string Message(std::string_view json) {
  return std::string(ResponseTemplate::Parse(json).status().message());
}

ResponseTemplate Parsed(std::string_view json) {
  auto parsed = ResponseTemplate::Parse(json);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.value_or(ResponseTemplate());
}

constexpr char kTransform[] =
    R"("transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}})";

TEST(ResponseTemplateTest, AModelsOwnTemplateIsRead) {
  const ResponseTemplate parsed = Parsed(R"json({
    "defaults": {"role": "assistant"}, "start_anchor": "<|im_start|>assistant\n",
    "fields": {
      "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
      "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "repeats": true,
                     "content": "json",
                     "transform": {"type": "function", "function": "{content}"}},
      "content": {"close": "<|im_end|>", "content": "text"}}})json");
  EXPECT_EQ(ParseLine(parsed,
                      "<think>\nHm.\n</think>\n\nI ask.\n<tool_call>\n{\"name\": \"f\", "
                      "\"arguments\": {\"a\": [1]}}\n</tool_call><|im_end|>\n"),
            R"(thought "Hm." text "I ask." call f {"a": [1]}.)");
  // The prompt has begun the thought.
  EXPECT_EQ(ParseLine(parsed, "Hm.</think>Yes", {}, "<|im_end|>\n<|im_start|>assistant\n<think>\n"),
            R"(thought "Hm." text "Yes")");
  // The last anchor counts.
  EXPECT_EQ(ParseLine(parsed, "Yes", {},
                      "<|im_start|>assistant\n<think>a<|im_end|>\n<|im_start|>assistant\n"),
            R"(text "Yes")");
}

TEST(ResponseTemplateTest, NameAndArgumentsStandWhereTransformSays) {
  const ResponseTemplate in_open = Parsed(std::string(R"json({"fields": {"tool_calls": {
      "open_pattern": "<call:(?P<name>\\w+)>", "close": "</call>", "content": "json",)json") +
                                          kTransform + "}}}");
  EXPECT_EQ(ParseLine(in_open, "<call:f>{\"a\": 1}</call>"), R"(call f {"a": 1}.)");
  const ResponseTemplate in_list = Parsed(R"json({"fields": {"tool_calls": {
      "open": "<act>", "close": "</act>", "content": "json", "transform_each": true,
      "transform": {"function": {"name": "{tool}", "arguments": "{parameters}"}}}}})json");
  EXPECT_EQ(ParseLine(in_list,
                      R"(<act>[{"id": 1, "tool": "f", "parameters": {}}, {"parameters": {"b": 2}, )"
                      R"("tool": "g"}]</act>)"),
            R"(call f {}. call g {"b": 2}.)");
  const ResponseTemplate by_key = Parsed(R"json({"fields": {"tool_calls": {
      "open": "<act>", "close": "</act>", "content": "json",
      "transform": {"function": {"name": "{content.name}", "arguments": "{content.args}"}}}}})json");
  EXPECT_EQ(ParseLine(by_key, R"(<act>{"args": {"x": null}, "name": "f"}</act>)"),
            R"(call f {"x": null}.)");
}

TEST(ResponseTemplateTest, WithoutAFieldForItTheRestIsText) {
  const ResponseTemplate parsed = Parsed(R"json({"start_anchor": "<|start|>", "fields": {
      "thinking": {"open": "<a>", "close": "</a>"},
      "content": {"open": "<b>", "close": "</b>", "content_args": {"strip": false}}}})json");
  EXPECT_EQ(ParseLine(parsed, "x<a>y</a><|start|><b> z </b>w"),
            R"(text "x" thought "y" text " z w")");
}

TEST(ResponseTemplateTest, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(Message("{"), HasSubstr("is no JSON"));
  EXPECT_THAT(Message("[]"), HasSubstr("is no JSON object"));
  EXPECT_THAT(Message("{}"), HasSubstr("no \"fields\""));
  EXPECT_THAT(Message(R"({"fields": {"a": 1}})"), HasSubstr("field \"a\" is no object"));
  EXPECT_THAT(Message(R"({"fields": {"a": {}}, "x": 1})"), HasSubstr("unknown \"x\""));
  EXPECT_THAT(Message(R"({"fields": {"a": {"opens": ""}}})"), HasSubstr("unknown \"opens\""));
  EXPECT_THAT(Message(R"({"version": 2, "fields": {"a": {}}})"), HasSubstr("version 1"));
  EXPECT_THAT(Message(R"({"fields": {"a": {}, "b": {}}})"), HasSubstr("two fields"));
  EXPECT_THAT(Message(R"({"fields": {"a": {"open": "x", "open_pattern": "x"}}})"),
              HasSubstr("both"));
  EXPECT_THAT(Message(R"({"fields": {"a": {"open": ""}}})"), HasSubstr("\"open\""));
  EXPECT_THAT(Message(R"({"fields": {"a": {"open": []}}})"), HasSubstr("\"open\""));
  EXPECT_THAT(Message(R"json({"fields": {"a": {"open_pattern": "(?=x)"}}})json"),
              HasSubstr("(?=x)"));
  EXPECT_THAT(Message(R"({"fields": {"tool_calls": {"open": "x", "content": "kv-lines"}}})"),
              HasSubstr("kv-lines"));
  EXPECT_THAT(Message(R"({"fields": {"tool_calls": {"content": "json"}}})"), HasSubstr("open"));
  const std::string calls = R"({"fields": {"tool_calls": {"open": "x", "content": "json", )";
  EXPECT_THAT(Message(calls + R"("transform": {"function": {"name": "f"}}}}})"),
              HasSubstr("transform"));
  EXPECT_THAT(Message(calls + R"("transform_each": 3}}})"), HasSubstr("malformed"));
  const std::string tags =
      R"json({"fields": {"tool_calls": {"open_pattern": "(?P<name>x)", "close": "y",)json"
      R"json("content": "xml-inline", "content_args": {"tag_pattern": "(?P<key>a)=(?P<value>b)"},)json";
  EXPECT_THAT(Message(tags + kTransform + "}}}"), HasSubstr("(?P<value>.*?)"));
  EXPECT_THAT(Message(std::string(ResponseTemplate::kMaxBytes + 1, ' ')), HasSubstr("the limit"));
}

}  // namespace
}  // namespace continuo::text
