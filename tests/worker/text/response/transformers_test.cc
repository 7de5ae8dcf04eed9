// SPDX-License-Identifier: Apache-2.0
// Answers as transformers' parse_response reads them
// (testdata/parse_response.json, by make_goldens.py), by templates of its own
// and by the built-in ones.
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/worker/text/response/response_formats.h"
#include "services/worker/text/response/response_parser.h"
#include "services/worker/text/response/spaces.h"
#include "tests/worker/text/response/response_text.h"

namespace continuo::text {
namespace {

using Json = nlohmann::json;

struct Message {
  std::string thoughts, text;
  struct Call {
    std::string name, arguments;
    bool whole = false;
  };
  std::vector<Call> calls;
};

Message MessageOf(const ResponseEvents& events) {
  Message message;
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kText:
        message.text += event.bytes;
        break;
      case ResponseEvent::Kind::kReasoning:
        message.thoughts += event.bytes;
        break;
      case ResponseEvent::Kind::kCallBegin:
        message.calls.push_back({.name = event.bytes});
        break;
      case ResponseEvent::Kind::kArguments:
        message.calls.back().arguments += event.bytes;
        break;
      case ResponseEvent::Kind::kCallEnd:
        message.calls.back().whole = event.whole;
        break;
    }
  }
  return message;
}

// transformers strips the ends of an answer, and makes whole objects of calls
// that were cut. Where it does not read a call that was cut, what stands before
// it is compared.
void ExpectEqual(const Message& message, const Json& golden, bool is_whole, std::string_view what) {
  EXPECT_EQ(Strip(message.thoughts), golden["thoughts"].get<std::string>()) << what;
  if (!golden.contains("calls")) {
    EXPECT_TRUE(message.text.starts_with(golden["text"].get<std::string>())) << what;
    return;
  }
  EXPECT_EQ(Strip(message.text), golden["text"].get<std::string>()) << what;
  ASSERT_EQ(message.calls.size(), golden["calls"].size()) << what;
  for (size_t i = 0; i < message.calls.size(); ++i) {
    const Message::Call& call = message.calls[i];
    EXPECT_EQ(call.name, golden["calls"][i]["name"]) << what;
    EXPECT_TRUE(call.whole || (!is_whole && i + 1 == message.calls.size())) << what;
    if (call.whole) {
      EXPECT_EQ(Json::parse(call.arguments), golden["calls"][i]["arguments"]) << what;
    }
  }
}

TEST(TransformersTest, AnswersAreReadAsParseResponseReadsThem) {
  std::ifstream file("tests/worker/text/response/testdata/parse_response.json");
  const Json goldens = Json::parse(file);
  ParameterTypes types;
  for (const auto& [tool, schema] : goldens["tools"].items()) types.Add(tool, schema.dump());
  int num_cuts = 0, num_built_in = 0;
  for (const Json& format : goldens["formats"]) {
    const bool is_built_in = format.contains("markers");
    const auto named = NamedResponseFormat(is_built_in ? format["name"].get<std::string>() : "none",
                                           format.value("markers", ""));
    ASSERT_TRUE(named.ok()) << named.status();
    const absl::StatusOr<ResponseTemplate> parsed =
        is_built_in ? named->response_template
                    : ResponseTemplate::Parse(format["template"].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    num_built_in += is_built_in ? 1 : 0;
    for (const Json& one : format["cases"]) {
      const std::string answer = one["answer"];
      for (const Json& cut : one["cuts"]) {
        const std::string text = answer.substr(0, cut[0].get<size_t>());
        const ResponseEvents events = ParseParts(*parsed, {{text, false}}, {.types = &types},
                                                 one["prompt"].get<std::string>());
        ExpectEqual(MessageOf(events), cut[1], text == answer, text);
        ++num_cuts;
      }
    }
  }
  EXPECT_GE(num_cuts, 900);
  EXPECT_EQ(num_built_in, 15);
}

}  // namespace
}  // namespace continuo::text
