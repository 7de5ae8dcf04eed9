// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/response_formats.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/text/response/response_parser.h"
#include "services/worker/text/response/spaces.h"

namespace continuo::text {
namespace {

using Json = nlohmann::ordered_json;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// How thoughts are marked. The first one that a model's markers have is its own.
struct Thoughts {
  std::string_view open, close;
};
constexpr Thoughts kThoughts[] = {
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought\n", "<channel|>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<mm:think>", "</mm:think>"},
    {"◁think▷", "◁/think▷"},
    {"<think>", "</think>"},
};

struct Known {
  std::string_view name;
  // In what tells of calls where none is rendered; may be empty.
  std::string_view needle;
  // A response_template's field, and what else is no text.
  std::string_view calls;
  std::string_view ignore = "[]";
  // In place of the thoughts that the model's markers have.
  std::string_view reasoning = {};
  // A regular expression of what stands before text.
  std::string_view text_header = {};
};

// Where one reads what another one writes, the stricter one comes first.
constexpr Known kKnown[] = {
    {"hermes", "<tool_call>", R"json({
      "open": "<tool_call>", "close": "</tool_call>", "content": "json",
      "transform": {"function": "{content}"}})json"},
    {"qwen_xml", "<function=", R"json({
      "open_pattern": "(?:<(?:seed:)?tool_call>\\s*)?<function=(?P<name>[^>\\s{]+)>",
      "close_pattern": "</function>(?:\\s*</(?:seed:)?tool_call>)?|</(?:seed:)?tool_call>",
      "content": "xml-inline",
      "content_args": {
        "tag_pattern": "<parameter=(?P<key>[^>\\n]+)>\\n?(?P<value>.*?)\\n?</parameter>"},
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json"},
    {"glm", "<arg_key>", R"json({
      "open_pattern": "<tool_call>\\s*(?P<name>[^\\s<{]+)\\s*", "close": "</tool_call>",
      "content": "xml-inline",
      "content_args": {
        "tag_pattern": "<arg_key>(?P<key>[^<]+)</arg_key>\\s*<arg_value>(?P<value>.*?)</arg_value>"},
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["<\\|observation\\|>"])json"},
    {"functionary", "", R"json({
      "open_pattern": "<function=(?P<name>[^>\\s{]+)>", "close": "</function>", "content": "json",
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json"},
    {"harmony", "<|channel|>", R"json({
      "open_pattern": "(?:<\\|start\\|>assistant)?(?: ?to=functions\\.(?P<name>[\\w.-]+)<\\|channel\\|>\\w+|<\\|channel\\|>\\w+ to=functions\\.(?P<name>[\\w.-]+))[^<]*(?:<\\|constrain\\|>[^<]*)?<\\|message\\|>",
      "close_pattern": "<\\|(?:call|end|return)\\|>", "content": "json",
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json([
       "(?:<\\|start\\|>assistant)?<\\|channel\\|>(?:final|commentary)[^<]*(?:<\\|constrain\\|>[^<]*)?<\\|message\\|>",
       "<\\|start\\|>assistant", "<\\|(?:call|end|return)\\|>"])json",
     R"json({
      "open_pattern": "(?:<\\|start\\|>assistant)?<\\|channel\\|>analysis[^<]*<\\|message\\|>",
      "close_pattern": "<\\|(?:end|call|return)\\|>"})json",
     R"((?:<\|start\|>assistant)?<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>)"},
    {"gemma", "<|tool_call>call:", R"json({
      "open_pattern": "<\\|tool_call>call:(?P<name>[\\w.-]+)", "close": "<tool_call|>",
      "content": "json",
      "content_args": {"unquoted_keys": true, "string_delims": [["<|\"|>", "<|\"|>"]]},
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["<turn\\|>", "<\\|tool_response>"])json"},
    {"deepseek", "<｜tool▁call▁begin｜>", R"json({
      "open_pattern": "<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?(?P<name>[^\\s<]+)(?:<｜tool▁sep｜>|\\s*```json\\s*)",
      "close_pattern": "\\s*(?:```\\s*)?<｜tool▁call▁end｜>", "content": "json",
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["<｜tool▁calls▁(?:begin|end)｜>"])json"},
    {"deepseek_dsml", "<｜DSML｜", R"json({
      "open_pattern": "<｜DSML｜invoke name=\"(?P<name>[^\"]+)\">", "close": "</｜DSML｜invoke>",
      "content": "xml-inline",
      "content_args": {
        "tag_pattern": "<｜DSML｜parameter name=\"(?P<key>[^\"]+)\"[^>]*>(?P<value>.*?)</｜DSML｜parameter>"},
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["</?｜DSML｜(?:function|tool)_calls>"])json"},
    {"minimax", "<minimax:tool_call>", R"json({
      "open_pattern": "<invoke name=\"(?P<name>[^\"]+)\">", "close": "</invoke>",
      "content": "xml-inline",
      "content_args": {
        "tag_pattern": "<parameter name=\"(?P<key>[^\"]+)\">(?P<value>.*?)</parameter>"},
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["</?minimax:tool_call>"])json"},
    {"minicpm", "<function name=", R"json({
      "open_pattern": "<function name=\"(?P<name>[^\"]+)\">", "close": "</function>",
      "content": "xml-inline",
      "content_args": {"tag_pattern": "<param name=\"(?P<key>[^\"]+)\">(?P<value>.*?)</param>"},
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json"},
    {"kimi", "<|tool_call_begin|>", R"json({
      "open_pattern": "<\\|tool_call_begin\\|>\\s*(?:functions\\.)?(?P<name>[^:\\s<]+)(?::\\d+)?\\s*<\\|tool_call_argument_begin\\|>",
      "close": "<|tool_call_end|>", "content": "json",
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["<\\|tool_calls_section_(?:begin|end)\\|>"])json"},
    {"mistral_args", "[ARGS]", R"json({
      "open_pattern": "\\[TOOL_CALLS\\](?P<name>[^\\[{\\s]+)(?:\\[CALL_ID\\][^\\[]*)?(?:\\[ARGS\\])?",
      "content": "json",
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json"},
    {"mistral", "[TOOL_CALLS]", R"json({
      "open": "[TOOL_CALLS]", "content": "json", "transform": {"function": "{content}"}})json"},
    {"cohere", "<|START_ACTION|>", R"json({
      "open": "<|START_ACTION|>", "close": "<|END_ACTION|>", "content": "json",
      "transform_each": true,
      "transform": {"function": {"name": "{tool_name}", "arguments": "{parameters}"}}})json",
     R"json(["<\\|(?:START|END)_(?:RESPONSE|TEXT)\\|>"])json"},
    {"granite", "<|tool_call|>", R"json({
      "open": ["<|tool_call|>", "<tool_call>"], "content": "json",
      "transform": {"function": "{content}"}})json",
     R"json(["</?response>", "</tool_call>"])json"},
    {"gigachat", "<|function_call|>", R"json({
      "open": "<|function_call|>", "content": "json", "transform": {"function": "{content}"}})json"},
    {"toolcall_list", "<TOOLCALL>", R"json({
      "open": ["<TOOLCALL>", "<tool_calls>"], "close": ["</TOOLCALL>", "</tool_calls>"],
      "content": "json", "transform": {"function": "{content}"}})json"},
    {"lfm2", "<|tool_call_start|>", R"json({
      "open": "<|tool_call_start|>", "close": "<|tool_call_end|>", "content": "python"})json"},
    // These have no marker: the whole answer is a call, or none.
    {"llama3", "<|python_tag|>", R"json({
      "open_pattern": "(?:^\\s*|;\\s*)(?:<\\|python_tag\\|>)?\\s*\\{\\s*(?:\"type\"\\s*:\\s*\"function\"\\s*,\\s*)?\"(?:name|function)\"\\s*:\\s*\"(?P<name>[^\"\\\\\\s]+)\"\\s*,\\s*\"(?:parameters|arguments)\"\\s*:\\s*",
      "close_pattern": "\\s*\\}", "content": "json",
      "transform": {"function": {"name": "{name}", "arguments": "{content}"}}})json",
     R"json(["<\\|python_tag\\|>"])json"},
    {"pythonic", "", R"json({
      "open_pattern": "^\\s*(?:<\\|python_start\\|>)?\\[(?P<name>[A-Za-z_][\\w.]*)\\(",
      "close_pattern": "\\s*\\](?:<\\|python_end\\|>)?", "content": "python"})json"},
};

ResponseTemplate Build(const Known* known, std::string_view markers) {
  Json json = {{"version", 1}, {"fields", Json::object()}, {"ignore", Json::array()}};
  if (known != nullptr) {
    json["ignore"] = Json::parse(known->ignore);
    json["fields"]["tool_calls"] = Json::parse(known->calls);
    if (!known->text_header.empty()) json["text_header_pattern"] = known->text_header;
  }
  if (known != nullptr && !known->reasoning.empty()) {
    json["fields"]["reasoning"] = Json::parse(known->reasoning);
  } else {
    for (const Thoughts& thoughts : kThoughts) {
      // A source may write its line breaks as escapes.
      if (!Contains(markers, StripRight(thoughts.open))) continue;
      json["fields"]["reasoning"] = {{"open", thoughts.open}, {"close", thoughts.close}};
      // Thoughts that the prompt, or nobody, began.
      std::string close;
      for (const char c : thoughts.close) {
        if (std::string_view("[]|").find(c) != std::string_view::npos) close += '\\';
        close += c;
      }
      json["ignore"].push_back(close);
      break;
    }
  }
  json["fields"]["content"] = Json::object();
  absl::StatusOr<ResponseTemplate> result = ResponseTemplate::Parse(json.dump());
  CONTINUO_CHECK(result.ok());
  return *std::move(result);
}

// The answer in `rendered`: what follows its prompt. Where the answer is written differently from
// what the prompt begins it with, it is cut behind a white space or a bracket.
std::string_view AnswerOf(const RenderedCall& rendered) {
  const std::string& text = rendered.with_call;
  const std::string& prompt = rendered.prompt;
  const auto [a, b] = std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end());
  auto common = static_cast<size_t>(a - prompt.begin());
  if (common < prompt.size()) {
    while (common > 0 &&
           std::string_view("\n >]").find(text[common - 1]) == std::string_view::npos) {
      --common;
    }
  }
  return std::string_view(text).substr(common);
}

// Returns whether the first thing that a format reads in the answer, but for thoughts, is the call.
bool Reads(const ResponseTemplate& format, const RenderedCall& rendered) {
  ResponseParser parser(&format, {});
  ResponseEvents events;
  parser.Push(AnswerOf(rendered), &events);
  parser.Finish(&events);
  std::string arguments;
  bool begun = false;
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kReasoning:
        break;
      case ResponseEvent::Kind::kText:
        return false;
      case ResponseEvent::Kind::kCallBegin:
        if (event.bytes != rendered.name) return false;
        begun = true;
        break;
      case ResponseEvent::Kind::kArguments:
        arguments += event.bytes;
        break;
      case ResponseEvent::Kind::kCallEnd:
        return begun && event.whole &&
               nlohmann::json::parse(arguments, nullptr, false) ==
                   nlohmann::json::parse(rendered.arguments, nullptr, false);
    }
  }
  return false;
}

}  // namespace

std::vector<std::string_view> ResponseFormatNames() {
  std::vector<std::string_view> names;
  for (const Known& known : kKnown) names.push_back(known.name);
  return names;
}

absl::StatusOr<ResponseFormat> NamedResponseFormat(std::string_view name,
                                                   std::string_view markers) {
  if (name == "none") return ResponseFormat{"none", Build(nullptr, markers)};
  for (const Known& known : kKnown) {
    if (known.name == name) return ResponseFormat{std::string(name), Build(&known, markers)};
  }
  std::string names;
  for (const Known& known : kKnown) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", std::string(name), "\" is no format of tool calls; there are none, ", names));
}

ResponseFormat FindResponseFormat(std::string_view markers, const RenderedCall* rendered) {
  if (rendered != nullptr) {
    for (const Known& known : kKnown) {
      ResponseTemplate format = Build(&known, markers);
      if (!Reads(format, *rendered)) continue;
      return {std::string(known.name), std::move(format), std::string(AnswerOf(*rendered)),
              rendered->name, rendered->arguments};
    }
    // Calls that no format reads are not another one's.
    if (Contains(AnswerOf(*rendered), rendered->name)) return {"none", Build(nullptr, markers)};
  }
  const Known* found = nullptr;
  for (const Known& known : kKnown) {
    if (!known.needle.empty() && Contains(markers, known.needle)) found = &known;
    // Others have the marker of Hermes, too.
    if (found != nullptr && found != &kKnown[0]) break;
  }
  return {found == nullptr ? "none" : std::string(found->name), Build(found, markers)};
}

}  // namespace continuo::text
