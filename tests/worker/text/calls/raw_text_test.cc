// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/raw_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace continuo::text {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(RawTextTest, APatternIsFoundAnywhereUnlessItIsAnchored) {
  EXPECT_EQ(*WholeTextRegex("^a$"), "(?:(?:a))");
  EXPECT_EQ(*WholeTextRegex("a"), "(?:(?s:.*)(?:a)(?s:.*))");
  EXPECT_EQ(*WholeTextRegex("^a|b$"), "(?:(?:a)(?s:.*)|(?s:.*)(?:b))");
  EXPECT_EQ(*WholeTextRegex("^(a|b)"), "(?:(?:(a|b))(?s:.*))");
}

TEST(RawTextTest, ClassesAndEscapesAreThoseOfEcmaScript) {
  EXPECT_EQ(*WholeTextRegex("^\\d\\w\\s\\D$"), "(?:(?:[0-9][0-9A-Za-z_][ \\t\\n\\r][^0-9]))");
  EXPECT_EQ(*WholeTextRegex("^.\\S$"), "(?:(?:[^\\n\\r\\x{2028}\\x{2029}][^\\s\\x{feff}]))");
  EXPECT_EQ(*WholeTextRegex("^[\\w.[&-]\\/\\u00e9$"), "(?:(?:[0-9A-Za-z_.\\[\\&-]\\/\\x{00e9}))");
}

TEST(RawTextTest, WhatIsNotTakenIsNamed) {
  const auto message = [](const char* pattern) {
    return std::string(WholeTextRegex(pattern).status().message());
  };
  EXPECT_THAT(message("a(?=b)"), HasSubstr("look-around"));
  EXPECT_THAT(message("a^"), HasSubstr("\"^\" inside"));
  EXPECT_THAT(message("(a$)b"), HasSubstr("\"$\" inside"));
  EXPECT_THAT(message("\\ba"), HasSubstr("escape"));
  EXPECT_THAT(message("(a"), HasSubstr("brackets"));
  EXPECT_THAT(message("a)"), HasSubstr("unbalanced"));
  EXPECT_THAT(message("\\u12"), HasSubstr("bad escape"));
  EXPECT_THAT(message("[\\D]"), HasSubstr("negated"));
  EXPECT_THAT(message("\\"), HasSubstr("at its end"));
}

TEST(RawTextTest, DemandsOfAString) {
  EXPECT_EQ(*TextDemands(Json::object()), "");
  EXPECT_EQ(*TextDemands({{"minLength", 2}}), " & /(?s:.{2,})/");
  EXPECT_EQ(*TextDemands({{"minLength", 2}, {"maxLength", 3}, {"pattern", "^/$"}}),
            " & /(?s:.{2,3})/ & /(?:(?:\\/))/");
  const auto message = [](const Json& schema) {
    return std::string(TextDemands(schema).status().message());
  };
  EXPECT_THAT(message({{"minLength", -1}}), HasSubstr("minLength must be"));
  EXPECT_THAT(message({{"maxLength", 1e9}}), HasSubstr("maxLength must be"));
  EXPECT_THAT(message({{"minLength", 3}, {"maxLength", 2}}), HasSubstr("larger"));
  EXPECT_THAT(message({{"pattern", 1}}), HasSubstr("pattern must be"));
  EXPECT_THAT(message({{"format", "x"}}), HasSubstr("the format \"x\""));
}

}  // namespace
}  // namespace continuo::text
