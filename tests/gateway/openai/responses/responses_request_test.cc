// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "services/gateway/openai/responses/input_items.h"
#include "tests/gateway/openai/conversation_lines.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

ResponsesCall Parse(const Json& body) {
  absl::StatusOr<ResponsesCall> call = ParseResponses(body.dump());
  EXPECT_TRUE(call.ok()) << call.status() << body;
  return call.ok() ? *std::move(call) : ResponsesCall();
}

TEST(ResponsesRequestTest, SamplingAndStopping) {
  const ResponsesCall call = Parse({{"model", "m"},
                                    {"input", "Hello"},
                                    {"instructions", "Be brief"},
                                    {"max_output_tokens", 20},
                                    {"temperature", 0.5},
                                    {"top_p", 0.25},
                                    {"presence_penalty", -1.5},
                                    {"frequency_penalty", 0.5},
                                    {"stream", true},
                                    {"store", false},
                                    {"prompt_cache_key", "k"}});
  EXPECT_TRUE(call.form.stream);
  EXPECT_EQ(call.request.model(), "m");
  EXPECT_EQ(call.request.stopping().max_tokens(), 20);
  EXPECT_EQ(call.request.sampling().temperature(), 0.5f);
  EXPECT_EQ(call.request.sampling().top_p(), 0.25f);
  EXPECT_EQ(call.request.sampling().presence_penalty(), -1.5f);
  EXPECT_EQ(call.request.sampling().frequency_penalty(), 0.5f);
  EXPECT_THAT(call.form.repeated, HasSubstr(R"("presence_penalty":-1.5,"frequency_penalty":0.5)"));
  EXPECT_THAT(LinesOf(call.request.conversation()), ElementsAre("system: Be brief", "user: Hello"));
}

TEST(ResponsesRequestTest, ItemsBecomeMessages) {
  const Json input = Json::parse(R"([
    {"role": "developer", "content": "Be brief"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                    {"type": "input_text", "text": "b"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "id": "m", "status": "completed",
     "content": [{"type": "output_text", "text": "I look", "annotations": []}]},
    {"type": "function_call", "id": "x", "call_id": "c1", "name": "f", "arguments": "{\"z\": 1}"},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]},
    {"role": "assistant", "content": "done"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "user", "content": "thanks"}])");
  EXPECT_THAT(LinesOf(Parse({{"input", input}}).request.conversation()),
              ElementsAre("system: Be brief", "user: a\nb",
                          "assistant: (hm)I look[c1 f{\"z\": 1}][c2 g{}]", "tool: one <- c1",
                          "tool: two <- c2", "assistant: (short)done\nno", "user: thanks"));
}

TEST(ResponsesRequestTest, ThoughtsComeBackAsTheyWere) {
  const std::string thoughts = "so\xe2\x82\xac \"so\"";
  const auto told = [](const std::string& encoded) {
    return LinesOf(Parse({{"input",
                           {{{"type", "reasoning"}, {"encrypted_content", encoded}},
                            {{"role", "user"}, {"content", "x"}}}}})
                       .request.conversation())[0];
  };
  EXPECT_EQ(told(EncodeReasoning(thoughts)), "assistant: (" + thoughts + ")");
  EXPECT_EQ(told("gAAAAABo"), "assistant: ");
  EXPECT_EQ(told("continuo:not base64!"), "assistant: ");
  EXPECT_EQ(told(EncodeReasoning("\xff")), "assistant: ");
}

TEST(ResponsesRequestTest, ToolsThatAreNoFunctionsAreSkipped) {
  const std::string body =
      R"({"input": "x", "tools": [{"type": "web_search"},
         {"type": "function", "name": "f", "description": "d", "strict": true,
          "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}},
         {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}],
         "metadata": {
           "a \" b": "two  spaces, a \\"
         },
         "parallel_tool_calls": false})";
  const absl::StatusOr<ResponsesCall> call = ParseResponses(body);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_THAT(call->skipped_tools, ElementsAre("web_search", "custom"));
  const v1::Conversation& conversation = call->request.conversation();
  ASSERT_EQ(conversation.tools_size(), 1);
  EXPECT_EQ(conversation.tools(0).parameters(),
            R"({"type": "object", "properties": {"z": {}, "a": {}}})");
  EXPECT_TRUE(conversation.tools(0).strict());
  EXPECT_TRUE(conversation.tool_choice().single_call());
  const Json repeated = Json::parse("{" + call->form.repeated + "}");
  ASSERT_EQ(repeated["tools"].size(), 1);
  EXPECT_EQ(repeated["tools"][0]["name"], "f");
  EXPECT_EQ(repeated["parallel_tool_calls"], false);
  // An event's data is one line.
  EXPECT_THAT(call->form.repeated, HasSubstr(R"("properties":{"z":{},"a":{}})"));
  EXPECT_THAT(call->form.repeated, HasSubstr(R"("metadata":{"a \" b":"two  spaces, a \\"})"));
  EXPECT_EQ(call->form.repeated.find('\n'), std::string::npos);
  EXPECT_THAT(call->tool_places, ElementsAre(1));
  EXPECT_EQ(ResponsesParamOf(call->tool_places, "conversation.tools[0].parameters"),
            "tools[1].parameters");
}

TEST(ResponsesRequestTest, ToolChoices) {
  const auto choice = [](const Json& value) {
    Json tools = Json::array();
    for (const char* name : {"f", "g"}) tools.push_back({{"type", "function"}, {"name", name}});
    return Parse({{"input", "x"}, {"tools", tools}, {"tool_choice", value}}).request.conversation();
  };
  EXPECT_EQ(choice("auto").tool_choice().mode(), v1::ToolChoice::MODE_AUTO);
  EXPECT_EQ(choice("none").tool_choice().mode(), v1::ToolChoice::MODE_NONE);
  EXPECT_EQ(choice("required").tool_choice().mode(), v1::ToolChoice::MODE_REQUIRED);
  const v1::Conversation named = choice({{"type", "function"}, {"name", "g"}});
  EXPECT_EQ(named.tool_choice().mode(), v1::ToolChoice::MODE_REQUIRED);
  EXPECT_EQ(named.tool_choice().name(), "g");
  const v1::Conversation allowed =
      choice({{"type", "allowed_tools"},
              {"mode", "required"},
              {"tools", {{{"type", "function"}, {"name", "g"}}, {{"type", "web_search"}}}}});
  EXPECT_EQ(allowed.tool_choice().mode(), v1::ToolChoice::MODE_REQUIRED);
  ASSERT_EQ(allowed.tools_size(), 1);
  EXPECT_EQ(allowed.tools(0).name(), "g");
}

TEST(ResponsesRequestTest, FormatsAndReasoning) {
  const auto request = [](const Json& more) {
    Json body = {{"input", "x"}};
    body.update(more);
    return Parse(body).request;
  };
  EXPECT_FALSE(request({{"text", {{"format", {{"type", "text"}}}}}}).has_constraint());
  EXPECT_TRUE(
      request({{"text", {{"format", {{"type", "json_object"}}}}}}).constraint().json_object());
  EXPECT_EQ(request({{"text",
                      {{"format",
                        {{"type", "json_schema"},
                         {"name", "n"},
                         {"strict", true},
                         {"schema", {{"type", "object"}}}}}}}})
                .constraint()
                .json_schema(),
            R"({"type":"object"})");
  EXPECT_EQ(Json::parse(request({{"reasoning", {{"effort", "none"}, {"summary", "auto"}}}})
                            .conversation()
                            .template_arguments()),
            Json::parse(R"({"reasoning_effort":"none","enable_thinking":false,"thinking":false})"));
  EXPECT_TRUE(
      Parse({{"input", "x"}, {"include", {"reasoning.encrypted_content"}}}).form.encodes_reasoning);
}

TEST(ResponsesRequestTest, TheResponseRepeatsTheRequest) {
  const auto repeated_of = [](const Json& body) {
    return Json::parse("{" + Parse(body).form.repeated + "}");
  };
  const Json repeated = repeated_of({{"input", "x"},
                                     {"instructions", "i"},
                                     {"metadata", {{"a", "b"}}},
                                     {"temperature", 0.5},
                                     {"text", {{"verbosity", "low"}}},
                                     {"reasoning", {{"effort", "low"}}}});
  EXPECT_EQ(repeated["text"], Json::parse(R"({"format":{"type":"text"},"verbosity":"low"})"));
  EXPECT_EQ(repeated_of({{"input", "x"}, {"tools", nullptr}, {"tool_choice", nullptr}})["tools"],
            Json::array());
  EXPECT_EQ(repeated["instructions"], "i");
  EXPECT_EQ(repeated["metadata"]["a"], "b");
  EXPECT_EQ(repeated["temperature"], 0.5);
  EXPECT_EQ(repeated["top_p"], 1.0);
  EXPECT_EQ(repeated["reasoning"]["effort"], "low");
  EXPECT_EQ(repeated["store"], false);
  EXPECT_EQ(repeated["tool_choice"], "auto");
  EXPECT_TRUE(repeated["previous_response_id"].is_null());
}

TEST(ResponsesRequestTest, WhatIsWrongIsTold) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"input": null})", "input: is needed"},
      {R"({"input": []})", "input: is empty"},
      {R"({"input": 3})", "input: must be a string or an array"},
      {R"({"input": [{"role": "tool", "content": "x"}]})", "input[0].role: must be"},
      {R"({"input": [{"role": "user"}]})", "input[0].content: is needed"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0].type: only parts"},
      {R"({"input": [{"type": "item_reference", "id": "a"}]})", "input[0].type: is of a stored"},
      {R"({"input": [{"type": "computer_call"}]})", "input[0].type: only message"},
      {R"({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]})",
       "input[0].call_id: is needed"},
      {R"({"input": [{"type": "function_call_output", "call_id": "c"}]})",
       "input[0].output: is needed"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "[]"}]})",
       "input[0].arguments: must be the text of a JSON object"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]})",
       "input[0].arguments: must be the text of a JSON object"},
      {R"({"tool_choice": "required", "tools": [{"type": "web_search"}]})",
       "tool_choice: requires a call"},
      {R"({"store": true})", "store: is not supported"},
      {R"({"background": true})", "background: is not supported"},
      {R"({"previous_response_id": "resp_1"})", "previous_response_id: is not supported"},
      {R"({"conversation": "c"})", "conversation: is not supported"},
      {R"({"truncation": "auto"})", "truncation: is not supported"},
      {R"({"top_logprobs": 3})", "top_logprobs: is not supported"},
      {R"({"include": ["message.output_text.logprobs"]})", "include[0]: is not supported"},
      {R"({"include": ["nonsense"]})", "include[0]: is no part"},
      {R"({"metadata": [1]})", "metadata: must be an object"},
      {R"({"metadata": {"a": 1}})", "metadata: must have names"},
      {R"({"user": 5})", "user: must be a string"},
      {R"({"max_output_tokens": 0})", "max_output_tokens: "},
      {R"({"max_tokens": 5})", "max_tokens: is no member of /v1/responses"},
      {R"({"text": {"format": {"type": "xml"}}})", "text.format.type: must be"},
      {R"({"text": {"format": {"type": "json_schema", "name": "n"}}})",
       "text.format.schema: is needed"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].name: is needed"},
      {R"({"tool_choice": {"type": "function", "name": "f"}})",
       "tool_choice.name: is not the name"},
      {R"({"tool_choice": {"type": "web_search"}})", "tool_choice.type: only"},
      {R"({"stream_options": {"include_event_ids": 1}})",
       "stream_options.include_event_ids: must be a boolean"},
      {R"({"stream_options": {"include_obfuscation": true}})",
       "stream_options.include_obfuscation: is not supported"},
  };
  for (const auto& [change, text] : cases) {
    Json body = {{"input", "x"}};
    body.merge_patch(Json::parse(change));
    const absl::Status status = ParseResponses(body.dump()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << change << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text)) << change;
  }
}

TEST(ResponsesRequestTest, ALargeBodyIsReadInOnePass) {
  // Many members of metadata, items and tools, each of which would take minutes to look up anew.
  std::string tools, items = R"({"role":"user","content":"a"})", metadata;
  for (int i = 0; i < 100000; ++i) {
    tools += std::string(i == 0 ? "" : ",") + R"({"type":"x"})";
    items += R"(,{"role":"user","content":""})";
    metadata += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
  }
  const std::string body = R"({"input":[)" + items + R"(],"tools":[)" + tools + "]";
  EXPECT_TRUE(ParseResponses(body + "}").ok());
  EXPECT_THAT(
      std::string(ParseResponses(body + R"(,"metadata":{)" + metadata + "}}").status().message()),
      HasSubstr("metadata: has 100000 members, the limit is 16"));
}

TEST(ResponsesRequestTest, FieldsHaveTheNamesOfTheBody) {
  const std::pair<const char*, const char*> names[] = {
      {"stopping.max_tokens", "max_output_tokens"},
      {"conversation.messages[3].content", "input"},
      {"conversation.tools[1].parameters", "tools[1].parameters"},
      {"constraint.json_schema", "text.format.schema"},
      {"conversation.template_arguments", "reasoning.effort"},
      {"sampling.top_p", "top_p"},
      {"model", "model"}};
  for (const auto& [ours, theirs] : names) EXPECT_EQ(ResponsesParamOf({}, ours), theirs);
}

}  // namespace
}  // namespace continuo::gateway::openai
