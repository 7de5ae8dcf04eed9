// SPDX-License-Identifier: Apache-2.0
#include "services/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace continuo {
namespace {

using ::testing::HasSubstr;

constexpr int kDepth = 5;

std::string Check(std::string_view text) {
  return std::string(CheckJson("f.json", text, kDepth).message());
}

TEST(CheckJsonTest, JsonIsTakenWithAByteOrderMarkToo) {
  for (const char* text :
       {"{}", "[]", "7", "\"a\"", "null", " {\"a\": [1, 2.5e3, -0, true, null]}\n",
        "\xEF\xBB\xBF{\"a\": 1}", "{\"a\": {\"a\": {\"a\": {\"a\": 1}}}}", "[[[[[]]]]]",
        "{\"a\": {\"b\": 1}, \"b\": {\"b\": 1}}", "[{\"a\": 1}, {\"a\": 1}]",
        "{\"\": 1, \" \": 2, \"A\": 3, \"a\": 4}", "{\"a\": \"NaN\", \"b\": \"\\n\"}"}) {
    EXPECT_EQ(Check(text), "") << text;
  }
}

TEST(CheckJsonTest, WhatIsNoJsonIsToldByLineAndColumn) {
  struct Case {
    std::string text, place, problem;
  };
  const Case cases[] = {
      {"{\n  \"a\": NaN\n}", "line 2, column 8", "NaN is no JSON"},
      {"{\"a\": NaN}", "line 1, column 7", "NaN is no JSON"},
      {"{\n\n  \"a\": [1,\n -Infinity]}", "line 4, column 2", "-Infinity is no JSON"},
      {"[Infinity]", "line 1, column 2", "Infinity is no JSON"},
      {"NaN", "line 1, column 1", "NaN is no JSON"},
      {"{\"a\": 1,\n \"b\": 2,\n\n \"a\": 3}", "line 4",
       "field \"a\" is there twice, first in line 1"},
      {"{\"a\": 1, \"a\": 1}", "line 1", "field \"a\" is there twice"},
      {"{\"x\": [{\n\"b\": {}, \"b\": []}]}", "line 2", "field \"b\" is there twice"},
      {"{\"a\": 1,\n \"\\u0061\": 2}", "line 2", "field \"a\" is there twice, first in line 1"},
      {"{\n\"a\": 1,\n}", "line 3, column 1", "expected string literal"},
      {"{\n\"a\": 1\n\"b\": 2}", "line 3", "unexpected string literal"},
      {"[1,\n2,]", "line 2, column 3", "not JSON"},
      {"{\n\"a\": tru", "line 2", "not JSON"},
      {"{'a': 1}", "line 1, column 2", "not JSON"},
      {"{\"a\": 1 // why\n}", "line 1, column 9", "not JSON"},
      {"# why\n{}", "line 1, column 1", "not JSON"},
      {"{\"a\": \"x\ny\"}", "line 1", "control character"},
      {"{\"a\":\n1e400}", "line 2", "overflow"},
      {"{}\n{}", "line 2, column 1", "expected end of input"},
      {"{\"a\": \"\xff\"}", "line 1", "ill-formed UTF-8"},
      {"{\"a\": undefined}", "line 1, column 7", "not JSON"},
      {"   ", "line 1", "unexpected end of input"},
      {"{\n \"a\": {\n", "line 3", "unexpected end of input"},
      {"Entry not found", "line 1, column 1", "not JSON"},
      {"\n[[[\n[[[", "line 3, column 3", "nested deeper than 5 levels"},
      {"\xEF\xBB", "line 1", "BOM"},
  };
  for (const Case& one : cases) {
    EXPECT_THAT(Check(one.text), HasSubstr("f.json: " + one.place)) << one.text;
    EXPECT_THAT(Check(one.text), HasSubstr(one.problem)) << one.text;
  }
}

TEST(CheckJsonTest, MessagesQuoteNoMoreThanABeginning) {
  const std::string name(100000, 'n');
  EXPECT_LT(Check("{\"" + name + "\": 1, \"" + name + "\": 2}").size(), 200u);
  EXPECT_LT(Check("{\"a\": 1" + std::string(100000, '0') + "}").size(), 300u);
  EXPECT_LT(Check("[\"" + name).size(), 300u);
}

// Whatever is damaged: the check agrees with the parser, whose verdict on fields that are there
// twice and on depth is none.
TEST(CheckJsonTest, ValuesAreCountedWhateverTheirPlace) {
  for (const std::string text :
       {R"([1,-2,3.5,"a",null,true])", R"({"a":[[],{}],"b":{"c":[0]}})", "[[[[[[0]]]]]]"}) {
    const std::string bad = std::string(CheckJson("f.json", text, 16, 6).message());
    EXPECT_THAT(bad, HasSubstr("more than 6 values")) << text;
    EXPECT_TRUE(CheckJson("f.json", text, 16, 7).ok()) << text;
  }
}

TEST(CheckJsonTest, ItTakesWhatTheParserTakes) {
  const std::string whole =
      "{\"a\": [1, -2.5e+3, \"\\u00e9\\n\xC3\xA9\"], \"b\": {\"c\": null, \"d\": true},\n\"e\": "
      "{}}";
  std::mt19937 random(1);
  int taken = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (uint32_t n = random() % 3; n > 0; --n) {
      constexpr char kBytes[] = "{}[]\",:0N\n-eu\\ \xC3";
      text[random() % text.size()] = kBytes[random() % (sizeof(kBytes) - 1)];
    }
    text.resize(text.size() - random() % 2);
    const std::string problem = Check(text);
    const bool is_json = nlohmann::json::accept(text);
    const bool is_own =
        problem.find("twice") != problem.npos || problem.find("deeper") != problem.npos;
    EXPECT_EQ(problem.empty() || is_own, is_json || is_own) << text << ": " << problem;
    ++(problem.empty() ? taken : refused);
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace continuo
