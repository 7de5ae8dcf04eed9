// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {
namespace {

struct Case {
  std::string text, explained;
};

TEST(JsonExplainTest, TheFirstFaultIsToldWithItsPlaceAndWhatWasExpected) {
  const Case cases[] = {
      {"", "at byte 0 (line 1, column 1): expected a value, found the end"},
      {"{", "at byte 1 (line 1, column 2): expected a name in double quotes or }, found the end"},
      {"{\"a\"", "at byte 4 (line 1, column 5): expected a colon after the name, found the end"},
      {"{\"a\" 1}", "at byte 5 (line 1, column 6): expected a colon after the name, found 1"},
      {"{\"a\":}", "at byte 5 (line 1, column 6): expected a value, found }"},
      {"{\"a\":1", "at byte 6 (line 1, column 7): expected a comma or }, found the end"},
      {"{\"a\":1 \"b\":2}", "at byte 7 (line 1, column 8): expected a comma or }, found \""},
      {"{\"a\":1,}",
       "at byte 7 (line 1, column 8): expected a name in double quotes after the comma, found }"},
      {"{\"a\":{},}",
       "at byte 8 (line 1, column 9): expected a name in double quotes after the comma, found }"},
      {"{a:1}", "at byte 1 (line 1, column 2): expected a name in double quotes or }, found a"},
      {"{'a':1}",
       "at byte 1 (line 1, column 2): expected a name in double quotes or }, found ', where JSON "
       "has double quotes"},
      {"{\n\t\"a\": True}",
       "at byte 8 (line 2, column 7): expected a value, found True, which JSON does not have"},
      {"[None]",
       "at byte 1 (line 1, column 2): expected a value, found None, which JSON does not have"},
      {"[NaN]",
       "at byte 1 (line 1, column 2): expected a value, found NaN, which JSON does not have"},
      {"[-Infinity]",
       "at byte 1 (line 1, column 2): expected a value, found -Infinity, which JSON does not have"},
      {"[1,]", "at byte 3 (line 1, column 4): expected a value, found ]"},
      {"[1 2]", "at byte 3 (line 1, column 4): expected a comma or ], found 2"},
      {"[01]", "at byte 2 (line 1, column 3): expected a comma or ], found 1"},
      {"[1.]", "at byte 3 (line 1, column 4): expected a digit, found ]"},
      {"[-]", "at byte 2 (line 1, column 3): expected a digit, found ]"},
      {"[1e]", "at byte 3 (line 1, column 4): expected a digit, found ]"},
      {"[1e999]",
       "at byte 1 (line 1, column 2): expected a number that fits 64-bit floating point, found 1"},
      {"[\"a]",
       "at byte 4 (line 1, column 5): expected a double quote that ends the string, found "
       "the end"},
      {"[\"a\nb\"]",
       "at byte 3 (line 1, column 4): expected control characters of strings written as \\n, \\t "
       "or "
       "\\u00XX, found the byte 0x0a"},
      {"[\"\\x\"]",
       "at byte 3 (line 1, column 4): expected an escape of JSON after the backslash, "
       "found x"},
      {"[\"\\u12g4\"]",
       "at byte 6 (line 1, column 7): expected four hexadecimal digits after \\u, found g"},
      {"[\"\\ud800x\"]",
       "at byte 8 (line 1, column 9): expected the second half of a surrogate "
       "pair, found x"},
      {"[\"\\udc00\"]",
       "at byte 4 (line 1, column 5): expected no second half of a surrogate pair "
       "without its first, found d"},
      {"\xff\xfe{", "it is text in UTF-16, and JSON is UTF-8"},
      {"\xfe\xff{", "it is text in UTF-16, and JSON is UTF-8"},
      {"[\"\xff\"]", "at byte 2 (line 1, column 3): expected UTF-8, found the byte 0xff"},
      {"\xe2\x82\xac",
       "at byte 0 (line 1, column 1): expected a value, found a character beyond ASCII"},
      {"{}x", "at byte 2 (line 1, column 3): expected the end after the value, found x"},
      {"a=b&c=d", "at byte 0 (line 1, column 1): expected a value, found a"},
      {"truth", "at byte 0 (line 1, column 1): expected a value, found t"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ExplainJson(c.text), c.explained) << c.text;
    EXPECT_THAT(std::string(ParseObject(c.text).status().message()),
                c.text.empty() ? ::testing::HasSubstr("the body is empty")
                               : ::testing::HasSubstr(c.explained));
  }
}

TEST(ParseObjectTest, AMemberThatIsThereTwiceIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature":0,"temperature":1})", "temperature"},
      {R"({"temperature":0,"temperature":0})", "temperature"},
      {R"({"a":null,"a":null})", "a"},
      {R"({"a":1,"\u0061":2})", "a"},
      {R"({"":1,"":2})", ""},
      {R"({"messages":[{"role":"user","content":"x"},{"role":"user","role":"system"}]})", "role"},
      {R"({"tools":[{"function":{"parameters":{"properties":{"x":{},"y":{},"x":{}}}}}]})", "x"},
      {R"({"a":{"b":1},"c":{"b":1,"d":{"b":1},"b":1},"c":1})", "b"},
  };
  for (const auto& [body, name] : cases) {
    const absl::Status status = ParseObject(body).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << body << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::MatchesRegex(absl::StrCat("the body: line 1, column [0-9]+: field \"",
                                                     name, "\" is there twice")))
        << body;
  }
  EXPECT_EQ(std::string(ParseObject("{\"a\":1,\n \"a\":2}").status().message()),
            "the body: line 2, column 4: field \"a\" is there twice, first in line 1");
  // The same name in objects beside or below each other is as good as any, and so is one in a text.
  for (const char* body : {R"({"a":{"a":[{"a":1},{"a":1}]},"b":{"a":1}})", R"({"a":"a","b":"a"})",
                           R"({"a":"{\"b\":1,\"b\":2}","A":1})"}) {
    EXPECT_TRUE(ParseObject(body).ok()) << body;
  }
}

TEST(JsonExplainTest, ExactlyWhatTheParserRejectsHasAFault) {
  constexpr std::string_view kSeed =
      "{\"a\":[1,-2.5e3,true,false,null,\"x\\n\\u00e9\\ud83d\\ude00\xc3\xa9\"],\"b\":{\"c\":{}}, "
      "\"d\" : []}";
  constexpr std::string_view kBytes = "{}[],:\"\\u0d8c1-+.eEtrfnal \n\t\x01\x7f\x80\xc3\xff'";
  std::mt19937 random(7);
  int num_valid = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text(kSeed);
    for (uint32_t edits = 1 + random() % 3; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 3);
          break;
        case 1:
          text.insert(at, 1, kBytes[random() % kBytes.size()]);
          break;
        default:
          text[at] = kBytes[random() % kBytes.size()];
      }
    }
    const bool valid = nlohmann::json::accept(text);
    num_valid += valid ? 1 : 0;
    ASSERT_EQ(ExplainJson(text).empty(), valid) << text << "\n" << ExplainJson(text);
  }
  EXPECT_GT(num_valid, 100);
}

}  // namespace
}  // namespace continuo::gateway::openai
