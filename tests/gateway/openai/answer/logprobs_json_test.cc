// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/answer/logprobs_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/openai/answer/completions_answer.h"

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

v1::TokenLogprob Score(const std::string& token, const std::string& special_token = "") {
  v1::TokenLogprob score;
  score.set_token(token);
  score.set_special_token(special_token);
  score.set_logprob(-1);
  return score;
}

v1::PromptToken Special(const std::string& name) {
  v1::PromptToken token;
  token.set_special_token(name);
  return token;
}

TEST(CompletionLogprobsTest, SpecialTokensThatAPromptWritesCountInOffsets) {
  CompletionLogprobs logprobs("<s>\xc3\xa9<e>b");
  logprobs.AddFirst(Special("<b>"));  // which the tokenizer adds
  logprobs.Add(Score("", "<s>"));
  logprobs.Add(Score("\xc3"));
  logprobs.Add(Score("\xa9"));
  EXPECT_EQ(Json::parse(logprobs.Take())["text_offset"], Json::parse("[0,0,3,4]"));
  logprobs.Add(Score("", "<e>"));
  logprobs.Add(Score("b"));
  // The answer may write one as well; its text leaves it out.
  logprobs.Add(Score("", "<e>"));
  logprobs.Add(Score("c"));
  const Json json = Json::parse(logprobs.Take());
  EXPECT_EQ(json["tokens"], Json::parse(R"(["<e>","b","<e>","c"])"));
  EXPECT_EQ(json["text_offset"], Json::parse("[4,7,8,8]"));
}

TEST(CompletionLogprobsTest, ASpaceThatTheTokenizerPutInFrontDoesNotCount) {
  CompletionLogprobs logprobs("Once up</s>b<s> c");
  logprobs.AddFirst(Special("<s>"));
  for (const char* token : {" Once", " up"}) logprobs.Add(Score(token));
  logprobs.Add(Score("", "</s>"));
  logprobs.Add(Score(" b"));
  logprobs.Add(Score("", "<s>"));
  logprobs.Add(Score(" c"));
  logprobs.Add(Score(" d"));  // of the answer
  logprobs.Add(Score("e"));
  EXPECT_EQ(Json::parse(logprobs.Take())["text_offset"], Json::parse("[0,0,4,7,11,12,15,17,19]"));
}

TEST(CompletionLogprobsTest, WithoutARepeatedTextSpecialTokensHaveNoPartInIt) {
  CompletionLogprobs logprobs("");
  logprobs.AddFirst(Special("<s>"));
  logprobs.Add(Score("a"));
  logprobs.Add(Score("", "<e>"));
  logprobs.Add(Score("b"));
  EXPECT_EQ(Json::parse(logprobs.Take())["text_offset"], Json::parse("[0,0,1,1]"));
  EXPECT_EQ(logprobs.Take(), "null");
}

// Returns what a stream's events tell of choice 0: its text, its tokens, and its finish reason, or
// what of these an event has.
std::vector<Json> Told(const std::vector<v1::Delta>& deltas, Endpoint endpoint) {
  CompletionsAnswer answer(
      {.endpoint = endpoint, .stream = true, .token_ids = true, .logprobs = true}, "id", "m", 5);
  std::string stream;
  v1::GenerateResponse response;
  for (const v1::Delta& delta : deltas) *response.add_deltas() = delta;
  answer.Add(0, response, &stream);
  std::vector<Json> told;
  for (std::string_view rest = stream; !rest.empty();) {
    const size_t end = rest.find("\n\n");
    const Json choice = Json::parse(rest.substr(6, end - 6))["choices"][0];
    rest.remove_prefix(end + 2);
    Json tokens = Json::array();
    const Json& logprobs = choice["logprobs"];
    if (endpoint == Endpoint::kChat && !logprobs.is_null()) {
      for (const Json& entry : logprobs["content"]) tokens.push_back(entry["token"]);
    } else if (!logprobs.is_null()) {
      tokens = logprobs["tokens"];
    }
    const std::string text = endpoint == Endpoint::kChat ? choice["delta"].value("content", "")
                                                         : choice.value("text", "");
    if (text.empty() && tokens.empty() && choice["finish_reason"].is_null()) continue;
    told.push_back({text, tokens, choice["token_ids"], choice["finish_reason"]});
  }
  return told;
}

TEST(LogprobsJsonTest, TokensWithoutTextAtTheEndHaveAnEventOfTheirOwn) {
  v1::Delta delta;
  delta.set_text("ab");
  delta.set_finish_reason(v1::FINISH_REASON_STOP);
  for (const int id : {5, 6, 7, 8}) delta.add_token_ids(id);
  *delta.add_logprobs() = Score("a");
  *delta.add_logprobs() = Score("", "<think>");
  *delta.add_logprobs() = Score("b");
  *delta.add_logprobs() = Score("", "<e>");
  const Json end = Json::array({"", Json::array(), Json::array(), "stop"});
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    EXPECT_EQ(Told({delta}, endpoint),
              (std::vector<Json>{{"ab", {"a", "<think>", "b"}, {5, 6, 7}, nullptr},
                                 {"", Json::array({"<e>"}), Json::array({8}), nullptr},
                                 end}));
    // One that is alone, and one after a text that was held back.
    v1::Delta alone = delta;
    alone.mutable_logprobs()->DeleteSubrange(0, 3);
    EXPECT_EQ(Told({alone}, endpoint),
              (std::vector<Json>{{"ab", Json::array({"<e>"}), {5, 6, 7, 8}, nullptr}, end}));
    alone.clear_text();
    EXPECT_EQ(Told({alone}, endpoint),
              (std::vector<Json>{{"", Json::array({"<e>"}), {5, 6, 7, 8}, nullptr}, end}));
  }
}

}  // namespace
}  // namespace continuo::gateway::openai
