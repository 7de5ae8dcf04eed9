// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/answer/completions_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::SizeIs;
using Json = nlohmann::json;

// The events of a stream; "[DONE]" as a string.
std::vector<Json> Events(const std::string& stream) {
  std::vector<Json> events;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos);
    EXPECT_EQ(stream.substr(begin, 6), "data: ");
    const std::string data = stream.substr(begin + 6, end - begin - 6);
    EXPECT_EQ(data.find('\n'), std::string::npos);
    events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    begin = end + 2;
  }
  return events;
}

v1::GenerateResponse Accepted() {
  v1::GenerateResponse response;
  response.mutable_accepted()->set_model("served");
  response.mutable_accepted()->set_fingerprint("F");
  response.mutable_accepted()->mutable_reference_time()->set_seconds(77);
  return response;
}
v1::GenerateResponse Text(uint32_t index, const std::string& text,
                          v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse response;
  v1::Delta* const delta = response.add_deltas();
  delta->set_index(index);
  delta->set_text(text);
  delta->add_token_ids(1);
  delta->set_finish_reason(finish);
  return response;
}
v1::GenerateResponse Summary(uint32_t prompt, uint32_t cached, uint32_t completion) {
  v1::GenerateResponse response;
  v1::Usage* const usage = response.mutable_summary()->mutable_usage();
  usage->set_prompt_tokens(prompt);
  usage->set_cached_prompt_tokens(cached);
  usage->set_completion_tokens(completion);
  return response;
}
void AddLogprob(v1::GenerateResponse& response, const std::string& token, float logprob) {
  v1::TokenLogprob* const entry = response.mutable_deltas(0)->add_logprobs();
  entry->set_token(token);
  entry->set_logprob(logprob);
  v1::TokenLogprob::Alternative* const other = entry->add_alternatives();
  other->set_token(token);
  other->set_logprob(logprob);
}

std::string BodyOf(Answer& answer) { return absl::StrJoin(answer.TakeBody(), ""); }

v1::GenerateResponse Call(uint32_t index, const std::string& id, const std::string& name,
                          const std::string& arguments) {
  v1::GenerateResponse response = Text(0, "");
  v1::ToolCall& call = *response.mutable_deltas(0)->add_tool_calls();
  call.set_index(index);
  call.set_id(id);
  call.set_name(name);
  call.set_arguments(arguments);
  return response;
}

TEST(CompletionsAnswerTest, CallsOfToolsAreMembersOfTheMessage) {
  CompletionsAnswer answer(AnswerForm(), "1", "m", 1);
  std::string events;
  answer.Add(0, Call(0, "id0", "f", "{\"a\": \"x"), &events);
  answer.Add(0, Call(0, "", "", "\\n\"}"), &events);
  answer.Add(0, Call(1, "id1", "g", ""), &events);
  answer.Add(0, Call(1, "", "", "{}"), &events);
  answer.Add(0, Text(0, "", v1::FINISH_REASON_TOOL_CALLS), &events);
  const Json choice = Json::parse(BodyOf(answer))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"], Json::parse(R"([
      {"id":"id0","type":"function","function":{"name":"f","arguments":"{\"a\": \"x\\n\"}"}},
      {"id":"id1","type":"function","function":{"name":"g","arguments":"{}"}}])"));
}

TEST(CompletionsAnswerTest, CallsOfToolsAreStreamedInPieces) {
  AnswerForm form;
  form.stream = true;
  CompletionsAnswer answer(form, "1", "m", 1);
  std::string stream;
  answer.Add(0, Call(0, "id0", "f", ""), &stream);
  answer.Add(0, Call(0, "", "", "{\"a\""), &stream);
  answer.Add(0, Call(0, "", "", ": 1}"), &stream);
  v1::GenerateResponse last = Call(1, "id1", "g", "{}");
  last.mutable_deltas(0)->set_finish_reason(v1::FINISH_REASON_TOOL_CALLS);
  answer.Add(0, last, &stream);
  std::vector<Json> pieces;
  for (const Json& event : Events(stream)) {
    const Json& delta = event["choices"][0]["delta"];
    if (delta.contains("tool_calls")) pieces.push_back(delta["tool_calls"][0]);
  }
  ASSERT_THAT(pieces, SizeIs(4));
  EXPECT_EQ(pieces[0], Json::parse(R"({"index":0,"id":"id0","type":"function",
                                       "function":{"name":"f","arguments":""}})"));
  EXPECT_EQ(pieces[1], Json::parse(R"({"index":0,"function":{"arguments":"{\"a\""}})"));
  EXPECT_EQ(pieces[3]["index"], 1);
  EXPECT_EQ(Events(stream).back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(CompletionsAnswerTest, AChatIsOneBody) {
  CompletionsAnswer answer({}, "id", "asked", 5);
  for (const auto& response :
       {Accepted(), Text(0, "Hel"), Text(0, "lo", v1::FINISH_REASON_STOP), Summary(7, 4, 2)}) {
    answer.Add(0, response, nullptr);
  }
  EXPECT_EQ(Json::parse(BodyOf(answer)), Json::parse(R"({
      "id":"chatcmpl-id","object":"chat.completion","created":77,"model":"served",
      "system_fingerprint":"F",
      "choices":[{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},
                  "logprobs":null,"finish_reason":"stop"}],
      "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,
               "prompt_tokens_details":{"cached_tokens":4},
               "completion_tokens_details":{"reasoning_tokens":0}}})"));
}

TEST(CompletionsAnswerTest, AChatStreamBeginsWithTheRoleAndEndsWithDone) {
  CompletionsAnswer answer({.stream = true}, "id", "asked", 5);
  std::string stream;
  for (const auto& response :
       {Accepted(), Text(0, "Hi"), Text(0, "", v1::FINISH_REASON_LENGTH), Summary(7, 0, 2)}) {
    answer.Add(0, response, &stream);
  }
  answer.AddEnd(&stream);
  const std::vector<Json> events = Events(stream);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0], Json::parse(R"({
      "id":"chatcmpl-id","object":"chat.completion.chunk","created":77,"model":"served",
      "system_fingerprint":"F","choices":[{"index":0,"delta":{"role":"assistant","content":""},
      "logprobs":null,"finish_reason":null}]})"));
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::parse(R"({"content":"Hi"})"));
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], nullptr);
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[3], "[DONE]");
  for (const Json& event : events) EXPECT_FALSE(event.is_object() && event.contains("usage"));
}

TEST(CompletionsAnswerTest, UsageIsTheLastEventAndNullInTheOthers) {
  CompletionsAnswer answer({.stream = true, .include_usage = true}, "id", "asked", 5);
  std::string stream;
  answer.Add(0, Text(0, "Hi", v1::FINISH_REASON_STOP), &stream);
  answer.Add(0, Summary(7, 3, 1), &stream);
  answer.AddEnd(&stream);
  const std::vector<Json> events = Events(stream);
  ASSERT_THAT(events, SizeIs(5));
  EXPECT_EQ(events[0]["usage"], nullptr);
  EXPECT_TRUE(events[0].contains("usage"));
  EXPECT_EQ(events[3]["choices"], Json::array());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 8);
  EXPECT_EQ(events[3]["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST(CompletionsAnswerTest, TheEventWithTheFinishReasonHasNothingElse) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    for (const std::string text : {"", "Hi"}) {
      for (const std::string reasoning : {"", "hm"}) {
        for (const bool logprobs : {false, true}) {
          for (const v1::FinishReason finish :
               {v1::FINISH_REASON_STOP, v1::FINISH_REASON_LENGTH, v1::FINISH_REASON_TIME_LIMIT}) {
            CompletionsAnswer answer({.endpoint = endpoint, .stream = true, .logprobs = logprobs},
                                     "id", "m", 5);
            v1::GenerateResponse response = Text(0, text, finish);
            response.mutable_deltas(0)->set_reasoning(reasoning);
            if (logprobs) AddLogprob(response, "t", -1);
            std::string stream;
            answer.Add(0, response, &stream);
            std::vector<Json> events = Events(stream);
            const Json last = events.back()["choices"][0];
            events.pop_back();
            if (endpoint == Endpoint::kChat) {
              EXPECT_EQ(last["delta"], Json::object());
            } else {
              EXPECT_EQ(last["text"], "");
            }
            EXPECT_EQ(last["finish_reason"], finish == v1::FINISH_REASON_STOP ? "stop" : "length");
            EXPECT_EQ(last["logprobs"], nullptr);
            std::string had;
            int num_logprobs = 0;
            for (const Json& event : events) {
              const Json& choice = event["choices"][0];
              EXPECT_EQ(choice["finish_reason"], nullptr);
              had += endpoint == Endpoint::kChat ? choice["delta"].value("content", "")
                                                 : choice.value("text", "");
              num_logprobs += !choice["logprobs"].is_null();
            }
            EXPECT_EQ(had, text);
            EXPECT_EQ(num_logprobs, logprobs ? 1 : 0);
          }
        }
      }
    }
  }
}

TEST(CompletionsAnswerTest, HeldBackTextMakesNoEvent) {
  CompletionsAnswer answer({.stream = true}, "id", "asked", 5);
  std::string stream;
  answer.Add(0, Text(0, "a"), &stream);
  const size_t size = stream.size();
  answer.Add(0, Text(0, ""), &stream);
  EXPECT_EQ(stream.size(), size);
}

TEST(CompletionsAnswerTest, ChoicesAreNumberedThroughThePrompts) {
  CompletionsAnswer answer({.endpoint = Endpoint::kCompletions,
                            .echo = true,
                            .echo_texts = {"P", "Q"},
                            .num_sequences = 2},
                           "id", "asked", 5);
  answer.Add(1, Text(1, "d", v1::FINISH_REASON_STOP), nullptr);
  answer.Add(0, Text(0, "a", v1::FINISH_REASON_STOP), nullptr);
  answer.Add(1, Text(0, "c", v1::FINISH_REASON_STOP), nullptr);
  answer.Add(0, Text(1, "b", v1::FINISH_REASON_STOP), nullptr);
  answer.Add(0, Text(2, "not asked for"), nullptr);
  answer.Add(0, Summary(1, 0, 2), nullptr);
  answer.Add(1, Summary(2, 0, 3), nullptr);
  const Json body = Json::parse(BodyOf(answer));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "asked");
  EXPECT_EQ(body["system_fingerprint"], nullptr);
  ASSERT_THAT(body["choices"], SizeIs(4));
  const char* const texts[] = {"Pa", "Pb", "Qc", "Qd"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["completion_tokens"], 5);
}

TEST(CompletionsAnswerTest, AnEchoIsTheFirstEvent) {
  CompletionsAnswer answer(
      {.endpoint = Endpoint::kCompletions, .stream = true, .echo = true, .echo_texts = {"P"}}, "id",
      "m", 5);
  std::string stream;
  answer.Add(0, Text(0, "a"), &stream);
  const std::vector<Json> events = Events(stream);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0]["choices"][0]["text"], "P");
  EXPECT_EQ(events[1]["choices"][0]["text"], "a");
}

// Responses to one prompt of three tokens, the second of them half a character, cut as workers do.
std::vector<v1::GenerateResponse> EchoedResponses() {
  std::vector<v1::GenerateResponse> responses(4);
  const std::string tokens[] = {"a", "\xc3", "\xa9"};
  for (int i = 0; i < 3; ++i) {
    v1::PromptToken& token = *responses[i < 2 ? 0 : 1].add_prompt_tokens();
    token.set_token_id(static_cast<uint32_t>(i));
    token.set_token(tokens[i]);
  }
  for (int i = 1; i < 3; ++i) {
    v1::TokenLogprob& score = *responses[i].add_prompt_logprobs();
    score.set_token(tokens[i]);
    score.set_logprob(static_cast<float>(-i));
  }
  responses[3] = Text(0, "z", v1::FINISH_REASON_LENGTH);
  AddLogprob(responses[3], "z", -7);
  return responses;
}

TEST(CompletionsAnswerTest, AnEchoWithLogprobsBeginsWithNull) {
  for (const std::string& text : {std::string(), std::string("aé")}) {
    CompletionsAnswer answer(
        {.endpoint = Endpoint::kCompletions, .logprobs = true, .echo = true, .echo_texts = {text}},
        "id", "m", 5);
    for (const auto& response : EchoedResponses()) answer.Add(0, response, nullptr);
    const Json choice = Json::parse(BodyOf(answer))["choices"][0];
    EXPECT_EQ(choice["text"], "aéz");
    EXPECT_EQ(choice["logprobs"]["tokens"],
              Json::parse(R"(["a","bytes:\\xc3","bytes:\\xa9","z"])"));
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::parse("[null,-1.0,-2.0,-7.0]"));
    EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0,1,2,2]"));
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], nullptr);
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], Json::parse(R"({"bytes:\\xc3":-1.0})"));
  }
}

TEST(CompletionsAnswerTest, AStreamedEchoGivesWhatTheBodyGives) {
  CompletionsAnswer answer({.endpoint = Endpoint::kCompletions,
                            .stream = true,
                            .logprobs = true,
                            .echo = true,
                            .echo_texts = {""}},
                           "id", "m", 5);
  std::string stream, text;
  for (const auto& response : EchoedResponses()) answer.Add(0, response, &stream);
  Json logprobs = Json::array(), offsets = Json::array();
  for (const Json& event : Events(stream)) {
    const Json& choice = event["choices"][0];
    text += choice["text"];
    if (choice["logprobs"].is_null()) continue;
    for (const Json& value : choice["logprobs"]["token_logprobs"]) logprobs.push_back(value);
    for (const Json& value : choice["logprobs"]["text_offset"]) offsets.push_back(value);
  }
  EXPECT_EQ(text, "aéz");
  EXPECT_EQ(logprobs, Json::parse("[null,-1.0,-2.0,-7.0]"));
  EXPECT_EQ(offsets, Json::parse("[0,1,2,2]"));
}

TEST(CompletionsAnswerTest, ChatLogprobsHaveTheBytesOfHalfACharacter) {
  for (const bool stream : {false, true}) {
    CompletionsAnswer answer({.stream = stream, .logprobs = true}, "id", "m", 5);
    v1::GenerateResponse response = Text(0, "");
    AddLogprob(response, "\xe2\x82", -0.5f);
    std::string events;
    answer.Add(0, response, &events);
    const Json choice =
        stream ? Events(events).back()["choices"][0] : Json::parse(BodyOf(answer))["choices"][0];
    const Json& entry = choice["logprobs"]["content"][0];
    EXPECT_EQ(entry["token"], "\xef\xbf\xbd\xef\xbf\xbd");
    EXPECT_EQ(entry["logprob"], -0.5);
    EXPECT_EQ(entry["bytes"], Json::parse("[226,130]"));
    EXPECT_EQ(entry["top_logprobs"][0]["bytes"], Json::parse("[226,130]"));
  }
}

// As AddLogprob, for a special token.
void AddSpecial(v1::GenerateResponse& response, const std::string& name, float logprob) {
  AddLogprob(response, "", logprob);
  v1::TokenLogprob& entry = *response.mutable_deltas(0)->mutable_logprobs()->rbegin();
  entry.set_special_token(name);
  entry.mutable_alternatives(0)->set_special_token(name);
}

TEST(CompletionsAnswerTest, SpecialTokensAreToldByTheirNames) {
  for (const bool stream : {false, true}) {
    CompletionsAnswer chat({.stream = stream, .logprobs = true}, "id", "m", 5);
    v1::GenerateResponse response = Text(0, "a", v1::FINISH_REASON_STOP);
    AddLogprob(response, "a", -1);
    AddSpecial(response,
               "<\xe2\x96\x81"
               "e>",
               -2);
    std::string events;
    chat.Add(0, response, stream ? &events : nullptr);
    Json content;
    if (stream) {
      for (const Json& event : Events(events)) {
        const Json& logprobs = event["choices"][0]["logprobs"];
        if (logprobs.is_null()) continue;
        for (const Json& entry : logprobs["content"]) content.push_back(entry);
      }
    } else {
      content = Json::parse(BodyOf(chat))["choices"][0]["logprobs"]["content"];
    }
    ASSERT_EQ(content.size(), 2u);
    EXPECT_EQ(content[1]["token"],
              "<\xe2\x96\x81"
              "e>");
    EXPECT_EQ(content[1]["bytes"], Json::parse("[60,226,150,129,101,62]"));
    EXPECT_EQ(content[1]["top_logprobs"][0]["token"], content[1]["token"]);
    EXPECT_EQ(content[1]["top_logprobs"][0]["bytes"], content[1]["bytes"]);
  }
  // They have no part in the text.
  CompletionsAnswer answer(
      {.endpoint = Endpoint::kCompletions, .logprobs = true, .echo = true, .echo_texts = {""}},
      "id", "m", 5);
  v1::GenerateResponse prompt = Accepted();
  prompt.add_prompt_tokens()->set_special_token("<s>");
  prompt.add_prompt_tokens()->set_token("x");
  v1::TokenLogprob& score = *prompt.add_prompt_logprobs();
  score.set_token("x");
  score.set_logprob(-0.5f);
  answer.Add(0, prompt, nullptr);
  v1::GenerateResponse response = Text(0, "ab", v1::FINISH_REASON_STOP);
  AddLogprob(response, "a", -1);
  AddSpecial(response, "<e>", -2);
  AddLogprob(response, "b", -3);
  answer.Add(0, response, nullptr);
  const Json choice = Json::parse(BodyOf(answer))["choices"][0];
  EXPECT_EQ(choice["text"], "xab");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["<s>","x","a","<e>","b"])"));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0,0,1,2,2]"));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][3], Json::parse(R"({"<e>":-2.0})"));
}

TEST(CompletionsAnswerTest, CompletionLogprobsCountCharacters) {
  CompletionsAnswer answer({.endpoint = Endpoint::kCompletions, .logprobs = true}, "id", "m", 5);
  v1::GenerateResponse first = Text(0, "");
  AddLogprob(first, "ab", -1);
  AddLogprob(first, "\xe2\x82", -2);
  v1::GenerateResponse second = Text(0, "");
  AddLogprob(second, "\xac", -3);
  AddLogprob(second, "c", -4);
  second.mutable_deltas(0)->mutable_logprobs(1)->mutable_alternatives(0)->set_token("d");
  answer.Add(0, first, nullptr);
  answer.Add(0, second, nullptr);
  const Json logprobs = Json::parse(BodyOf(answer))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs, Json::parse(R"({
      "tokens":["ab","bytes:\\xe2\\x82","bytes:\\xac","c"],
      "token_logprobs":[-1.0,-2.0,-3.0,-4.0],
      "top_logprobs":[{"ab":-1.0},{"bytes:\\xe2\\x82":-2.0},{"bytes:\\xac":-3.0},{"d":-4.0,"c":-4.0}],
      "text_offset":[0,2,3,3]})"));
}

TEST(CompletionsAnswerTest, WhatIsKeptIsCountedAsWhatItTakes) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    CompletionsAnswer answer({.endpoint = endpoint, .logprobs = true, .num_sequences = 2}, "id",
                             "m", 5);
    size_t last = answer.num_bytes();
    for (int i = 0; i < 100; ++i) {
      v1::GenerateResponse response = Text(i % 2, "\x01 and more");
      AddLogprob(response, "token", -0.123f);
      for (int j = 0; j < 19; ++j) {
        *response.mutable_deltas(0)->mutable_logprobs(0)->add_alternatives() =
            response.deltas(0).logprobs(0).alternatives(0);
        response.mutable_deltas(0)->mutable_logprobs(0)->mutable_alternatives(j)->set_token(
            std::string(1 + j, 'a'));
      }
      answer.Add(0, response, nullptr);
      EXPECT_GE(answer.num_bytes(), last);
      last = answer.num_bytes();
    }
    const size_t size = BodyOf(answer).size();
    EXPECT_GT(size, 100 * 20 * 20u);
    EXPECT_GE(answer.num_bytes() + 1000, size);
    EXPECT_LE(answer.num_bytes(), 2 * size + 1000);
  }
}

TEST(CompletionsAnswerTest, ThoughtsAreApartFromTheAnswer) {
  v1::GenerateResponse response = Text(0, "42", v1::FINISH_REASON_STOP);
  response.mutable_deltas(0)->set_reasoning("6 x 7");
  CompletionsAnswer answer({}, "id", "m", 5);
  answer.Add(0, response, nullptr);
  const Json message = Json::parse(BodyOf(answer))["choices"][0]["message"];
  EXPECT_EQ(message["content"], "42");
  EXPECT_EQ(message["reasoning_content"], "6 x 7");
  EXPECT_EQ(message["reasoning"], "6 x 7");
}

TEST(CompletionsAnswerTest, TextThatLooksLikeAnEventStaysText) {
  CompletionsAnswer answer({.stream = true}, "id", "m", 5);
  std::string stream;
  answer.Add(0, Text(0, "\n\ndata: [DONE]\n\n\"\x01"), &stream);
  const std::vector<Json> events = Events(stream);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "\n\ndata: [DONE]\n\n\"\x01");
}

v1::GenerateResponse Prompt(std::initializer_list<uint32_t> ids) {
  v1::GenerateResponse response;
  for (const uint32_t id : ids) response.add_prompt_tokens()->set_token_id(id);
  return response;
}

TEST(CompletionsAnswerTest, IdsOfPromptAndChoicesAreToldWhereAskedFor) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    const bool chat = endpoint == Endpoint::kChat;
    CompletionsAnswer answer({.endpoint = endpoint, .token_ids = true, .num_sequences = 2}, "i",
                             "m", 0);
    for (const auto& response :
         {Accepted(), Prompt({5, 6}), Prompt({7}), Text(0, "a"), Text(1, "b"),
          Text(0, "c", v1::FINISH_REASON_STOP), Summary(3, 0, 3)}) {
      answer.Add(0, response, nullptr);
    }
    const Json body = Json::parse(absl::StrJoin(answer.TakeBody(), ""));
    EXPECT_EQ(body["choices"][0]["token_ids"], Json({1, 1}));
    EXPECT_EQ(body["choices"][1]["token_ids"], Json({1}));
    EXPECT_EQ((chat ? body : body["choices"][1])["prompt_token_ids"], Json({5, 6, 7}));
    EXPECT_EQ(body.contains("prompt_token_ids"), chat);
  }
}

TEST(CompletionsAnswerTest, IdsOfAStreamAreInItsEventsAndThePromptsInTheFirst) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    const bool chat = endpoint == Endpoint::kChat;
    CompletionsAnswer answer({.endpoint = endpoint, .stream = true, .token_ids = true}, "i", "m",
                             0);
    std::string stream;
    // The text of the second token is held back.
    for (const auto& response : {Accepted(), Prompt({5, 6}), Text(0, "a"), Text(0, ""),
                                 Text(0, "b"), Text(0, "", v1::FINISH_REASON_LENGTH)}) {
      answer.Add(0, response, &stream);
    }
    answer.AddEnd(&stream);
    std::vector<Json> events = Events(stream);
    EXPECT_EQ((chat ? events[0] : events[0]["choices"][0])["prompt_token_ids"], Json({5, 6}));
    Json ids = Json::array();
    events.pop_back();
    for (size_t i = 0; i < events.size(); ++i) {
      const Json& choice = events[i]["choices"][0];
      EXPECT_EQ(events[i].contains("prompt_token_ids"), chat && i == 0);
      EXPECT_EQ(choice.contains("prompt_token_ids"), !chat && i == 0);
      if (!choice.contains("token_ids")) continue;
      for (const Json& id : choice["token_ids"]) ids.push_back(id);
    }
    EXPECT_EQ(ids, Json({1, 1, 1, 1}));
  }
}

TEST(CompletionsAnswerTest, ContinuousUsageIsThatOfTheIdsSoFar) {
  for (const bool include_usage : {false, true}) {
    CompletionsAnswer answer(
        {.stream = true, .include_usage = include_usage, .continuous_usage = true}, "i", "m", 0);
    std::string stream;
    for (const auto& response : {Accepted(), Prompt({5, 6}), Text(0, "a"), Text(0, "b"),
                                 Text(0, "c", v1::FINISH_REASON_LENGTH), Summary(2, 0, 3)}) {
      answer.Add(0, response, &stream);
    }
    answer.AddEnd(&stream);
    std::vector<Json> events = Events(stream);
    events.pop_back();
    int last = 0;
    for (const Json& event : events) {
      EXPECT_EQ(event["usage"]["prompt_tokens"], 2);
      EXPECT_GE(event["usage"]["completion_tokens"], last);
      last = event["usage"]["completion_tokens"];
      EXPECT_EQ(event["usage"]["total_tokens"], 2 + last);
    }
    EXPECT_EQ(last, 3);
    EXPECT_EQ(events.back()["choices"].empty(), include_usage);
  }
}

TEST(CompletionsAnswerTest, PromptLogprobsAreByIdAsInVllm) {
  v1::GenerateResponse scores = Accepted();
  for (const uint32_t id : {7u, 8u}) {
    v1::TokenLogprob& entry = *scores.add_prompt_logprobs();
    entry.set_token_id(id);
    entry.set_logprob(-1.5f);
    if (id == 7) entry.set_token("t");
    if (id == 8) entry.set_special_token("<t>");
    for (const uint32_t other : {9u, 8u}) {
      v1::TokenLogprob::Alternative& alternative = *entry.add_alternatives();
      alternative.set_token_id(other);
      alternative.set_logprob(other == 8 ? -1.5f : -0.5f);
      if (other == 8) {
        alternative.set_special_token("<t>");
      } else {
        alternative.set_token("\"");
      }
    }
  }
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    CompletionsAnswer answer({.endpoint = endpoint, .prompt_logprobs = true}, "i", "m", 0);
    answer.Add(0, scores, nullptr);
    answer.Add(0, Text(0, "a", v1::FINISH_REASON_STOP), nullptr);
    const Json body = Json::parse(absl::StrJoin(answer.TakeBody(), ""));
    EXPECT_EQ((endpoint == Endpoint::kChat ? body : body["choices"][0])["prompt_logprobs"],
              Json::parse(R"([null,
                  {"7":{"logprob":-1.5,"rank":null,"decoded_token":"t"},
                   "9":{"logprob":-0.5,"rank":1,"decoded_token":"\""},
                   "8":{"logprob":-1.5,"rank":2,"decoded_token":"<t>"}},
                  {"8":{"logprob":-1.5,"rank":2,"decoded_token":"<t>"},
                   "9":{"logprob":-0.5,"rank":1,"decoded_token":"\""}}])"));
  }
}

}  // namespace
}  // namespace continuo::gateway::openai
