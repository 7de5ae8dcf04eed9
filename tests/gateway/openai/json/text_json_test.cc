// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/text_json.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;

TEST(TextJsonTest, PromptsAreRead) {
  const auto text = ParseTokenize(R"({"model":"m","prompt":"a b"})");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->model(), "m");
  EXPECT_EQ(text->text(), "a b");
  EXPECT_FALSE(text->omit_special_tokens());
  EXPECT_FALSE(text->return_tokens());
  const auto plain = ParseTokenize(
      R"({"prompt":"","add_special_tokens":false,"return_token_strs":true,"user":"u"})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(plain->has_text());
  EXPECT_TRUE(plain->omit_special_tokens());
  EXPECT_TRUE(plain->return_tokens());
}

TEST(TextJsonTest, MessagesAreReadAsThoseOfAChat) {
  const std::vector<std::string> bodies = {
      R"({"messages":[{"role":"user","content":"Hi"}]})",
      R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"}]}],"tools":[]})",
      R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false})",
      R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true,
          "chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low"})",
      R"({"messages":[{"role":"assistant","content":"H"}],"continue_final_message":true,
          "add_generation_prompt":false})",
      R"({"messages":[{"role":"assistant","content":"H","prefix":true}],"documents":[{"a":1}]})",
      R"({"messages":[{"role":"user","content":"Hi"}],"chat_template":"{{ messages }}"})"};
  for (const std::string& body : bodies) {
    const auto tokenize = ParseTokenize(body);
    ASSERT_TRUE(tokenize.ok()) << tokenize.status();
    const auto chat = ParseCall(Endpoint::kChat, body);
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_TRUE(
        MessageDifferencer::Equals(tokenize->conversation(), chat->requests[0].conversation()))
        << body;
  }
  EXPECT_TRUE(ParseTokenize(R"({"messages":[{"role":"user","content":"Hi"}],
                                "add_special_tokens":false})")
                  .ok());
}

TEST(TextJsonTest, TokensAreRead) {
  const auto ids = ParseDetokenize(R"({"model":"m","tokens":[1,2.0,4294967295]})");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->model(), "m");
  EXPECT_THAT(ids->token_ids(), ElementsAre(1, 2, 4294967295u));
  EXPECT_TRUE(ids->keep_special_tokens());
  EXPECT_EQ(ParseDetokenize(R"({"tokens":[]})")->token_ids_size(), 0);
}

TEST(TextJsonTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> tokenize = {
      {"{}", "prompt"},
      {R"({"prompt":null})", "prompt"},
      {R"({"prompt":7})", "prompt"},
      {R"({"prompt":["a"]})", "prompt"},
      {R"({"prompt":"a","model":1})", "model"},
      {R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens"},
      {R"({"prompt":"a","return_token_strs":"yes"})", "return_token_strs"},
      {R"({"prompt":"a","add_generation_prompt":true})", "add_generation_prompt"},
      {R"({"prompt":"a","continue_final_message":false})", "continue_final_message"},
      {R"({"prompt":"a","chat_template_kwargs":{}})", "chat_template_kwargs"},
      {R"({"prompt":"a","truncate":true})", "truncate"},
      {R"({"prompt":"a","temperature":1})", "temperature"},
      {R"({"prompt":"a","tokens":[1]})", "tokens"},
      {R"({"content":"a"})", "content"},
      {R"({"messages":7})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":"a"}],"prompt":"a"})", "prompt"},
      {R"({"messages":[{"role":"user","content":"a"}],"add_special_tokens":true})",
       "add_special_tokens"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]})",
       "chat_template_kwargs"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})", "tools[0].function"}};
  for (const auto& [body, member] : tokenize) {
    const auto parsed = ParseTokenize(body);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << body;
    EXPECT_EQ(protocol::FieldOf(parsed.status()), member) << body;
  }
  const std::vector<std::pair<std::string, std::string>> detokenize = {
      {"{}", "tokens"},
      {R"({"tokens":7})", "tokens"},
      {R"({"tokens":"1"})", "tokens"},
      {R"({"tokens":["1"]})", "tokens[0]"},
      {R"({"tokens":[1,-1]})", "tokens[1]"},
      {R"({"tokens":[1,0.5]})", "tokens[1]"},
      {R"({"tokens":[[1]]})", "tokens[0]"},
      {R"({"tokens":[4294967296]})", "tokens[0]"},
      {R"({"tokens":[1],"prompt":"a"})", "prompt"},
      {R"({"tokens":[1],"skip_special_tokens":false})", "skip_special_tokens"},
      {R"({"tokens":[1],"what":true})", "what"}};
  for (const auto& [body, member] : detokenize) {
    const auto parsed = ParseDetokenize(body);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << body;
    EXPECT_EQ(protocol::FieldOf(parsed.status()), member) << body;
  }
  for (const char* const body : {"", "{", "[]", "7", "{\"prompt\":\"\xff\"}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTokenize(body).status())) << body;
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDetokenize(body).status())) << body;
  }
  std::string many = R"({"tokens":[1)";
  for (int i = 0; i < 1 << 20; ++i) many += ",1";
  EXPECT_TRUE(absl::IsInvalidArgument(ParseDetokenize(many + "]}").status()));
}

TEST(TextJsonTest, FieldsHaveTheMembersNames) {
  const ParamNames tokenize(Endpoint::kTokenize), detokenize(Endpoint::kDetokenize);
  EXPECT_EQ(ParamOf(tokenize, "text"), "prompt");
  EXPECT_EQ(ParamOf(tokenize, "model"), "model");
  EXPECT_EQ(ParamOf(tokenize, "conversation"), "messages");
  EXPECT_EQ(ParamOf(tokenize, "conversation.messages[2].content"), "messages[2].content");
  EXPECT_EQ(ParamOf(tokenize, "conversation.template_arguments"), "chat_template_kwargs");
  EXPECT_EQ(ParamOf(detokenize, "token_ids"), "tokens");
  EXPECT_EQ(ParamOf(detokenize, "token_ids[7]"), "tokens[7]");
}

TEST(TextJsonTest, AnswersHaveVllmsForm) {
  v1::TokenizeResponse tokens;
  tokens.set_max_context_tokens(40960);
  EXPECT_EQ(TokenizeJson(tokens, /*has_token_strs=*/false),
            R"({"count":0,"max_model_len":40960,"tokens":[],"token_strs":null})");
  EXPECT_EQ(TokenizeJson(tokens, /*has_token_strs=*/true),
            R"({"count":0,"max_model_len":40960,"tokens":[],"token_strs":[]})");
  for (const uint32_t id : {7u, 4294967295u}) tokens.add_token_ids(id);
  for (const char* const name : {"\xc4\xa0\"world\"", "</s>"}) tokens.add_tokens(name);
  EXPECT_EQ(TokenizeJson(tokens, /*has_token_strs=*/true),
            "{\"count\":2,\"max_model_len\":40960,\"tokens\":[7,4294967295],"
            "\"token_strs\":[\"\xc4\xa0\\\"world\\\"\",\"</s>\"]}");
  v1::DetokenizeResponse text;
  text.set_text("a\n\"b\"");
  EXPECT_EQ(DetokenizeJson(text), R"({"prompt":"a\n\"b\""})");
}

}  // namespace
}  // namespace continuo::gateway::openai
