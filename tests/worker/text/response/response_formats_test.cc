// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/response_formats.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/shared_data.h"
#include "tests/worker/text/response/response_text.h"

namespace continuo::text {
namespace {

using ::testing::HasSubstr;

// An answer in a format, and what is in it.
struct Answer {
  const char* format;
  const char* markers;
  const char* text;
  const char* line;
};

const Answer kAnswers[] = {
    {"hermes", "<think>",
     "<think>\nHm\n</think>\n\nOk\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
     "\"é\"}}\n</tool_call>",
     "thought \"Hm\" text \"Ok\" call f {\"a\": \"é\"}."},
    {"qwen_xml", "<think>",
     "Hm</think>Ok\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</"
     "parameter>\n<parameter=b>\nx\ny\n"
     "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</"
     "tool_call>",
     "text \"HmOk\" call f {\"a\": 1, \"b\": \"x\\ny\"}. call g {}."},
    {"qwen_xml", "<seed:think>",
     "<seed:think>Hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</"
     "function>\n"
     "</seed:tool_call>",
     "thought \"Hm\" call f {\"a\": \"x\"}."},
    {"glm", "<think>",
     "\n<think>Hm</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x y</arg_value>\n"
     "<arg_key>b</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>",
     "thought \"Hm\" call f {\"a\": \"x y\", \"b\": [1]}."},
    {"functionary", "", "<function=f>{\"a\": 1}</function>\n<function=g>{}</function>",
     "call f {\"a\": 1}. call g {}."},
    {"harmony", "",
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary<|message|>I "
     "ask."
     "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
     "{\"a\": \"x\"}<|call|>",
     "thought \"Hm\" text \"I ask.\" call f {\"a\": \"x\"}."},
    {"harmony", "",
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant "
     "to=functions.f<|channel|>commentary "
     "json<|message|>{\"a\": 1}<|call|>",
     "thought \"Hm\" call f {\"a\": 1}."},
    {"harmony", "", "<|channel|>final<|message|>Yes.<|return|>", "text \"Yes.\""},
    {"gemma", "<|channel>thought\n",
     "<|channel>thought\nHm<channel|><|tool_call>call:f{a:<|\"|>x \"y\"<|\"|>,b:[1,2.5],c:{d:true}}"
     "<tool_call|><|tool_call>call:g{}<tool_call|>Ok<turn|>",
     "thought \"Hm\" call f {\"a\":\"x \\\"y\\\"\",\"b\":[1,2.5],\"c\":{\"d\":true}}. call g {}. "
     "text \"Ok\""},
    {"deepseek", "<think>",
     "<think>Hm</"
     "think>Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
     "{\"a\": "
     "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "thought \"Hm\" text \"Ok\" call f {\"a\": 1}. call g {}."},
    {"deepseek", "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "call f {\"a\": 1}."},
    {"deepseek_dsml", "<think>",
     "</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
     "name=\"a\" "
     "string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "call f {\"a\": \"x\"}."},
    {"minimax", "<think>",
     "Ok\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
     "name=\"a\">x</parameter>\n</invoke>\n"
     "</minimax:tool_call>",
     "text \"Ok\" call f {\"a\": \"x\"}."},
    {"minicpm", "", "<function name=\"f\"><param name=\"a\">x</param></function>",
     "call f {\"a\": \"x\"}."},
    {"kimi", "<think>",
     "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "text \"Ok\" call f {\"a\": 1}. call g {}."},
    {"mistral_args", "[THINK]",
     "[THINK]Hm[/THINK]Ok[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abc123def[ARGS]{}",
     "thought \"Hm\" text \"Ok\" call f {\"a\": 1}. call g {}."},
    {"mistral", "",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc123def\"}]",
     "call f {\"a\": 1}."},
    {"cohere", "<|START_THINKING|>",
     "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": "
     "\"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
     "thought \"Hm\" call f {\"a\": 1}."},
    {"granite", "<think>",
     "<think>Hm</think><response>Ok</response><|tool_call|>[{\"name\": \"f\", \"arguments\": "
     "{\"a\": 1}}]",
     "thought \"Hm\" text \"Ok\" call f {\"a\": 1}."},
    {"gigachat", "", "<|function_call|>{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
     "call f {\"a\": 1}."},
    {"toolcall_list", "", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL>",
     "call f {\"a\": 1}."},
    {"lfm2", "",
     "<|tool_call_start|>[f(a=\"x\", b=[1, 'y', None], c={'d': (True,)}), g()]<|tool_call_end|>Ok",
     "call f {\"a\": \"x\", \"b\": [1, \"y\", null], \"c\": {\"d\": [true]}}. call g {}. text "
     "\"Ok\""},
    {"llama3", "", "{\"name\": \"f\", \"parameters\": {\"a\": {\"b\": 1}}}",
     "call f {\"a\": {\"b\": 1}}."},
    {"llama3", "",
     "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": "
     "\"g\", "
     "\"parameters\": {}}",
     "call f {}. call g {}."},
    {"llama3", "", "{\"answer\": 42, \"name\": \"f\"}",
     "text \"{\"answer\": 42, \"name\": \"f\"}\""},
    {"pythonic", "", "[f(a='it\\'s', n=-3), m.g(b=True)]",
     "call f {\"a\": \"it's\", \"n\": -3}. call m.g {\"b\": true}."},
    {"pythonic", "", "[1, 2] and [f(1)]", "text \"[1, 2] and [f(1)]\""},
};

TEST(ResponseFormatsTest, EachFormatIsReadAndItsMarkersAreNoText) {
  for (const Answer& answer : kAnswers) {
    const auto format = NamedResponseFormat(answer.format, answer.markers);
    ASSERT_TRUE(format.ok()) << format.status();
    EXPECT_EQ(ParseLine(format->response_template, answer.text), answer.line) << answer.text;
  }
}

TEST(ResponseFormatsTest, EachFormatHasAnExample) {
  for (const std::string_view name : ResponseFormatNames()) {
    const bool found = std::any_of(std::begin(kAnswers), std::end(kAnswers),
                                   [&](const Answer& answer) { return answer.format == name; });
    EXPECT_TRUE(found) << name;
  }
  EXPECT_THAT(std::string(NamedResponseFormat("x", "").status().message()), HasSubstr("hermes, "));
}

std::vector<std::string> Characters(const std::string& text) {
  std::vector<std::string> characters;
  for (const char c : text) {
    if (characters.empty() || (c & 0xC0) != 0x80) characters.emplace_back();
    characters.back() += c;
  }
  return characters;
}

// The answer, perhaps spoilt: characters left out, doubled, replaced, or cut off.
std::string Spoilt(const std::string& text, std::mt19937& random) {
  const std::vector<std::string> characters = Characters(text);
  const int rate = std::uniform_int_distribution(0, 3)(random) * 8;
  const size_t end = random() % 2 ? characters.size() : random() % characters.size();
  std::string spoilt;
  for (size_t i = 0; i < end; ++i) {
    const bool spoil = rate > 0 && random() % (4 * rate) == 0;
    const int how = spoil ? static_cast<int>(random() % 5) : 0;
    if (how != 1) spoilt += characters[i];
    if (how == 2) spoilt += characters[i];
    if (how == 3) spoilt += "{}[]()\"':,<>| n"[random() % 15];
    if (how == 4) spoilt += characters[random() % characters.size()];
  }
  return spoilt;
}

// The text in parts as a tokenizer might have them: `special` of the markers' brackets are tokens.
std::vector<AnswerPart> Parts(const std::string& text, bool special) {
  std::vector<AnswerPart> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = special && text.compare(at, 2, "<|") == 0 ? text.find("|>", at) : text.npos;
    if (end != text.npos) {
      parts.emplace_back(text.substr(at, end + 2 - at), true);
      at = end + 2;
      continue;
    }
    size_t next = text.find("<|", at + 1);
    if (!special) next = text.npos;
    parts.emplace_back(text.substr(at, next - at), false);
    at = std::min(next, text.size());
  }
  return parts;
}

std::vector<AnswerPart> Divided(const std::vector<AnswerPart>& parts, std::mt19937& random) {
  std::vector<AnswerPart> divided;
  for (const auto& [text, special] : parts) {
    bool begin = true;
    for (const std::string& character : Characters(text)) {
      if (begin || (!special && random() % 3 == 0)) divided.emplace_back("", special);
      divided.back().first += character;
      begin = false;
    }
  }
  return divided;
}

bool IsJsonObject(const std::string& text) {
  return nlohmann::json::parse(text, nullptr, false).is_object();
}

// Checks what holds of the events of any answer.
void CheckEvents(const ResponseEvents& events, const std::string& what) {
  bool in_call = false;
  std::string arguments;
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kCallBegin:
        EXPECT_FALSE(in_call) << what;
        EXPECT_FALSE(event.bytes.empty()) << what;
        in_call = true;
        arguments.clear();
        break;
      case ResponseEvent::Kind::kArguments:
        EXPECT_TRUE(in_call) << what;
        arguments += event.bytes;
        break;
      case ResponseEvent::Kind::kCallEnd:
        EXPECT_TRUE(in_call) << what;
        EXPECT_EQ(event.whole, IsJsonObject(arguments)) << what << "\n" << arguments;
        in_call = false;
        break;
      default:
        EXPECT_FALSE(in_call) << what;
    }
  }
  EXPECT_FALSE(in_call) << what;
}

TEST(ResponseFormatsTest, AnyDivisionGivesTheSameEvents) {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    for (const Answer& answer : kAnswers) {
      const ResponseFormat format = *NamedResponseFormat(answer.format, answer.markers);
      std::string text = Spoilt(answer.text, random);
      if (random() % 4 == 0) text += Spoilt(answer.text, random);
      const std::vector<AnswerPart> parts = Parts(text, random() % 2 == 0);
      const ResponseEvents whole = ParseParts(format.response_template, parts);
      CheckEvents(Joined(whole), text);
      const std::string line = Line(whole);
      EXPECT_EQ(Line(ParseParts(format.response_template, Divided(parts, random))), line) << text;
    }
  }
}

// So much white space is not held until it is known what follows.
TEST(ResponseFormatsTest, WhiteSpaceWithoutEndIsToldAlikeHoweverItComes) {
  const ResponseFormat format = *NamedResponseFormat("hermes", "<think>");
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  for (const size_t length : {1000, 1023, 1024, 1025, 2000, 5000}) {
    const std::string text = "a" + std::string(length, ' ') + call + "b";
    ResponseParser at_once(&format.response_template, {}), by_byte(&format.response_template, {});
    ResponseEvents whole, events;
    at_once.Push(text, &whole);
    for (const char byte : text) by_byte.Push({&byte, 1}, &events);
    at_once.Finish(&whole);
    by_byte.Finish(&events);
    EXPECT_EQ(Line(Joined(events)), Line(Joined(whole))) << length;
    const size_t told = length > 1024 ? length - 1024 : 0;
    EXPECT_EQ(whole.front().bytes, "a" + std::string(told, ' ')) << length;
  }
}

// What was told after some of the parts is the beginning of what was told after more of them.
TEST(ResponseFormatsTest, NothingThatWasToldIsTakenBack) {
  std::mt19937 random(2);
  for (const Answer& answer : kAnswers) {
    const ResponseFormat format = *NamedResponseFormat(answer.format, answer.markers);
    const std::vector<AnswerPart> parts =
        Divided(Parts(Spoilt(answer.text, random), random() % 2 == 0), random);
    ResponseParser parser(&format.response_template, {});
    ResponseEvents events;
    for (const auto& [text, special] : parts) {
      if (special) {
        parser.PushSpecial(text, &events);
      } else {
        parser.Push(text, &events);
      }
      // A copy goes on like the parser itself.
      ResponseParser copy = parser;
      ResponseEvents rest = events;
      copy.Finish(&rest);
      ASSERT_GE(rest.size(), events.size());
      for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_EQ(rest[i], events[i]);
    }
    parser.Finish(&events);
    EXPECT_EQ(Line(events), Line(ParseParts(format.response_template, parts)));
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ResponseFormatsTest, AChatTemplateTellsItsFormat) {
  CONTINUO_NEED_SHARED("data/chat_templates/rendered_by_jinja2.json");
  const std::string folder = testing::SharedPath("data/chat_templates/");
  // By the template's file: rendering of a conversation with a tool, and of one with its call.
  std::map<std::string, std::pair<nlohmann::json, nlohmann::json>> rendered;
  for (const auto& one : nlohmann::json::parse(ReadFile(folder + "rendered_by_jinja2.json"))) {
    if (one["case"] == 2) rendered[one["template_file"]].first = one["expected"];
    if (one["case"] == 3) rendered[one["template_file"]].second = one["expected"];
  }
  std::map<std::string, std::string> found;
  for (const auto& [file, texts] : rendered) {
    const std::string source = ReadFile(folder + "llama.cpp/" + file);
    RenderedCall call{.name = "get_weather", .arguments = R"({"city": "Paris"})"};
    const bool is_rendered = texts.first.is_string() && texts.second.is_string();
    if (is_rendered) {
      call.prompt = texts.first;
      call.with_call = texts.second;
    }
    const ResponseFormat format = FindResponseFormat(source, is_rendered ? &call : nullptr);
    for (const ResponseField& field : format.response_template.fields) {
      if (field.channel == ResponseField::Channel::kReasoning) found[file] = " with thoughts";
    }
    found[file] = format.name + found[file];
  }
  const auto expected =
      nlohmann::json::parse(ReadFile("tests/worker/text/response/testdata/formats.json"));
  EXPECT_EQ(nlohmann::json(found), expected);
}

}  // namespace
}  // namespace continuo::text
