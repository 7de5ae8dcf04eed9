// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/plain_schema.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>

namespace continuo::text {
namespace {

using Json = nlohmann::ordered_json;

// Beside a search, over texts of the marker's characters and one more.
TEST(PlainSchemaTest, TheRegexMatchesExactlyWhatHasNoMarker) {
  std::mt19937 random(1);
  for (const std::string marker : {"<", "<|", "</a>", "[AB]", "<a:a>", "{\"a"}) {
    const std::regex regex(TextWithout(marker));
    for (int i = 0; i < 3'000; ++i) {
      std::string text;
      const int length = static_cast<int>(random() % 9);
      for (int c = 0; c < length; ++c) {
        const size_t which = random() % (marker.size() + 1);
        text += which == marker.size() ? std::string("x")
                : random() % 2         ? marker.substr(0, which)
                                       : marker.substr(which);
      }
      EXPECT_EQ(std::regex_match(text, regex), text.find(marker) == text.npos)
          << marker << " in " << text;
    }
  }
  EXPECT_EQ(TextWithout("<a<"), "");
  EXPECT_EQ(TextWithout(""), "");
}

TEST(PlainSchemaTest, StringsAndNamesOfASchemaAreNarrowed) {
  const std::string text = TextWithout("</");
  EXPECT_EQ(WithoutMarker({{"type", "string"}}, "</"),
            Json({{"type", "string"}, {"pattern", text}}));
  EXPECT_EQ(WithoutMarker({{"type", "string"}, {"pattern", "a"}}, "</")["allOf"],
            Json::array({{{"type", "string"}, {"pattern", text}}}));
  // A list of properties is closed; without one, names are narrowed.
  EXPECT_EQ(WithoutMarker({{"properties", {{"a", {{"type", "null"}}}}}}, "</"),
            Json({{"properties", {{"a", {{"type", "null"}}}}},
                  {"type", "object"},
                  {"additionalProperties", false}}));
  const Json any = WithoutMarker(Json::object(), "</");
  EXPECT_EQ(any["$ref"], "#/$defs/plain value");
  EXPECT_EQ(any["$defs"]["plain value"]["anyOf"].size(), 6);
  EXPECT_EQ(WithoutMarker({{"type", "object"}}, "</")["patternProperties"][text],
            Json({{"$ref", "#/$defs/plain value"}}));
  EXPECT_EQ(WithoutMarker({{"enum", {"</", 1}}}, "</"), Json({{"enum", {"</", 1}}}));
}

}  // namespace
}  // namespace continuo::text
