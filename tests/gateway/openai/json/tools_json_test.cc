// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/tools_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

std::string Body(const std::string& members) {
  return R"({"messages":[{"role":"user","content":"x"}])" + members + "}";
}

v1::Conversation Read(const std::string& members) {
  const auto call = ParseCall(Endpoint::kChat, Body(members));
  EXPECT_TRUE(call.ok()) << call.status();
  return call.ok() ? call->requests[0].conversation() : v1::Conversation();
}

TEST(ToolsJsonTest, ToolsAreReadAndTheirSchemasStayAsTheyAre) {
  const v1::Conversation conversation = Read(R"(, "tools" : [ {"type": "function", "function":
      {"description": "d", "parameters" : {"z": 1.50, "a": ["]", {"\"}": 1e2}]} , "name": "f"}},
      {"function":{"name":"g","strict":true}},
      {"type":"function","function":{"name":"h","parameters":{}}}])");
  ASSERT_EQ(conversation.tools_size(), 3);
  EXPECT_EQ(conversation.tools(0).name(), "f");
  EXPECT_EQ(conversation.tools(0).description(), "d");
  EXPECT_EQ(conversation.tools(0).parameters(), R"({"z": 1.50, "a": ["]", {"\"}": 1e2}]})");
  EXPECT_EQ(conversation.tools(1).name(), "g");
  EXPECT_EQ(conversation.tools(1).parameters(), "");
  EXPECT_TRUE(conversation.tools(1).strict());
  EXPECT_EQ(conversation.tools(2).parameters(), "{}");
  EXPECT_FALSE(conversation.has_tool_choice());
}

TEST(ToolsJsonTest, TheTextOfValuesIsFound) {
  const std::string_view object = R"( { "a":1, "b" : "x,}\"" ,"a": [ {"a":2} , true ],"c":null} )";
  EXPECT_EQ(MemberText(object, "a"), R"([ {"a":2} , true ])") << "the last one";
  EXPECT_EQ(MemberText(object, "b"), R"("x,}\"")");
  EXPECT_EQ(MemberText(object, "c"), "null");
  EXPECT_EQ(MemberText(object, "d"), "");
  EXPECT_EQ(MemberText("", "a"), "");
  const std::string_view array = R"([ {"a":2} ,true,"]",3])";
  EXPECT_THAT(ElementTexts(array), ::testing::ElementsAre(R"({"a":2})", "true", R"("]")", "3"));
  EXPECT_THAT(ElementTexts("[]"), ::testing::IsEmpty());
}

TEST(ToolsJsonTest, ASchemaBehindAnEscapedNameIsReadToo) {
  const v1::Conversation conversation =
      Read(R"(,"t\u006fols":[{"function":{"name":"f","p\u0061rameters":{"b": 1,"a":1}}}])");
  EXPECT_EQ(conversation.tools(0).parameters(), R"({"b": 1,"a":1})");
}

TEST(ToolsJsonTest, TheChoiceIsRead) {
  const std::string tools = R"(,"tools":[{"function":{"name":"f"}}])";
  const auto mode = [&](const std::string& choice) {
    return Read(tools + R"(,"tool_choice":)" + choice).tool_choice();
  };
  EXPECT_EQ(mode(R"("none")").mode(), v1::ToolChoice::MODE_NONE);
  EXPECT_EQ(mode(R"("auto")").mode(), v1::ToolChoice::MODE_AUTO);
  EXPECT_EQ(mode(R"("required")").mode(), v1::ToolChoice::MODE_REQUIRED);
  const v1::ToolChoice named = mode(R"({"type":"function","function":{"name":"f"}})");
  EXPECT_EQ(named.mode(), v1::ToolChoice::MODE_REQUIRED);
  EXPECT_EQ(named.name(), "f");
  EXPECT_FALSE(Read(R"(,"tools":[],"tool_choice":"auto")").has_tool_choice());
}

TEST(ToolsJsonTest, AllowedToolsLeaveOutTheOthers) {
  const std::string tools =
      R"(,"tools":[{"function":{"name":"f"}},{"function":{"name":"g"}},{"function":{"name":"h"}}])";
  for (const auto& [mode, expected] : {std::pair{"auto", v1::ToolChoice::MODE_AUTO},
                                       {"required", v1::ToolChoice::MODE_REQUIRED}}) {
    const v1::Conversation conversation = Read(absl::StrCat(
        tools, R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")", mode,
        R"(","tools":[{"type":"function","function":{"name":"h"}},{"function":{"name":"f"}}]}})"));
    ASSERT_EQ(conversation.tools_size(), 2);
    EXPECT_EQ(conversation.tools(0).name(), "f");
    EXPECT_EQ(conversation.tools(1).name(), "h");
    EXPECT_EQ(conversation.tool_choice().mode(), expected);
    EXPECT_EQ(conversation.tool_choice().name(), "");
  }
}

TEST(ToolsJsonTest, CallsThatAreNotParallelAreSingle) {
  const std::string tools = R"(,"tools":[{"function":{"name":"f"}}])";
  EXPECT_FALSE(Read(tools + R"(,"parallel_tool_calls":true)").has_tool_choice());
  const v1::Conversation conversation = Read(tools + R"(,"parallel_tool_calls":false)");
  EXPECT_TRUE(conversation.tool_choice().single_call());
  EXPECT_EQ(conversation.tool_choice().mode(), v1::ToolChoice::MODE_UNSPECIFIED);
  EXPECT_FALSE(Read(R"(,"parallel_tool_calls":false)").has_tool_choice());
}

TEST(ToolsJsonTest, CallsOfMessagesAreRead) {
  const auto call = ParseCall(Endpoint::kChat, R"({"messages":[{"role":"assistant","content":null,
      "tool_calls":[{"id":"i","type":"function","function":{"name":"f","arguments":"{\"a\": 1.0}"}},
                    {"function":{"name":"g","parsed_arguments":{"a":1}}}]},
      {"role":"tool","tool_call_id":"i","content":"r"}]})");
  ASSERT_TRUE(call.ok()) << call.status();
  const v1::ChatMessage& message = call->requests[0].conversation().messages(0);
  ASSERT_EQ(message.tool_calls_size(), 2);
  EXPECT_EQ(message.tool_calls(0).id(), "i");
  EXPECT_EQ(message.tool_calls(0).name(), "f");
  EXPECT_EQ(message.tool_calls(0).arguments(), R"({"a": 1.0})");
  EXPECT_EQ(message.tool_calls(1).arguments(), "");
}

TEST(ToolsJsonTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"(,"tools":{})", "tools"},
      {R"(,"tools":[1])", "tools[0]"},
      {R"(,"tools":[{"type":"custom"}])", "tools[0].type"},
      {R"(,"tools":[{"function":1}])", "tools[0].function"},
      {R"(,"tools":[{"function":{}}])", "tools[0].function.name"},
      {R"(,"tools":[{"function":{"name":1}}])", "tools[0].function.name"},
      {R"(,"tools":[{"function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters"},
      {R"(,"tools":[{"function":{"name":"f","strict":1}}])", "tools[0].function.strict"},
      {R"(,"tools":[{"function":{"name":"f","x":1}}])", "tools[0].function.x"},
      {R"(,"tool_choice":"required")", "tool_choice"},
      {R"(,"tool_choice":"any")", "tool_choice"},
      {R"(,"tool_choice":{"function":{"name":"f"}})", "tool_choice.function.name"},
      {R"(,"tool_choice":{"type":"allowed_tools"})", "tool_choice.allowed_tools"},
      {R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{}})",
       "tool_choice.allowed_tools.mode"},
      {R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}})",
       "tool_choice.allowed_tools.tools"},
      {R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})",
       "tool_choice.allowed_tools.tools"},
      {R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools",
          "allowed_tools":{"mode":"auto","tools":[{"function":{"name":"g"}}]}})",
       "tool_choice.allowed_tools.tools[0].function.name"},
      {R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"f"},"x":1})",
       "tool_choice.x"},
      {R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"f","x":1}})",
       "tool_choice.function.x"},
      {R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools",
          "allowed_tools":{"mode":"auto","tools":[{"function":{"name":"f"},"x":1}]}})",
       "tool_choice.allowed_tools.tools[0].x"},
      {R"(,"tool_choice":{"type":"web_search"})", "tool_choice.type"},
      {R"(,"parallel_tool_calls":1)", "parallel_tool_calls"},
  };
  for (const auto& [members, field] : wrong) {
    const absl::Status status = ParseCall(Endpoint::kChat, Body(members)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << members;
    EXPECT_EQ(protocol::FieldOf(status), field) << members;
  }
}

TEST(ToolsJsonTest, TheWorkersNamesAreTheClients) {
  const ParamNames names;
  EXPECT_EQ(ParamOf(names, "conversation.tools[0].parameters"), "tools[0].function.parameters");
  EXPECT_EQ(ParamOf(names, "conversation.tools"), "tools");
  EXPECT_EQ(ParamOf(names, "conversation.tool_choice"), "tool_choice");
  EXPECT_EQ(ParamOf(names, "conversation.messages[1].tool_calls[0].arguments"),
            "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(ParamOf(names, "conversation.messages[1].role"), "messages[1].role");
  // Tools that allowed_tools leaves out count in the body.
  const auto call = ParseCall(Endpoint::kChat, Body(R"(,"tools":[{"function":{"name":"f"}},
      {"function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{
      "mode":"auto","tools":[{"function":{"name":"g"}}]}})"));
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(ParamOf(call->form.names, "conversation.tools[0].parameters"),
            "tools[1].function.parameters");
}

}  // namespace
}  // namespace continuo::gateway::openai
