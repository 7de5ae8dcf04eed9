// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/constraint_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A schema whose order of members a tree would lose.
constexpr char kSchema[] = R"({"type": "object", "properties":{ "z":{"const":1.50},"a":{}} })";

std::string Body(Endpoint endpoint, const std::string& members) {
  const char* const prompt = endpoint == Endpoint::kChat
                                 ? R"("messages":[{"role":"user","content":"x"}])"
                                 : R"("prompt":["x","y"])";
  return absl::StrCat("{", prompt, members.empty() ? "" : ",", members, "}");
}

// The constraint in one line, behind the member that has it.
std::string Line(const ParsedCall& call) {
  const v1::GenerateRequest& request = call.requests.back();
  const v1::Constraint& constraint = request.constraint();
  std::string line = call.form.names.constraint;
  if (!request.has_constraint()) return absl::StrCat(line, "none");
  absl::StrAppend(&line, " ");
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return absl::StrCat(line, "schema ", constraint.json_schema());
    case v1::Constraint::kJsonObject:
      return absl::StrCat(line, "object ", constraint.json_object());
    case v1::Constraint::kRegex:
      return absl::StrCat(line, "regex ", constraint.regex());
    case v1::Constraint::kChoice:
      for (const std::string& option : constraint.choice().options()) {
        absl::StrAppend(&line, "choice ", option, ";");
      }
      return line;
    case v1::Constraint::kLark:
      return absl::StrCat(line, "lark ", constraint.lark());
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  return line;
}

TEST(ConstraintJsonTest, EverySpellingIsReadOnBothRoutes) {
  const std::string schema = kSchema;
  const std::string text = R"("{\"type\":\"object\"}")";  // a schema as a string
  struct Case {
    std::string members, line;
  };
  const std::vector<Case> cases = {
      {"", "none"},
      {R"("response_format":null)", "none"},
      {R"("response_format":{"type":"text"})", "none"},
      {R"("response_format":{"type":"json_object"})", "response_format object 1"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d",
          "schema":)" +
           schema + R"(,"strict":true}})",
       "response_format.json_schema.schema schema " + schema},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema +
           R"(,"strict":false}})",
       "response_format.json_schema.schema schema " + schema},
      // A name may be written with escapes.
      {R"("response_f\u006frmat":{"type":"json_schema","json_schema":{"sch\u0065ma":)" + schema +
           "}}",
       "response_format.json_schema.schema schema " + schema},
      // llama.cpp's server.
      {R"("response_format":{"type":"json_object","schema":)" + schema + "}",
       "response_format.schema schema " + schema},
      {R"("response_format":{"type":"json_schema","schema":)" + schema + "}",
       "response_format.schema schema " + schema},
      {R"("json_schema":)" + schema, "json_schema schema " + schema},
      {R"("json_schema":{})", "json_schema schema {}"},
      {R"("grammar":"%llguidance {}\nstart: \"a\"")", "grammar lark %llguidance {}\nstart: \"a\""},
      {R"("grammar":"")", "none"},
      // TGI.
      {R"("response_format":{"type":"json","value":)" + schema + "}",
       "response_format.value schema " + schema},
      {R"("response_format":{"type":"json_schema","value":{"name":"n","schema":)" + schema + "}}",
       "response_format.value.schema schema " + schema},
      {R"("response_format":{"type":"regex","value":"a+"})", "response_format.value regex a+"},
      {R"("response_format":{"type":"regex","pattern":"a+"})", "response_format.pattern regex a+"},
      // vLLM.
      {R"("structured_outputs":{})", "none"},
      {R"("structured_outputs":{"json":null,"json_object":false,"disable_fallback":true,
          "disable_any_whitespace":false,"disable_additional_properties":false})",
       "none"},
      {R"("structured_outputs":{"json":)" + schema + "}",
       "structured_outputs.json schema " + schema},
      {R"("structured_outputs":{"json":)" + text + "}",
       R"(structured_outputs.json schema {"type":"object"})"},
      {R"("structured_outputs":{"regex":"a|b"})", "structured_outputs.regex regex a|b"},
      {R"("structured_outputs":{"choice":["a","b"]})",
       "structured_outputs.choice choice a;choice b;"},
      {R"("structured_outputs":{"grammar":"start: \"::=\""})",
       R"(structured_outputs.grammar lark start: "::=")"},
      {R"("structured_outputs":{"json_object":true})", "structured_outputs.json_object object 1"},
      {R"("guided_json":)" + schema, "guided_json schema " + schema},
      {R"("guided_json":)" + text, R"(guided_json schema {"type":"object"})"},
      {R"("guided_regex":"","guided_decoding_backend":"xgrammar")", "guided_regex regex "},
      {R"("guided_choice":["a"])", "guided_choice choice a;"},
      {R"("guided_grammar":"start: \"a\"")", R"(guided_grammar lark start: "a")"},
      // SGLang.
      {R"("json_schema":)" + text, R"(json_schema schema {"type":"object"})"},
      {R"("regex":"a+")", "regex regex a+"},
  };
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    for (const Case& c : cases) {
      const auto call = ParseCall(endpoint, Body(endpoint, c.members));
      ASSERT_TRUE(call.ok()) << call.status() << " of " << c.members;
      EXPECT_EQ(Line(*call), c.line) << c.members;
    }
  }
}

TEST(ConstraintJsonTest, WhatIsWrongOrNotSupportedIsNamed) {
  struct Case {
    std::string members, field, message;
  };
  const std::vector<Case> cases = {
      {R"("response_format":"text")", "response_format", "must be an object"},
      {R"("response_format":{})", "response_format.type", "is needed"},
      {R"("response_format":{"type":1})", "response_format.type", "must be a string"},
      {R"("response_format":{"type":"structural_tag"})", "response_format.type",
       "must be \"text\""},
      {R"("response_format":{"type":"grammar","grammar":"root ::= \"a\""})", "response_format.type",
       "must be \"text\""},
      {R"("response_format":{"type":"text","x":1})", "response_format.x", "is no member"},
      {R"("response_format":{"type":"json_object","x":1})", "response_format.x", "is no member"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "is needed"},
      {R"("response_format":{"type":"json_schema","json_schema":1})", "response_format.json_schema",
       "must be an object"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
       "response_format.json_schema.schema", "is needed"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":"{}"}})",
       "response_format.json_schema.schema", "must be an object"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}})",
       "response_format.json_schema.strict", "must be a boolean"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strikt":true}})",
       "response_format.json_schema.strikt", "\"strict\" is one"},
      {R"("response_format":{"type":"regex"})", "response_format.value", "is needed"},
      {R"("structured_outputs":[])", "structured_outputs", "must be an object"},
      {R"("structured_outputs":{"jsn":{}})", "structured_outputs.jsn", "\"json\" is one"},
      {R"("structured_outputs":{"regex":1})", "structured_outputs.regex", "must be a string"},
      {R"("structured_outputs":{"choice":"a"})", "structured_outputs.choice", "must be an array"},
      {R"("structured_outputs":{"choice":["a",1]})", "structured_outputs.choice[1]",
       "must be a string"},
      {R"("structured_outputs":{"grammar":"# a comment\n root ::= \"a\""})",
       "structured_outputs.grammar", "only Lark is read"},
      {R"("structured_outputs":{"json_object":"yes"})", "structured_outputs.json_object",
       "must be a boolean"},
      {R"("structured_outputs":{"structural_tag":"{}"})", "structured_outputs.structural_tag",
       "is not supported"},
      {R"("structured_outputs":{"json":{},"whitespace_pattern":" "})",
       "structured_outputs.whitespace_pattern", "is not supported"},
      {R"("structured_outputs":{"json":{},"disable_any_whitespace":true})",
       "structured_outputs.disable_any_whitespace", "other than as false"},
      {R"("structured_outputs":{"json":{},"disable_additional_properties":true})",
       "structured_outputs.disable_additional_properties", "other than as false"},
      {R"("guided_json":true)", "guided_json", "an object or a string with one"},
      {R"("guided_grammar":"root::=\"a\"")", "guided_grammar", "only Lark is read"},
      {R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern", "write a grammar"},
      {R"("ebnf":"root ::= \"a\"")", "ebnf", "write Lark"},
      {R"("grammar":"root ::= \"a\"")", "grammar", "is GBNF"},
      // Two at once.
      {R"("structured_outputs":{"regex":"a","choice":["a"]})", "structured_outputs.choice",
       "is not possible together with structured_outputs.regex"},
      {R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex",
       "is not possible together with response_format"},
      {R"("guided_json":{},"regex":"a")", "regex", "is not possible together with guided_json"},
      {R"("response_format":{"type":"json_schema","schema":{},"json_schema":{"schema":{}}})",
       "response_format.json_schema.schema",
       "is not possible together with response_format.schema"},
      {R"("response_format":{"type":"regex","value":"a","pattern":"a"})", "response_format.value",
       "is not possible together with response_format.pattern"},
  };
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    for (const Case& c : cases) {
      const absl::Status status = ParseCall(endpoint, Body(endpoint, c.members)).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << " of " << c.members;
      EXPECT_EQ(protocol::FieldOf(status), c.field) << c.members;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.members;
    }
  }
}

TEST(ConstraintJsonTest, TheWorkersErrorsNameTheMemberThatWasWritten) {
  const auto param = [](const std::string& members, const std::string& field) {
    const auto call = ParseCall(Endpoint::kChat, Body(Endpoint::kChat, members));
    EXPECT_TRUE(call.ok()) << call.status();
    return ParamOf(call->form.names, field);
  };
  EXPECT_EQ(param(R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}})",
                  "constraint.json_schema"),
            "response_format.json_schema.schema");
  EXPECT_EQ(param(R"("response_format":{"type":"json_object"})", "constraint.json_object"),
            "response_format");
  EXPECT_EQ(param(R"("guided_choice":["a","b"])", "constraint.choice.options[1]"),
            "guided_choice[1]");
  EXPECT_EQ(param(R"("guided_choice":["a","b"])", "constraint.choice.options"), "guided_choice");
  EXPECT_EQ(param(R"("regex":"(")", "constraint.regex"), "regex");
}

// Levels of a body: around it, and inside a value that ends `more` levels deeper.
std::string Nested(const std::string& member, int levels) {
  return absl::StrCat("{\"", member, "\":", std::string(levels, '['), std::string(levels, ']'),
                      R"(,"top_k":1})");
}

TEST(ConstraintJsonTest, SchemasMayBeDeeperThanOtherMembers) {
  const auto message = [](const std::string& body) {
    return std::string(ParseObject(body).status().message());
  };
  for (const char* name :
       {"tools", "response_format", "structured_outputs", "guided_json", "json_schema"}) {
    EXPECT_EQ(message(Nested(name, 126)), "") << name;
    EXPECT_EQ(message(Nested(name, 127)), "the body's JSON is nested deeper than 127 levels");
  }
  for (const char* name : {"messages", "documents", "regex", "to\\u006fls", "x\\\"tools"}) {
    EXPECT_EQ(message(Nested(name, 31)), "") << name;
    EXPECT_EQ(message(Nested(name, 32)), "the body's JSON is nested deeper than 32 levels");
  }
  // Only members of the body count.
  std::string inner = Nested("documents", 1);
  inner.replace(inner.find("[]"), 2,
                R"({"tools":)" + std::string(40, '[') + std::string(40, ']') + "}");
  EXPECT_EQ(message(inner), "the body's JSON is nested deeper than 32 levels");
}

}  // namespace
}  // namespace continuo::gateway::openai
