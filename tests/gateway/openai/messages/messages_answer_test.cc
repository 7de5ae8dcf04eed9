// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

// The events of a stream. Each is named by its type.
std::vector<Json> Events(const std::string& stream) {
  std::vector<Json> events;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos);
    const size_t data = stream.find("\ndata: ", begin);
    events.push_back(Json::parse(stream.substr(data + 7, end - data - 7)));
    EXPECT_EQ(stream.substr(begin, data - begin), "event: " + std::string(events.back()["type"]));
    begin = end + 2;
  }
  return events;
}

v1::Delta Of(const std::string& reasoning, const std::string& text) {
  v1::Delta delta;
  delta.set_reasoning(reasoning);
  delta.set_text(text);
  return delta;
}

v1::Delta Call(const std::string& id, const std::string& name, const std::string& arguments) {
  v1::Delta delta;
  v1::ToolCall& call = *delta.add_tool_calls();
  call.set_id(id);
  call.set_name(name);
  call.set_arguments(arguments);
  return delta;
}

v1::Delta End(v1::FinishReason reason) {
  v1::Delta delta;
  delta.set_finish_reason(reason);
  return delta;
}

// An answer with thoughts, text and two calls, divided differently by `joins`.
std::vector<v1::GenerateResponse> Responses(bool joins) {
  v1::GenerateResponse first;
  first.mutable_accepted()->set_model("served");
  first.mutable_progress()->set_prompt_tokens(11);
  std::vector<v1::Delta> deltas = {Of("so ", ""),
                                   Of("so", ""),
                                   Of("", "Let me\n"),
                                   Of("", "\"look\""),
                                   Call("c0", "f", "{\"a\""),
                                   Call("", "", ":1}"),
                                   Call("c1", "g", "{}"),
                                   End(v1::FINISH_REASON_TOOL_CALLS)};
  std::vector<v1::GenerateResponse> responses = {first};
  for (v1::Delta& delta : deltas) {
    if (!joins || responses.size() == 1) responses.emplace_back();
    *responses.back().add_deltas() = delta;
  }
  v1::Usage& usage = *responses.emplace_back().mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(11);
  usage.set_cached_prompt_tokens(4);
  usage.set_completion_tokens(9);
  return responses;
}

// The message that a client puts together from the events, as Anthropic's SDKs do.
Json Assemble(const std::vector<Json>& events) {
  Json message;
  std::string arguments;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") {
      message = event["message"];
    } else if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      arguments.clear();
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event["index"], message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = event["delta"];
      if (delta["type"] == "text_delta") {
        block["text"] = std::string(block["text"]) + std::string(delta["text"]);
      } else if (delta["type"] == "thinking_delta") {
        block["thinking"] = std::string(block["thinking"]) + std::string(delta["thinking"]);
      } else if (delta["type"] == "signature_delta") {
        block["signature"] = delta["signature"];
      } else {
        EXPECT_EQ(delta["type"], "input_json_delta");
        arguments += delta["partial_json"];
      }
    } else if (type == "content_block_stop") {
      if (message["content"].back()["type"] == "tool_use") {
        message["content"].back()["input"] = Json::parse(arguments);
      }
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
    }
  }
  return message;
}

TEST(MessagesAnswerTest, StreamAndBodyAreTheSameMessage) {
  const Json expected = Json::parse(R"({"id":"msg_i","type":"message","role":"assistant",
    "model":"served","content":[
      {"type":"thinking","thinking":"so so","signature":"continuo"},
      {"type":"text","text":"Let me\n\"look\""},
      {"type":"tool_use","id":"c0","name":"f","input":{"a":1}},
      {"type":"tool_use","id":"c1","name":"g","input":{}}],
    "stop_reason":"tool_use","stop_sequence":null,
    "usage":{"input_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,
             "output_tokens":9}})");
  for (const bool joins : {false, true}) {
    MessagesAnswer body({.stream = false, .shows_thinking = true}, "i", "asked");
    MessagesAnswer stream({.stream = true, .shows_thinking = true}, "i", "asked");
    std::string events;
    for (const v1::GenerateResponse& response : Responses(joins)) {
      body.Add(0, response, nullptr);
      stream.Add(0, response, &events);
    }
    EXPECT_GT(body.num_bytes(), 0);
    EXPECT_EQ(stream.num_bytes(), 0);
    stream.AddEnd(&events);
    EXPECT_EQ(Json::parse(absl::StrJoin(body.TakeBody(), "")), expected);
    EXPECT_EQ(body.num_bytes(), 0);
    EXPECT_EQ(Assemble(Events(events)), expected) << events;
  }
}

TEST(MessagesAnswerTest, TheEventsComeInTheirOrder) {
  MessagesAnswer answer({.stream = true, .shows_thinking = true}, "i", "asked");
  std::string events;
  answer.Add(0, Responses(true)[0], &events);
  const std::vector<Json> begun = Events(events);
  ASSERT_EQ(begun.size(), 2);
  EXPECT_EQ(begun[0]["message"]["usage"]["input_tokens"], 11);
  EXPECT_EQ(begun[1], Json::parse(R"({"type":"ping"})"));
  for (size_t i = 1; i < Responses(true).size(); ++i) answer.Add(0, Responses(true)[i], &events);
  answer.AddEnd(&events);
  std::vector<std::string> types;
  for (const Json& event : Events(events)) {
    const std::string type = event["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  const std::vector<std::string> block = {"content_block_start", "content_block_delta",
                                          "content_block_stop"};
  std::vector<std::string> expected = {"message_start", "ping"};
  for (int i = 0; i < 4; ++i) expected.insert(expected.end(), block.begin(), block.end());
  expected.insert(expected.end(), {"message_delta", "message_stop"});
  EXPECT_EQ(types, expected);
}

TEST(MessagesAnswerTest, TokensOfTheAnswerAreToldOnce) {
  v1::GenerateResponse whole;
  for (const v1::GenerateResponse& response : Responses(true)) whole.MergeFrom(response);
  MessagesAnswer answer({.stream = true, .shows_thinking = true}, "i", "asked");
  std::string events;
  answer.Add(0, whole, &events);
  EXPECT_EQ(Events(events)[0]["message"]["usage"]["output_tokens"], 0);
  events.clear();
  answer.AddEnd(&events);
  const std::vector<Json> end = Events(events);
  ASSERT_GE(end.size(), 2);
  EXPECT_EQ(end[end.size() - 2]["usage"]["output_tokens"], 9);
}

TEST(MessagesAnswerTest, ThoughtsThatNobodyAskedForAreLeftOut) {
  for (const bool stream : {false, true}) {
    MessagesAnswer answer({.stream = stream}, "i", "m");
    std::string events;
    for (const v1::GenerateResponse& response : Responses(false)) answer.Add(0, response, &events);
    answer.AddEnd(&events);
    const Json message =
        stream ? Assemble(Events(events)) : Json::parse(absl::StrJoin(answer.TakeBody(), ""));
    EXPECT_EQ(message["content"][0]["type"], "text");
    EXPECT_EQ(message["content"].size(), 3);
  }
}

TEST(MessagesAnswerTest, StopReasons) {
  const auto reason = [](const v1::Delta& end) {
    MessagesAnswer answer({}, "i", "m");
    v1::GenerateResponse response;
    *response.add_deltas() = Of("", "x");
    *response.add_deltas() = end;
    answer.Add(0, response, nullptr);
    const Json message = Json::parse(absl::StrJoin(answer.TakeBody(), ""));
    return std::pair(message["stop_reason"], message["stop_sequence"]);
  };
  EXPECT_EQ(reason(End(v1::FINISH_REASON_STOP)), std::pair(Json("end_turn"), Json()));
  EXPECT_EQ(reason(End(v1::FINISH_REASON_LENGTH)), std::pair(Json("max_tokens"), Json()));
  EXPECT_EQ(reason(End(v1::FINISH_REASON_TIME_LIMIT)), std::pair(Json("max_tokens"), Json()));
  v1::Delta stopped = End(v1::FINISH_REASON_STOP);
  stopped.set_stop_sequence("###");
  EXPECT_EQ(reason(stopped), std::pair(Json("stop_sequence"), Json("###")));
  v1::Delta token = End(v1::FINISH_REASON_STOP);
  token.set_stop_token_id(3);
  EXPECT_EQ(reason(token), std::pair(Json("end_turn"), Json()));
}

TEST(MessagesAnswerTest, ACallThatIsCutHasNoArguments) {
  MessagesAnswer answer({}, "i", "m");
  v1::GenerateResponse response;
  *response.add_deltas() = Call("c", "f", "{\"a\":");
  *response.add_deltas() = End(v1::FINISH_REASON_LENGTH);
  answer.Add(0, response, nullptr);
  const Json message = Json::parse(absl::StrJoin(answer.TakeBody(), ""));
  EXPECT_EQ(message["content"][0]["input"], Json::object());
  EXPECT_EQ(message["stop_reason"], "max_tokens");
}

TEST(MessagesAnswerTest, AnEmptyAnswerHasNoBlocks) {
  MessagesAnswer answer({.stream = true}, "i", "m");
  std::string events;
  answer.AddEnd(&events);
  const Json message = Assemble(Events(events));
  EXPECT_EQ(message["content"], Json::array());
}

TEST(MessagesAnswerTest, AnErrorIsAnEvent) {
  MessagesAnswer answer({.stream = true}, "i", "m");
  std::string events;
  answer.AddError(absl::InternalError("x"), R"({"type":"error","error":{}})", &events);
  EXPECT_EQ(events, "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n");
}

TEST(MessagesAnswerTest, APieceWithoutAnIdGoesOnWithTheCallBeforeTheText) {
  v1::GenerateResponse response;
  *response.add_deltas() = Call("c", "f", "{\"a\"");
  v1::Delta& joined = *response.add_deltas();
  joined.set_text("Then.");
  joined.add_tool_calls()->set_arguments(":1}");
  *joined.add_tool_calls() = Call("d", "g", "{}").tool_calls(0);
  MessagesAnswer whole({.stream = false, .shows_thinking = true}, "1", "m");
  whole.Add(0, response, nullptr);
  const Json content = Json::parse(absl::StrJoin(whole.TakeBody(), ""))["content"];
  EXPECT_EQ(content[0]["input"], Json({{"a", 1}}));
  EXPECT_EQ(content[1]["text"], "Then.");
  EXPECT_EQ(content[2]["name"], "g");

  MessagesAnswer stream({.stream = true, .shows_thinking = true}, "1", "m");
  std::string events;
  stream.Add(0, response, &events);
  std::vector<std::string> pieces;
  for (const Json& event : Events(events)) {
    if (event["type"] != "content_block_delta") continue;
    const Json& delta = event["delta"];
    pieces.push_back(absl::StrCat(event["index"].get<int>(), delta.value("text", ""),
                                  delta.value("partial_json", "")));
  }
  EXPECT_THAT(pieces, ::testing::ElementsAre("0{\"a\"", "0:1}", "1Then.", "2{}"));
}

}  // namespace
}  // namespace continuo::gateway::openai
