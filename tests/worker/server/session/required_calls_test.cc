// SPDX-License-Identifier: Apache-2.0
// Calls that a request requires or constrains, from requests to deltas, with grammars of the
// library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/protocol/error.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/text_files.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using ::testing::HasSubstr;
using testing::kEos;
using testing::SessionHarness;

constexpr char kParameters[] =
    R"({"type": "object", "properties": {"unit": {"type": "string", "enum": ["m", "ft"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 99}, "on": {"type": "boolean"}},
        "required": ["unit", "days"], "additionalProperties": false})";

// Opens a model whose template has tools, and whose calls have this format.
std::unique_ptr<text::TextModel> OpenTools(const char* format) {
  const std::string tokenizer = testing::ReadFile(
      testing::SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
  auto text = testing::OpenText(
      {.tokenizer_json = tokenizer,
       .chat_template = "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
                        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
                        "{% if add_generation_prompt %}<|assistant|>{% endif %}"});
  EXPECT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE((*text)->UseResponseFormat(format).ok()) << format;
  return *std::move(text);
}

v1::GenerateRequest ToolRequest() {
  v1::GenerateRequest request;
  request.set_request_id("r");
  v1::Conversation& conversation = *request.mutable_conversation();
  v1::ChatMessage& message = *conversation.add_messages();
  message.set_role("user");
  message.set_content("x");
  for (const char* name : {"f", "g"}) {
    v1::Tool& tool = *conversation.add_tools();
    tool.set_name(name);
    tool.set_parameters(kParameters);
  }
  conversation.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  request.mutable_sampling()->set_seed(9);
  request.mutable_stopping()->set_max_tokens(800);
  return request;
}

// The content of a stream, independent of its division into responses.
struct Said {
  struct Call {
    std::string id, name, arguments;
    bool operator==(const Call&) const = default;
  };
  std::string text;
  std::vector<Call> calls;
  std::vector<uint32_t> ids;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  bool operator==(const Said&) const = default;

  void Add(const v1::GenerateResponse& response) {
    for (const v1::Delta& delta : response.deltas()) {
      text += delta.text();
      ids.insert(ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      for (const v1::ToolCall& call : delta.tool_calls()) {
        if (calls.size() <= call.index()) calls.resize(call.index() + 1);
        calls[call.index()].id += call.id();
        calls[call.index()].name += call.name();
        calls[call.index()].arguments += call.arguments();
      }
      if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = delta.finish_reason();
    }
  }
};

Said SaidBy(const std::vector<v1::GenerateResponse>& responses) {
  Said said;
  for (const v1::GenerateResponse& response : responses) said.Add(response);
  return said;
}

void ExpectWhole(const Said& said, const std::string& what) {
  EXPECT_EQ(said.finish, v1::FINISH_REASON_TOOL_CALLS) << what;
  EXPECT_EQ(said.text, "") << what;
  EXPECT_FALSE(said.calls.empty()) << what;
  for (const Said::Call& call : said.calls) {
    const nlohmann::json arguments = nlohmann::json::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << what << call.arguments;
    EXPECT_TRUE(arguments["unit"] == "m" || arguments["unit"] == "ft") << call.arguments;
    ASSERT_TRUE(arguments["days"].is_number_integer()) << call.arguments;
    EXPECT_LE(arguments["days"], 99);
    EXPECT_TRUE(!arguments.contains("on") || arguments["on"].is_boolean()) << call.arguments;
  }
}

// A model whose calls have this format, with room for long ones.
class ToolHarness : public SessionHarness {
 public:
  explicit ToolHarness(const char* format) : SessionHarness(OpenTools(format)), format_(format) {
    model().max_context_tokens = 1'000;
  }

  // Returns what the answer says, whose calls are checked; nullopt where max_tokens cut it: a
  // thought or a text of random tokens may have no end.
  std::optional<Said> RunToEnd(v1::GenerateRequest request, uint64_t seed) {
    request.mutable_sampling()->set_seed(seed);
    const Outcome outcome = Run(request);
    EXPECT_TRUE(outcome.status.ok()) << format_ << outcome.status;
    Said said = SaidBy(outcome.responses);
    if (said.finish == v1::FINISH_REASON_LENGTH) return std::nullopt;
    ExpectWhole(said, format_);
    return said;
  }

 private:
  const char* const format_;
};

const char* const kFormats[] = {"hermes", "qwen_xml", "glm",   "llama3",
                                "lfm2",   "mistral",  "gemma", "harmony"};

TEST(RequiredCallsTest, RequiredCallsAreWholeAndOfTheSchema) {
  for (const char* format : kFormats) {
    ToolHarness harness(format);
    int num_finished = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      num_finished += harness.RunToEnd(ToolRequest(), seed).has_value();
    }
    EXPECT_GT(num_finished, 0) << format;
  }
}

TEST(RequiredCallsTest, ANamedToolIsCalledOnceAndThatIsTheEnd) {
  for (const char* format : kFormats) {
    ToolHarness harness(format);
    v1::GenerateRequest request = ToolRequest();
    v1::ToolChoice& choice = *request.mutable_conversation()->mutable_tool_choice();
    int num_finished = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const bool by_name = seed % 2 == 0;
      choice.set_name(by_name ? "g" : "");
      choice.set_single_call(!by_name);
      const std::optional<Said> said = harness.RunToEnd(request, seed);
      if (!said.has_value()) continue;
      ++num_finished;
      ASSERT_EQ(said->calls.size(), 1) << format;
      EXPECT_TRUE(!by_name || said->calls[0].name == "g") << format;
      EXPECT_NE(said->ids.back(), uint32_t{kEos}) << "no end was sampled";
    }
    EXPECT_GT(num_finished, 0) << format;
  }
}

class CallsBesideTextTest : public ::testing::Test {
 protected:
  absl::StatusOr<Generation> Prepare() {
    CallInfo call;
    call.random = testing::CountingRandom();
    const SaltKey key(call.random);
    return PrepareGeneration(request_, call, model_, key);
  }
  // Returns how many bytes of the text the constraint takes, and whether the answer may end there.
  std::pair<size_t, bool> Takes(std::string_view text) {
    const auto generation = Prepare();
    EXPECT_TRUE(generation.ok()) << generation.status();
    if (!generation.ok() || generation->request.constraints.empty()) return {};
    engine::TokenConstraint& constraint = *generation->request.constraints[0];
    size_t taken = 0;
    while (taken < text.size() && constraint.Accept(static_cast<unsigned char>(text[taken]))) {
      ++taken;
    }
    return {taken, constraint.CanEnd()};
  }
  void ExpectRefused(const std::string& field, const std::string& message) {
    const absl::Status status = Prepare().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(protocol::FieldOf(status), field) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  v1::Conversation& conversation() { return *request_.mutable_conversation(); }

  std::unique_ptr<text::TextModel> text_ = OpenTools("hermes");
  ServedModel model_ = testing::MakeServedModel(text_.get());
  v1::GenerateRequest request_ = ToolRequest();
};

constexpr std::string_view kCall =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"unit\": \"m\", \"days\": 3}}\n</tool_call>";

TEST_F(CallsBesideTextTest, StrictToolsConstrainTheirCallsAndNotTheText) {
  conversation().mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_AUTO);
  EXPECT_TRUE(Prepare()->request.constraints.empty()) << "nothing is constrained";
  conversation().mutable_tools(0)->set_strict(true);
  const std::string text = "Hi! <tool";
  EXPECT_EQ(Takes(text), std::pair(text.size(), true));
  const std::string answer =
      absl::StrCat("Hi!\n", std::string(kCall), "\nand\n", std::string(kCall));
  EXPECT_EQ(Takes(answer), std::pair(answer.size(), true));
  const std::string half(kCall.substr(0, kCall.find("m\"")));
  EXPECT_EQ(Takes(half + "km"), std::pair(half.size(), false));
  // The other tool is not strict.
  std::string other = half;
  other[other.find("\"f\"") + 1] = 'g';
  EXPECT_EQ(Takes(other + "km").first, other.size() + 2);
  conversation().mutable_tool_choice()->set_single_call(true);
  EXPECT_EQ(Takes(answer), std::pair(answer.find("<tool_call>", 20) + 10, true));
}

TEST_F(CallsBesideTextTest, BesideToolsAConstraintIsOfTheText) {
  conversation().mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_AUTO);
  request_.mutable_constraint()->set_regex("[a-z]{2,4}");
  EXPECT_EQ(Takes("abcde"), std::pair(size_t{4}, true));
  EXPECT_EQ(Takes(kCall), std::pair(kCall.size(), true));
  request_.mutable_constraint()->set_json_object(true);
  EXPECT_EQ(Takes("{\"a\": 1}"), std::pair(size_t{8}, true));
  EXPECT_EQ(Takes(kCall), std::pair(kCall.size(), true));
  request_.mutable_constraint()->set_lark("start: WORD (\", \" WORD)*\nWORD: /[a-z<]{1,4}/");
  EXPECT_EQ(Takes("abcd, <, ab1"), std::pair(size_t{11}, true));
  EXPECT_EQ(Takes(kCall), std::pair(kCall.size(), true));
  EXPECT_EQ(Takes("<tool>").first, 5);
  request_.mutable_constraint()->set_lark("start: /(?s:.*)/");
  ExpectRefused("constraint.lark",
                "must not allow text that begins as calls do, with "
                "\"<tool_call>\\n{\\\"name\\\": \\\"\"");
  request_.mutable_constraint()->set_regex("(");
  ExpectRefused("constraint.regex", "");
  // A required call leaves no text.
  request_.mutable_constraint()->set_regex("[a-z]{2,4}");
  conversation().mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  EXPECT_EQ(Takes(kCall), std::pair(kCall.size(), true));
  EXPECT_EQ(Takes("ab").first, 0);
}

TEST_F(CallsBesideTextTest, HarmonysTextHasItsHeaderWithAndWithoutTools) {
  text_ = OpenTools("harmony");
  model_ = testing::MakeServedModel(text_.get());
  const std::string analysis = "<|channel|>analysis<|message|>Hm.<|end|>";
  const std::string header = "<|channel|>final<|message|>", next = "<|start|>assistant";
  conversation().mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_AUTO);
  for (const bool tools : {true, false}) {
    if (!tools) conversation().clear_tools();
    v1::Constraint& constraint = *request_.mutable_constraint();
    for (const int kind : {0, 1, 2, 3, 4}) {
      std::string text = "ab";
      if (kind == 0) constraint.set_regex("[a-z]{2,4}");
      if (kind == 1) constraint.mutable_choice()->add_options(text);
      if (kind == 2) constraint.set_lark("start: \"a\" B\nB: /b/");
      if (kind > 2) text = "{\"a\": 1}";
      if (kind == 3) constraint.set_json_object(true);
      if (kind == 4) constraint.set_json_schema(R"({"properties": {"a": {"type": "integer"}}})");
      const std::string what = absl::StrCat(tools, " ", kind);
      for (const std::string& answer :
           {header + text, analysis + next + header + text, analysis + header + text}) {
        EXPECT_EQ(Takes(answer), std::pair(answer.size(), true)) << what;
      }
      EXPECT_EQ(Takes(text).first, 0) << what;
      EXPECT_EQ(Takes(header + "}").first, header.size()) << what;
    }
  }
  // A message that goes on has its header in the prompt.
  request_.mutable_constraint()->set_regex("[a-z]{2,4}");
  v1::ChatMessage& message = *conversation().add_messages();
  message.set_role("assistant");
  message.set_content("y");
  conversation().set_continue_final_message(true);
  EXPECT_EQ(Takes("ab"), std::pair(size_t{2}, true));
}

TEST(RequiredCallsTest, HarmonysHeaderIsNoPartOfAConstrainedText) {
  ToolHarness harness("harmony");
  v1::GenerateRequest request = ToolRequest();
  request.mutable_conversation()->clear_tools();
  request.mutable_conversation()->clear_tool_choice();
  request.mutable_constraint()->set_regex("[a-z]{2,4}");
  request.mutable_stopping()->set_max_tokens(150);
  int num_finished = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    request.mutable_sampling()->set_seed(seed);
    const auto outcome = harness.Run(request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    const Said said = SaidBy(outcome.responses);
    if (said.finish != v1::FINISH_REASON_STOP) continue;  // a thought of random tokens goes on
    ++num_finished;
    EXPECT_THAT(said.text, ::testing::MatchesRegex("[a-z]+"));
    EXPECT_GT(said.ids.size(), said.text.size()) << "the header";
  }
  EXPECT_GT(num_finished, 0);
  const auto streams = harness.RunCutEverywhere(request);
  for (size_t cut = 1; cut < streams.size(); ++cut) {
    EXPECT_EQ(SaidBy(streams[cut]), SaidBy(streams[0])) << " cut after " << cut;
  }
}

TEST_F(CallsBesideTextTest, WhatCannotBeIsNamed) {
  conversation().mutable_tools(1)->set_parameters(R"({"properties": {"a": {"not": {}}}})");
  ExpectRefused("conversation.tools", "not");
  conversation().mutable_tools(1)->set_parameters(R"({"type": "string"})");
  ExpectRefused("conversation.tools", "the tool \"g\": parameters must have the type \"object\"");
  conversation().mutable_tools(1)->set_parameters("");
  conversation().mutable_tools(1)->set_name("f");
  ExpectRefused("conversation.tools", "two tools have the name \"f\"");
  conversation().mutable_tools(1)->set_name("g");
  conversation().mutable_tool_choice()->set_name("h");
  ExpectRefused("conversation.tool_choice.name", "is not the name of a tool");
  conversation().mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_AUTO);
  ExpectRefused("conversation.tool_choice.name", "needs MODE_REQUIRED");
  conversation().mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  conversation().clear_tools();
  ExpectRefused("conversation.tool_choice", "there are no tools");
}

TEST(RequiredCallsTest, AContinuationAfterAnyIdGivesTheSameCalls) {
  for (const char* format : {"hermes", "qwen_xml", "lfm2"}) {
    ToolHarness harness(format);
    v1::GenerateRequest request = ToolRequest();
    request.mutable_stopping()->set_max_tokens(220);
    const auto streams = harness.RunCutEverywhere(request);
    EXPECT_GT(streams.size(), 2u) << format;
    for (size_t cut = 1; cut < streams.size(); ++cut) {
      EXPECT_EQ(SaidBy(streams[cut]), SaidBy(streams[0])) << format << " cut after " << cut;
    }
  }
}

}  // namespace
}  // namespace continuo::server
