// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "services/gateway/openai/messages/messages_error.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/conversation_lines.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Least() {
  return {{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
}

MessagesCall Parse(const Json& body) {
  absl::StatusOr<MessagesCall> call = ParseMessages(body.dump());
  EXPECT_TRUE(call.ok()) << call.status() << body;
  return call.ok() ? *std::move(call) : MessagesCall();
}

TEST(MessagesRequestTest, SamplingAndStopping) {
  Json body = Least();
  body.update({{"model", "m"},
               {"stream", true},
               {"temperature", 0.5},
               {"top_p", 0.25},
               {"top_k", 7},
               {"stop_sequences", {"a", "b"}},
               {"metadata", {{"user_id", "u"}}},
               {"service_tier", "auto"}});
  const MessagesCall call = Parse(body);
  EXPECT_TRUE(call.stream);
  EXPECT_EQ(call.request.model(), "m");
  EXPECT_EQ(call.request.sampling().temperature(), 0.5f);
  EXPECT_EQ(call.request.sampling().top_p(), 0.25f);
  EXPECT_EQ(call.request.sampling().top_k(), 7);
  EXPECT_EQ(call.request.stopping().max_tokens(), 5);
  EXPECT_THAT(call.request.stopping().strings(), ::testing::ElementsAre("a", "b"));
  EXPECT_FALSE(call.request.has_constraint());
}

TEST(MessagesRequestTest, BlocksBecomeMessagesInTheirOrder) {
  const Json body = Json::parse(R"({"max_tokens": 9,
    "system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "brief"}],
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": [2.50]}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
        {"type": "text", "text": "and"}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": true},
        {"type": "tool_result", "tool_use_id": "t4", "is_error": true, "content": "no file"},
        {"type": "text", "text": "and now?"},
        {"type": "tool_result", "tool_use_id": "t3",
         "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}]},
      {"role": "system", "content": "stay brief"},
      {"role": "user", "content": [{"type": "document", "title": "T",
        "source": {"type": "text", "media_type": "text/plain", "data": "d"}}]}]})");
  // Arguments go on as the client wrote them.
  std::string text = body.dump();
  const std::string plain = R"({"a":[2.5],"z":1})";
  text.replace(text.find(plain), plain.size(), R"({"z": 1, "a": [2.50]})");
  const absl::StatusOr<MessagesCall> call = ParseMessages(text);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_THAT(LinesOf(call->request.conversation()),
              ::testing::ElementsAre("system: Be\n\nbrief", "user: a\nb",
                                     "assistant: (hm)I look[t1 f{\"z\": 1, \"a\": [2.50]}][t2 g{}]",
                                     "assistant: and", "tool: one <- t1", "tool: error <- t2",
                                     "tool: error: no file <- t4", "user: and now?",
                                     "tool: x\ny <- t3", "system: stay brief", "user: T\nd"));
  EXPECT_FALSE(call->request.conversation().continue_final_message());
}

TEST(MessagesRequestTest, ALastMessageOfTheAssistantIsContinued) {
  Json body = Least();
  body["messages"].push_back({{"role", "assistant"}, {"content", "The answer is ("}});
  EXPECT_TRUE(Parse(body).request.conversation().continue_final_message());
}

TEST(MessagesRequestTest, Tools) {
  Json body = Least();
  body["tools"] = {{{"name", "f"},
                    {"description", "d"},
                    {"input_schema", {{"type", "object"}}},
                    {"strict", true}},
                   {{"type", "custom"}, {"name", "g"}, {"input_schema", {{"type", "object"}}}}};
  const v1::Conversation conversation = Parse(body).request.conversation();
  ASSERT_EQ(conversation.tools_size(), 2);
  EXPECT_EQ(conversation.tools(0).name(), "f");
  EXPECT_EQ(conversation.tools(0).description(), "d");
  EXPECT_EQ(conversation.tools(0).parameters(), R"({"type":"object"})");
  EXPECT_TRUE(conversation.tools(0).strict());
  EXPECT_FALSE(conversation.has_tool_choice());
  const std::pair<const char*, v1::ToolChoice::Mode> choices[] = {
      {"auto", v1::ToolChoice::MODE_AUTO},
      {"any", v1::ToolChoice::MODE_REQUIRED},
      {"none", v1::ToolChoice::MODE_NONE},
      {"tool", v1::ToolChoice::MODE_REQUIRED}};
  for (const auto& [type, mode] : choices) {
    body["tool_choice"] = {{"type", type}, {"disable_parallel_tool_use", true}};
    if (std::string(type) == "tool") body["tool_choice"]["name"] = "g";
    const v1::ToolChoice choice = Parse(body).request.conversation().tool_choice();
    EXPECT_EQ(choice.mode(), mode);
    EXPECT_EQ(choice.name(), std::string(type) == "tool" ? "g" : "");
    EXPECT_TRUE(choice.single_call());
  }
}

TEST(MessagesRequestTest, ToolsWithoutASchemaAreSkipped) {
  Json body = Least();
  body["tools"] = {{{"type", "bash_20250124"}, {"name", "bash"}},
                   {{"name", "f"}, {"input_schema", {{"type", "object"}}}},
                   {{"type", "web_search_20250305"}, {"name", "web_search"}, {"max_uses", 3}},
                   {{"name", "g"}, {"input_schema", {{"type", "object"}}}}};
  const MessagesCall call = Parse(body);
  ASSERT_EQ(call.request.conversation().tools_size(), 2);
  EXPECT_EQ(call.request.conversation().tools(1).name(), "g");
  EXPECT_THAT(call.tools.skipped, ::testing::ElementsAre("bash_20250124", "web_search_20250305"));
  EXPECT_THAT(call.tools.places, ::testing::ElementsAre(1, 3));
  body.erase("max_tokens");
  const absl::StatusOr<CountTokensCall> counted = ParseCountTokens(body.dump());
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(counted->tools.skipped, call.tools.skipped);
}

TEST(MessagesRequestTest, AReferenceToAToolIsItsName) {
  Json body = Least();
  body["tools"] = {{{"name", "f"}, {"defer_loading", true}, {"input_schema", {{"type", "object"}}}},
                   {{"name", "g"}, {"input_schema", {{"type", "object"}}}}};
  body["messages"].push_back(
      {{"role", "assistant"},
       {"content",
        {{{"type", "tool_use"}, {"id", "t"}, {"name", "g"}, {"input", Json::object()}}}}});
  body["messages"].push_back({{"role", "user"},
                              {"content",
                               {{{"type", "tool_result"},
                                 {"tool_use_id", "t"},
                                 {"content",
                                  {{{"type", "text"}, {"text", "found"}},
                                   {{"type", "tool_reference"}, {"tool_name", "f"}},
                                   {{"type", "tool_reference"}, {"tool_name", "g"}}}}}}}});
  EXPECT_EQ(Parse(body).request.conversation().messages().rbegin()->content(), "found\nf\ng");
}

TEST(MessagesRequestTest, ThoughtsAreForThoseWhoAsk) {
  const auto arguments = [](const MessagesCall& call) {
    return Json::parse(call.request.conversation().template_arguments());
  };
  Json body = Least();
  EXPECT_FALSE(Parse(body).shows_thinking);
  EXPECT_EQ(arguments(Parse(body))["enable_thinking"], false);
  for (const char* type : {"enabled", "adaptive"}) {
    body["thinking"] = {{"type", type}, {"budget_tokens", 1024}};
    EXPECT_TRUE(Parse(body).shows_thinking);
    EXPECT_EQ(arguments(Parse(body))["enable_thinking"], true);
  }
  body["thinking"]["display"] = "omitted";
  EXPECT_FALSE(Parse(body).shows_thinking);
  EXPECT_EQ(arguments(Parse(body))["thinking"], true);
  body["thinking"] = {{"type", "disabled"}};
  body["output_config"] = {{"effort", "low"}};
  EXPECT_FALSE(Parse(body).shows_thinking);
  EXPECT_EQ(arguments(Parse(body))["reasoning_effort"], "low");
}

TEST(MessagesRequestTest, Schemas) {
  const Json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  for (const bool nested : {false, true}) {
    Json body = Least();
    if (nested) {
      body["output_config"]["format"] = format;
    } else {
      body["output_format"] = format;
    }
    const MessagesCall call = Parse(body);
    EXPECT_EQ(call.request.constraint().json_schema(), R"({"type":"object"})");
    EXPECT_EQ(call.format_member, nested ? "output_config.format" : "output_format");
  }
}

TEST(MessagesRequestTest, WhatIsWrongIsTold) {
  const auto message = [](const std::string& change) {
    Json body = Least();
    body.merge_patch(Json::parse(change));
    const absl::Status status = ParseMessages(body.dump()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << change << status;
    return std::string(status.message());
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"({"max_tokens": null})", "max_tokens: is needed"},
      {R"({"max_tokens": 0})", "max_tokens: "},
      {R"({"messages": null})", "messages: is needed"},
      {R"({"messages": []})", "messages: is empty"},
      {R"({"messages": [{"role": "user", "content": []}]})", "messages[0].content: is empty"},
      {R"({"messages": [{"role": "user", "content": [{"type": "document", "citations": {"enabled": true},
           "source": {"type": "text", "data": "d"}}]}]})",
       "messages[0].content[0].citations: is not supported other than as"},
      {R"({"thinking": {"type": "enabled", "budget_tokens": "much"}})", "thinking.budget_tokens: "},
      {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0].role: must be"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content: is needed"},
      {R"({"messages": [{"role": "user", "content": 3}]})", "messages[0].content: must be"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type: only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})",
       "messages[0].content[0].tool_use_id: is needed"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a",
           "name": "f", "input": "{}"}]}]})",
       "messages[0].content[0].input: must be an object"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a",
           "name": "f", "input": {}}]}]})",
       "messages: end with a tool_use"},
      {R"({"messages": [{"role": "user", "content": "x", "name": "n"}]})",
       "messages[0].name: is no member"},
      {R"({"system": [{"type": "image"}]})", "system[0].type: only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_reference",
           "tool_name": "f"}]}]})",
       "messages[0].content[0].type: only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
           "content": [{"type": "tool_reference", "tool_name": "f"}]}]}],
           "tools": [{"name": "g", "input_schema": {"type": "object"}}]})",
       "messages[0].content[0].content[0].tool_name: is not the name of one of the tools"},
      {R"({"tools": [{"type": "bash_20250124", "name": "bash"}],
           "tool_choice": {"type": "tool", "name": "bash"}})",
       "tool_choice.name: is not the name of a tool that can be called here"},
      {R"({"tools": [{"name": "f"}]})", "tools[0].input_schema: is needed"},
      {R"({"tool_choice": {"type": "tool", "name": "f"}})", "tool_choice.name: is not the name"},
      {R"({"tool_choice": {"type": "must"}})", "tool_choice.type: must be"},
      {R"({"thinking": {"type": "much"}})", "thinking.type: must be"},
      {R"({"stop_sequences": "a"})", "stop_sequences: must be an array"},
      {R"({"mcp_servers": [{"url": "x"}]})", "mcp_servers: is not supported"},
      {R"({"frequency_penalty": 1})", "frequency_penalty: is no member of /v1/messages"},
      {R"({"stop_sequence": ["a"]})", "\"stop_sequences\" is one"},
      {R"({"output_format": {"type": "xml"}})", "output_format.type: must be"},
  };
  for (const auto& [change, text] : cases) EXPECT_THAT(message(change), HasSubstr(text)) << change;
  EXPECT_TRUE(ParseMessages(R"({"max_tokens":1,"messages":[{"role":"user","content":"a"}],
                               "mcp_servers":[],"context_management":{"edits":[]}})")
                  .ok());
}

TEST(MessagesRequestTest, TokensAreCountedOfTheSamePrompt) {
  Json body = Least();
  body["system"] = "Be brief";
  body["tools"] = {{{"name", "f"}, {"input_schema", {{"type", "object"}}}}};
  const v1::Conversation generated = Parse(body).request.conversation();
  body.erase("max_tokens");
  const absl::StatusOr<CountTokensCall> counted = ParseCountTokens(body.dump());
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(counted->request.conversation().SerializeAsString(), generated.SerializeAsString());
  body["max_tokens"] = 5;
  EXPECT_THAT(std::string(ParseCountTokens(body.dump()).status().message()),
              HasSubstr("max_tokens: is no member of /v1/messages/count_tokens"));
}

TEST(MessagesRequestTest, ALargeBodyIsReadInOnePass) {
  // Looking each element up from the beginning would read 10^12 bytes.
  std::string body = R"({"max_tokens":1,"messages":[{"role":"user","content":"a"})";
  for (int i = 0; i < 150000; ++i) body += R"(,{"role":"user","content":""})";
  body += "]}";
  const absl::StatusOr<MessagesCall> call = ParseMessages(body);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->request.conversation().messages_size(), 150001);
}

TEST(MessagesErrorTest, ErrorsHaveTheNamesOfTheBody) {
  const auto told = [](const absl::Status& status, bool as_written) {
    ParamNames names;
    names.as_written = as_written;
    names.constraint = "output_config.format";
    names.tool_places = {0, 2};
    return Json::parse(MessagesErrorJson(names, status, "r"));
  };
  const std::pair<const char*, const char*> fields[] = {
      {"stopping.strings[2]", "stop_sequences[2]"},
      {"stopping.max_tokens", "max_tokens"},
      {"sampling.top_p", "top_p"},
      {"conversation.tools[1].parameters", "tools[2].input_schema"},
      {"conversation.messages[7].content", "messages"},
      {"conversation.tool_choice.name", "tool_choice.name"},
      {"conversation.template_arguments", "output_config.effort"},
      {"constraint.json_schema", "output_config.format.schema"}};
  for (const auto& [ours, theirs] : fields) {
    const Json json = told(protocol::FieldError(ours, "is wrong"), false);
    EXPECT_EQ(json["error"]["message"], std::string(theirs) + ": is wrong");
  }
  EXPECT_EQ(told(protocol::FieldError("text", "is wrong"), true),
            Json::parse(R"({"type":"error","error":{"type":"invalid_request_error",
                            "message":"text: is wrong"},"request_id":"r"})"));
  EXPECT_EQ(told(ParseMessages(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],
                                   "thread":{"type":"create"}})")
                     .status(),
                 true),
            Json::parse(R"({"type":"error","error":{"type":"invalid_request_error",
                            "message":"thread: is not supported; nothing is stored; send all messages",
                            "details":{"error_code":"thread_unsupported_request",
                                       "unsupported":["thread"]}},"request_id":"r"})"));
  const std::pair<absl::StatusCode, const char*> types[] = {
      {absl::StatusCode::kUnauthenticated, "authentication_error"},
      {absl::StatusCode::kPermissionDenied, "permission_error"},
      {absl::StatusCode::kNotFound, "not_found_error"},
      {absl::StatusCode::kResourceExhausted, "rate_limit_error"},
      {absl::StatusCode::kUnavailable, "overloaded_error"},
      {absl::StatusCode::kDeadlineExceeded, "timeout_error"},
      {absl::StatusCode::kInternal, "api_error"}};
  for (const auto& [code, type] : types) {
    EXPECT_EQ(told(absl::Status(code, "inside"), false)["error"]["type"], type);
  }
  EXPECT_THAT(std::string(told(absl::InternalError("inside"), false)["error"]["message"]),
              ::testing::Not(HasSubstr("inside")));
}

}  // namespace
}  // namespace continuo::gateway::openai
