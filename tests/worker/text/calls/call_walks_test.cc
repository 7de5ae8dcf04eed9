// SPDX-License-Identifier: Apache-2.0
// What a grammar of calls allows is read back as whole calls that obey their schemas: random walks
// over the allowed tokens, to the end of the answer.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/utf8.h"
#include "services/worker/text/calls/call_grammar.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/response/response_parser.h"
#include "tests/worker/text/calls/call_cases.h"
#include "tests/worker/text/calls/call_model.h"
#include "tests/worker/text/grammar/random_answer.h"
#include "tests/worker/text/response/response_text.h"

namespace continuo::text {
namespace {

using Choice = CallGrammarOptions::Choice;
using Json = nlohmann::json;

// Texts that are one token each: markers, and what ends values.
const std::vector<std::string>& Words() {
  static const auto* const words =
      new std::vector<std::string>{"<tool_call>",
                                   "</tool_call>",
                                   "</parameter>",
                                   "\n</parameter>\n",
                                   "</param>",
                                   "</function>",
                                   "</arg_value>\n",
                                   "</｜DSML｜parameter>\n",
                                   "</seed:tool_call>",
                                   "null",
                                   "True",
                                   "true",
                                   "{\"",
                                   "\": ",
                                   "\", \"",
                                   "\"}",
                                   "{\"name\": \"get_weather",
                                   "[f(",
                                   "<function=get_weather>",
                                   "; {\"name\": \"x\", \"parameters\": {",
                                   "</",
                                   "\n\n"};
  return *words;
}

// $CONTINUO_WALKS: walks through each grammar without a demand of the text.
int NumWalks() {
  const char* const walks = std::getenv("CONTINUO_WALKS");
  return walks == nullptr ? 4 : std::atoi(walks);
}

struct Walk {
  std::vector<int32_t> ids;
  std::string text;  // special tokens in «»
  bool is_finished = false;
};

// Goes through the grammar at random. Tokens of several bytes and those that end something are
// likelier, and after a while nothing else is taken where there is one.
Walk WalkThrough(const TextModel& model, const Grammar& grammar, std::mt19937_64& random) {
  Walk walk;
  const auto matcher = *grammar.NewMatcher();
  const auto one_of = [&](int n) { return random() % n == 0; };
  for (int step = 0; step < 2'000; ++step) {
    walk.is_finished = matcher->MustEnd() || (matcher->CanEnd() && (step > 150 || one_of(3)));
    if (walk.is_finished) break;
    const std::vector<int32_t> allowed = testing::IdsOf(testing::MaskOf(model, *matcher));
    EXPECT_TRUE(matcher->status().ok()) << matcher->status() << walk.text;
    EXPECT_FALSE(allowed.empty()) << walk.text;
    if (allowed.empty() || !matcher->status().ok()) break;
    std::vector<int32_t> closing, common;
    for (const int32_t id : allowed) {
      const std::string_view bytes = model.TokenBytesKeepSpecial(id);
      const bool closes =
          bytes.size() > 1 ||
          std::string_view(step > 150 ? "\"})]\n" : "\"})],").find(bytes) != bytes.npos;
      // Nothing opens any more.
      const bool opens = bytes.find_first_of("{[(") != bytes.npos;
      if (closes && !(opens && step > 150)) closing.push_back(id);
      if (bytes.size() == 1 && bytes[0] >= ' ' && bytes[0] <= '~') common.push_back(id);
    }
    const bool close = !closing.empty() && (step > 150 ? !one_of(4) : one_of(step < 2 ? 2 : 3));
    const auto& from = close ? closing : common.empty() || one_of(8) ? allowed : common;
    const int32_t id = from[random() % from.size()];
    EXPECT_TRUE(matcher->Accept(id)) << walk.text;
    walk.ids.push_back(id);
    const std::string bytes(model.TokenBytesKeepSpecial(id));
    walk.text += model.IsSpecial(id) ? absl::StrCat("«", bytes, "»") : bytes;
  }
  return walk;
}

ResponseEvents Read(const TextModel& model, const ResponseFormat& format,
                    const ParameterTypes& types, const std::vector<int32_t>& ids) {
  ResponseParser parser(&format.response_template, {.types = &types});
  ResponseEvents events;
  Utf8Assembler assembler;
  for (const int32_t id : ids) {
    std::string text;
    if (model.IsSpecial(id)) {
      parser.PushSpecial(model.TokenBytesKeepSpecial(id), &events);
    } else {
      assembler.Push(model.TokenBytes(id), &text);
      parser.Push(text, &events);
    }
  }
  parser.Finish(&events);
  return Joined(events);
}

struct Called {
  std::string name, arguments;
};
struct Answer {
  std::vector<Called> calls;
  std::string text;
  bool is_whole = true;  // all calls are
};

Answer AnswerOf(const ResponseEvents& events) {
  Answer answer;
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kCallBegin:
        answer.calls.push_back({event.bytes});
        break;
      case ResponseEvent::Kind::kArguments:
        answer.calls.back().arguments += event.bytes;
        break;
      case ResponseEvent::Kind::kCallEnd:
        answer.is_whole &= event.whole;
        break;
      default:
        answer.text += event.bytes;
    }
  }
  return answer;
}

// Numbers that no double holds are numbers for a schema: exponents become 1, and of the digits the
// first 15 stay.
std::string WithSmallNumbers(const std::string& json) {
  std::string text;
  bool in_string = false;
  int num_digits = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      text += c;
      text += json[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    num_digits = !in_string && absl::ascii_isdigit(c) ? num_digits + 1 : 0;
    if (num_digits <= 15) text += c;
    if (in_string || (c != 'e' && c != 'E') || !absl::ascii_isdigit(json[i - 1])) continue;
    text += '1';
    while (i + 1 < json.size() &&
           std::string_view("+-0123456789").find(json[i + 1]) != std::string_view::npos) {
      ++i;
    }
  }
  return text;
}

// Tells what is wrong with a call; empty: nothing.
std::string Fault(const Called& call, const std::vector<CallTool>& tools, bool only_strict) {
  const auto tool = std::find_if(tools.begin(), tools.end(),
                                 [&](const CallTool& one) { return one.name == call.name; });
  if (tool == tools.end()) return "no tool";
  const Json arguments = Json::parse(WithSmallNumbers(call.arguments), nullptr, false);
  if (!arguments.is_object()) return "no object";
  if (tool->parameters.empty() || (only_strict && !tool->strict)) return "";
  const Json schema = Json::parse(tool->parameters);
  return Obeys(arguments, schema, schema) ? "" : "disobeys";
}

class CallWalksTest : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> Formats() {
  std::vector<std::string> names;
  for (const std::string_view name : ResponseFormatNames()) names.emplace_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Formats, CallWalksTest, ::testing::ValuesIn(Formats()),
                         [](const auto& one) { return one.param; });

// A choice, and what an answer without calls has to match.
struct Demand {
  const char* what;
  Choice choice;
  bool parallel = true;
  std::optional<GrammarSource> text = {};
};

const std::vector<Demand>& Demands() {
  static const auto* const demands = new std::vector<Demand>{
      {"required", Choice::kRequired},
      {"one", Choice::kRequired, false},
      {"named", Choice::kNamed},
      {"auto", Choice::kAuto},
      {"schema", Choice::kAuto, true,
       GrammarSource{GrammarSource::Kind::kJsonSchema,
                     R"({"type": "object", "properties": {"name": {"type": "string"},
                         "x": {"type": "integer"}}, "required": ["name"]})"}},
      {"regex", Choice::kAuto, true, GrammarSource{GrammarSource::Kind::kRegex, "[ -~]{0,40}!"}},
      {"choice", Choice::kAuto, false,
       GrammarSource{GrammarSource::Kind::kChoice, "", {"yes", "no", "[maybe]"}}},
      {"lark", Choice::kAuto, true,
       GrammarSource{GrammarSource::Kind::kLark,
                     "start: WORD (\" \" NUMBER)?\nWORD: /[a-z]{1,5}/\nNUMBER: /[0-9]{1,3}/"}},
  };
  return *demands;
}

void Check(const Demand& demand, const std::vector<CallTool>& tools, const Answer& answer,
           const std::string& what) {
  EXPECT_TRUE(answer.is_whole) << what;
  for (const Called& call : answer.calls) {
    EXPECT_EQ(Fault(call, tools, demand.choice == Choice::kAuto), "")
        << what << "\n"
        << call.name << " " << call.arguments;
    const bool is_named = demand.choice != Choice::kNamed || call.name == tools.back().name;
    EXPECT_TRUE(is_named) << what;
  }
  if (demand.choice != Choice::kAuto) {
    EXPECT_FALSE(answer.calls.empty()) << what;
    EXPECT_EQ(answer.text, "") << what;
  }
  if (demand.choice == Choice::kNamed || !demand.parallel) {
    EXPECT_LE(answer.calls.size(), 1) << what;
  }
  if (!demand.text.has_value()) return;
  EXPECT_TRUE(answer.calls.empty() || answer.text.empty()) << what;
  if (!answer.calls.empty()) return;
  switch (demand.text->kind) {
    case GrammarSource::Kind::kJsonSchema: {
      const Json schema = Json::parse(demand.text->text);
      EXPECT_TRUE(Obeys(Json::parse(WithSmallNumbers(answer.text), nullptr, false), schema, schema))
          << what;
      break;
    }
    case GrammarSource::Kind::kRegex:
      EXPECT_TRUE(answer.text.ends_with('!')) << what;
      break;
    case GrammarSource::Kind::kLark:
      EXPECT_TRUE(std::regex_match(answer.text, std::regex("[a-z]{1,5}( [0-9]{1,3})?"))) << what;
      break;
    default:
      EXPECT_NE(std::find(demand.text->options.begin(), demand.text->options.end(), answer.text),
                demand.text->options.end())
          << what;
  }
}

TEST_P(CallWalksTest, WhatIsAllowedIsReadBack) {
  const ResponseFormat format = *NamedResponseFormat(GetParam(), "");
  int num_finished = 0, num_walks = 0, num_called = 0, num_texts = 0;
  for (const bool special : {true, false}) {
    std::vector<std::string> markers = MarkersOf(format.name);
    if (special && markers.empty()) continue;
    std::vector<std::string> words = Words();
    if (!special) words.insert(words.end(), markers.begin(), markers.end());
    if (special && format.name == "harmony") markers.push_back("<|call|>");
    const auto model =
        testing::OpenModelWith(special ? markers : std::vector<std::string>(), words);
    const int32_t end = testing::IdOf(*model, "<|call|>");
    const std::vector<SpecialToken> tokens = SpecialTokensOf(*model, std::span(&end, 1));
    std::mt19937_64 random(1);
    for (std::vector<CallTool> tools : ToolSets()) {
      for (size_t i = 0; i < tools.size(); ++i) tools[i].strict = i % 2 == 0;
      ParameterTypes types;
      for (const CallTool& tool : tools) types.Add(tool.name, tool.parameters);
      for (const Demand& demand : Demands()) {
        const CallGrammarOptions options = {.choice = demand.choice,
                                            .name = tools.back().name,
                                            .parallel = demand.parallel,
                                            .text = demand.text};
        const auto lark = CallGrammar(format, tools, tokens, options);
        if (format.name == "pythonic" && tools[0].name == "book.trip-2") {
          EXPECT_TRUE(absl::IsInvalidArgument(lark.status()));
          continue;
        }
        ASSERT_TRUE(lark.ok()) << lark.status();
        GrammarSource source = {
            .kind = GrammarSource::Kind::kLark, .text = *lark, .is_own_lark = true};
        if (demand.text.has_value() && demand.text->kind == GrammarSource::Kind::kLark) {
          source = *demand.text;
          source.around = *lark;
        }
        const auto grammar = Grammar::Compile(*model, source);
        ASSERT_TRUE(grammar.ok()) << grammar.status() << "\n" << *lark;
        const int walks = demand.text.has_value() ? 2 : NumWalks();
        for (int i = 0; i < walks; ++i) {
          const Walk walk = WalkThrough(*model, **grammar, random);
          const std::string what = absl::StrCat(demand.what, " ", tools[0].name, ": ", walk.text);
          ++num_walks;
          if (!walk.is_finished) continue;
          ++num_finished;
          const Answer answer = AnswerOf(Read(*model, format, types, walk.ids));
          Check(demand, tools, answer, what);
          if (demand.choice != Choice::kAuto) continue;
          num_called += answer.calls.empty() ? 0 : 1;
          num_texts += answer.text.empty() ? 0 : 1;
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(num_finished, num_walks * 8 / 10);
  EXPECT_GT(num_called, 0);
  EXPECT_GT(num_texts, 0);
}

}  // namespace
}  // namespace continuo::text
