// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/request_json.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr char kHello[] = R"("messages":[{"role":"user","content":"Hello"}])";

ParsedCall Chat(const std::string& more = "") {
  auto call = ParseCall(Endpoint::kChat, absl::StrCat("{", kHello, more, "}"));
  EXPECT_TRUE(call.ok()) << call.status();
  return call.ok() ? *call : ParsedCall{.requests = {{}}};
}
ParsedCall Completions(const std::string& members) {
  auto call = ParseCall(Endpoint::kCompletions, absl::StrCat("{", members, "}"));
  EXPECT_TRUE(call.ok()) << call.status();
  return call.ok() ? *call : ParsedCall{.requests = {{}}};
}
// The field that the error names.
std::string RejectedBy(Endpoint endpoint, const std::string& body) {
  const auto call = ParseCall(endpoint, body);
  EXPECT_TRUE(absl::IsInvalidArgument(call.status()))
      << call.status() << " of " << body.substr(0, 1000);
  return protocol::FieldOf(call.status());
}
std::string RejectedChat(const std::string& more) {
  return RejectedBy(Endpoint::kChat, absl::StrCat("{", kHello, more, "}"));
}

TEST(RequestJsonTest, AChatBecomesAConversation) {
  const ParsedCall call = Chat(R"(,"model":"m","user":"u")");
  ASSERT_THAT(call.requests, SizeIs(1));
  EXPECT_EQ(call.requests[0].model(), "m");
  ASSERT_EQ(call.requests[0].conversation().messages_size(), 1);
  EXPECT_EQ(call.requests[0].conversation().messages(0).role(), "user");
  EXPECT_EQ(call.requests[0].conversation().messages(0).content(), "Hello");
  EXPECT_FALSE(call.form.stream);
  EXPECT_FALSE(call.requests[0].stopping().has_max_tokens());
  EXPECT_FALSE(call.requests[0].sampling().has_temperature());
  EXPECT_FALSE(call.requests[0].output().has_logprobs());
}

TEST(RequestJsonTest, WhatEveryPromptRepeatsIsBounded) {
  std::string prompts = R"("prompt":["a")";
  for (int i = 1; i < kMaxChoices; ++i) prompts += R"(,"a")";
  prompts += "],";
  EXPECT_EQ(RejectedBy(Endpoint::kCompletions, absl::StrCat("{", prompts, R"("stop":[")",
                                                            std::string(1 << 20, 's'), R"("]})")),
            "prompt");
  EXPECT_THAT(Completions(absl::StrCat(prompts, R"("stop":[")", std::string(1 << 10, 's'), R"("])"))
                  .requests,
              SizeIs(kMaxChoices));
}

TEST(RequestJsonTest, EverySamplingMemberHasItsField) {
  const v1::GenerateRequest request =
      Chat(R"(,"temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"seed":-2,"n":3,
              "repetition_penalty":1.5,"presence_penalty":-1,"frequency_penalty":2,
              "logit_bias":{"5":-100,"70000":1.5},"max_completion_tokens":9,"min_tokens":2,
              "stop":["a","b"],"ignore_eos":true,"logprobs":true,"top_logprobs":4)")
          .requests[0];
  const v1::Sampling& s = request.sampling();
  EXPECT_EQ(s.temperature(), 0.5f);
  EXPECT_EQ(s.top_p(), 0.25f);
  EXPECT_EQ(s.top_k(), 7);
  EXPECT_EQ(s.min_p(), 0.125f);
  EXPECT_EQ(s.seed(), ~uint64_t{1});
  EXPECT_EQ(s.num_sequences(), 3);
  EXPECT_EQ(s.repetition_penalty(), 1.5f);
  EXPECT_EQ(s.presence_penalty(), -1.0f);
  EXPECT_EQ(s.frequency_penalty(), 2.0f);
  EXPECT_THAT(s.logit_bias(), UnorderedElementsAre(Pair(5, -100.0f), Pair(70000, 1.5f)));
  EXPECT_EQ(request.stopping().max_tokens(), 9);
  EXPECT_EQ(request.stopping().min_tokens(), 2);
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_THAT(request.stopping().strings(), ElementsAre("a", "b"));
  EXPECT_EQ(request.output().logprobs(), 4);
}

TEST(RequestJsonTest, NullIsAbsentAndLabelsAreLeftAlone) {
  const ParsedCall plain = Chat();
  const ParsedCall call =
      Chat(R"(,"temperature":null,"stop":null,"n":null,"stream":null,"tools":null,
              "response_format":null,"logit_bias":null,"seed":null,"stream_options":null,
              "reasoning_effort":null,"what":null,"store":true,"metadata":{"a":"b"})");
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equals(call.requests[0], plain.requests[0]));
}

TEST(RequestJsonTest, TheNewerNameOfTheLimitWins) {
  // -1 is what the context leaves.
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const std::string unlimited = absl::StrCat(R"(,")", name, R"(":-1)");
    EXPECT_FALSE(Chat(unlimited).requests[0].stopping().has_max_tokens());
    EXPECT_FALSE(
        Completions(R"("prompt":"a")" + unlimited).requests[0].stopping().has_max_tokens());
  }
  EXPECT_EQ(Chat(R"(,"max_tokens":5)").requests[0].stopping().max_tokens(), 5);
  EXPECT_EQ(
      Chat(R"(,"max_tokens":5,"max_completion_tokens":6)").requests[0].stopping().max_tokens(), 6);
}

TEST(RequestJsonTest, ASeedOfMinusOneIsNone) {
  for (const char* seed : {"-1", "-1.0", "-1e0", "null"}) {
    EXPECT_FALSE(Chat(absl::StrCat(R"(,"seed":)", seed)).requests[0].sampling().has_seed()) << seed;
  }
  for (const char* seed : {"0", "-0.0", "1", "-2", "18446744073709551615"}) {
    EXPECT_TRUE(Chat(absl::StrCat(R"(,"seed":)", seed)).requests[0].sampling().has_seed()) << seed;
  }
}

TEST(RequestJsonTest, TextPartsStayParts) {
  const auto call = ParseCall(Endpoint::kChat, R"({"messages":[
      {"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null},{"role":"tool","tool_call_id":"7","content":"c"}]})");
  ASSERT_TRUE(call.ok()) << call.status();
  const v1::Conversation& conversation = call->requests[0].conversation();
  EXPECT_EQ(conversation.messages(0).role(), "system");
  EXPECT_EQ(conversation.messages(0).content(), "");
  EXPECT_THAT(conversation.messages(0).content_parts(), ElementsAre("a", "b"));
  EXPECT_EQ(conversation.messages(1).content_parts_size(), 0);
  EXPECT_EQ(conversation.messages(1).content(), "");
  EXPECT_EQ(conversation.messages(2).tool_call_id(), "7");
}

TEST(RequestJsonTest, BadMessagesAreNamed) {
  const auto rejected = [](const std::string& messages) {
    return RejectedBy(Endpoint::kChat, absl::StrCat(R"({"messages":)", messages, "}"));
  };
  EXPECT_EQ(rejected("null"), "messages");
  EXPECT_EQ(rejected("[]"), "messages");
  EXPECT_EQ(rejected("{}"), "messages");
  EXPECT_EQ(rejected("[3]"), "messages[0]");
  EXPECT_EQ(rejected(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(rejected(R"([{"role":1,"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(rejected(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(rejected(R"([{"role":"user","content":1}])"), "messages[0].content");
  EXPECT_EQ(rejected(R"([{"role":"user","content":[1]}])"), "messages[0].content[0]");
  // A member of a part of another type would be left out without a word.
  EXPECT_EQ(rejected(R"([{"role":"user","content":[{"type":"text","text":"a","refusal":"b"}]}])"),
            "messages[0].content[0].refusal");
  EXPECT_EQ(rejected(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(rejected(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(rejected(R"([{"role":"assistant","content":"","tool_calls":[{}]}])"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(rejected(R"([{"role":"assistant","content":"","function_call":{"name":"f"}}])"),
            "messages[0].function_call");
  EXPECT_EQ(rejected(R"([{"role":"user","content":"x","images":["y"]}])"), "messages[0].images");
  EXPECT_EQ(rejected(R"([{"role":"user","content":[{"type":"text","text":"x","y":1}]}])"),
            "messages[0].content[0].y");
  EXPECT_EQ(rejected(R"([{"role":"assistant","content":"x","prefix":true},
                         {"role":"assistant","content":"y"}])"),
            "messages[0].prefix");
  EXPECT_EQ(rejected(R"([{"role":"user","content":"x","prefix":true}])"), "messages[0].prefix");
  EXPECT_EQ(rejected(R"([{"role":"assistant","content":"x","prefix":1}])"), "messages[0].prefix");
  EXPECT_EQ(rejected(R"([{"role":"assistant","content":"x","reasoning":1}])"),
            "messages[0].reasoning");
  EXPECT_EQ(rejected(R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])"),
            "messages[0].audio");
}

TEST(RequestJsonTest, AWrongTypeIsRejectedByName) {
  const std::pair<const char*, const char*> members[] = {
      {"model", "1"},
      {"temperature", "\"1\""},
      {"top_p", "[]"},
      {"top_k", "1.5"},
      {"top_k", "-2"},
      {"min_p", "{}"},
      {"seed", "1.5"},
      {"seed", "\"1\""},
      {"seed", "18446744073709551616"},
      {"seed", "-9223372036854775809"},
      {"seed", "1e300"},
      {"n", "0"},
      {"n", "129"},
      {"n", "1e3"},
      {"n", "1e300"},
      {"stop", "1"},
      {"stop[0]", "[1]"},
      {"max_tokens", "-2"},
      {"max_tokens", "\"5\""},
      {"max_tokens", "18446744073709551615"},
      {"logprobs", "2"},
      {"top_logprobs", "21"},
      {"logit_bias", "[]"},
      {"logit_bias", "{\"a\":1}"},
      {"logit_bias", "{\"5\":1,\"05\":2}"},
      {"logit_bias", "{\" 5\":1}"},
      {"logit_bias", "{\"+5\":1}"},
      {"logit_bias.1", "{\"1\":\"2\"}"},
      {"stop_token_ids[1]", "[1,-1]"},
      {"stop_token_ids", "5"},
      {"reasoning_effort", "{}"},
      {"documents", "{}"},
      {"cache_salt", "5"},
      {"cache_prompt", "\"no\""},
      {"priority", "101"},
      {"priority", "0.5"},
      {"allowed_token_ids", "[]"},
      {"allowed_token_ids[0]", "[-1]"},
      {"bad_words", "\"x\""},
      {"bad_words[1]", "[\"x\",1]"},
      {"truncate_prompt_tokens", "0"},
      {"truncate_prompt_tokens", "-2"},
      {"truncation_side", "\"middle\""},
      {"add_generation_prompt", "1"},
      {"chat_template", "1"},
      {"prompt_logprobs", "21"},
      {"prompt_logprobs", "-1"},
      {"return_token_ids", "1"},
      {"stream", "1"},
      {"stream", "\"yes\""},
      {"ignore_eos", "0"},
      {"presence_penalty", "true"},
      {"chat_template_kwargs", "[]"},
  };
  for (const auto& [name, value] : members) {
    const std::string member(name, std::strcspn(name, ".["));
    EXPECT_EQ(RejectedChat(absl::StrCat(",\"", member, "\":", value)), name) << value;
  }
}

TEST(RequestJsonTest, WhatIsNotSupportedIsRejectedByName) {
  EXPECT_EQ(RejectedChat(R"(,"functions":[{}])"), "functions");
  EXPECT_EQ(RejectedChat(R"(,"modalities":["audio"])"), "modalities");
  EXPECT_EQ(RejectedChat(R"(,"top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(RejectedChat(R"(,"stream_options":{"include_usage":true})"),
            "stream_options.include_usage");
  EXPECT_EQ(RejectedBy(Endpoint::kChat, R"({"prompt":"x"})"), "prompt");
  EXPECT_EQ(RejectedBy(Endpoint::kCompletions, R"({"prompt":"x","best_of":2})"), "best_of");
  Chat(R"(,"tools":[],"tool_choice":"none","response_format":{"type":"text"})");
  Completions(R"("prompt":"x","suffix":"","best_of":2,"n":2)");
}

TEST(RequestJsonTest, EventIdsAreAChoiceOfTheRequest) {
  const auto read = [](const char* value) {
    return Chat(
               absl::StrCat(R"(,"stream":true,"stream_options":{"include_event_ids":)", value, "}"))
        .form.event_ids;
  };
  EXPECT_EQ(read("false"), false);
  EXPECT_EQ(read("true"), true);
  EXPECT_EQ(read("null"), std::nullopt);
  EXPECT_EQ(RejectedChat(R"(,"stream_options":{"include_event_ids":"no"})"),
            "stream_options.include_event_ids");
}

TEST(RequestJsonTest, StreamOptionsAreRead) {
  const ParsedCall call = Chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_TRUE(call.form.stream);
  EXPECT_TRUE(call.form.include_usage);
  EXPECT_EQ(RejectedChat(R"(,"stream":true,"stream_options":{"include_usage":1})"),
            "stream_options.include_usage");
}

TEST(RequestJsonTest, OptionsOfAStreamThatAreNotThereAreRejected) {
  EXPECT_EQ(RejectedChat(R"(,"stream":true,"stream_options":{"include_obfuscation":true})"),
            "stream_options.include_obfuscation");
  EXPECT_EQ(RejectedChat(R"(,"stream":true,"stream_options":{"usage":true})"),
            "stream_options.usage");
  EXPECT_EQ(RejectedChat(R"(,"stream_options":{"continuous_usage_stats":true})"),
            "stream_options.continuous_usage_stats");
  Chat(R"(,"stream_options":{"include_usage":false,"usage":null})");
  const ParsedCall call =
      Chat(R"(,"stream":true,"stream_options":{"continuous_usage_stats":true})");
  EXPECT_TRUE(call.form.continuous_usage);
  EXPECT_FALSE(call.form.include_usage);
  EXPECT_TRUE(call.requests[0].output().prompt_tokens());
}

TEST(RequestJsonTest, IntegersMayBeWrittenWithAPointOrAnExponent) {
  const v1::GenerateRequest request =
      Chat(R"(,"max_tokens":16.0,"n":2.0e0,"top_k":1e1,"seed":-2.0,"min_tokens":-0.0,
              "stop_token_ids":[5.0,1e2],"logprobs":true,"top_logprobs":3.0,"priority":-1e1)")
          .requests[0];
  EXPECT_EQ(request.stopping().max_tokens(), 16);
  EXPECT_EQ(request.stopping().min_tokens(), 0);
  EXPECT_THAT(request.stopping().token_ids(), ElementsAre(5, 100));
  EXPECT_EQ(request.sampling().num_sequences(), 2);
  EXPECT_EQ(request.sampling().top_k(), 10);
  EXPECT_EQ(request.sampling().seed(), ~uint64_t{1});
  EXPECT_EQ(request.output().logprobs(), 3);
  EXPECT_EQ(request.priority(), -10);
  EXPECT_THAT(
      Completions(R"("prompt":[[1.0],[2,3e0]],"best_of":1.0)").requests[1].token_ids().ids(),
      ElementsAre(2, 3));
  EXPECT_EQ(Chat(R"(,"seed":1.8446744073709549568e19)").requests[0].sampling().seed(),
            18446744073709549568u);
  EXPECT_EQ(RejectedChat(R"(,"max_tokens":16.5)"), "max_tokens");
}

TEST(RequestJsonTest, ExtensionsHaveTheirFields) {
  const v1::GenerateRequest request =
      Chat(R"(,"stop_token_ids":[7,9],"include_stop_str_in_output":true,"cache_salt":"s",
              "cache_prompt":false,"priority":5)")
          .requests[0];
  EXPECT_THAT(request.stopping().token_ids(), ElementsAre(7, 9));
  EXPECT_TRUE(request.stopping().include_stop());
  EXPECT_EQ(request.cache().salt(), "s");
  EXPECT_TRUE(request.cache().bypass());
  EXPECT_EQ(request.priority(), 5);
  EXPECT_TRUE(
      Completions(R"("prompt":"a","no_stop_trim":true)").requests[0].stopping().include_stop());
  EXPECT_FALSE(Chat(R"(,"cache_prompt":true)").requests[0].has_cache());
}

TEST(RequestJsonTest, WhatBearsOnThePromptAndWhichTokensComeHasItsFields) {
  const v1::GenerateRequest request =
      Chat(R"(,"allowed_token_ids":[5,7.0],"bad_words":["x"," y"],"truncate_prompt_tokens":-1,
              "truncation_side":"right","add_generation_prompt":false,"chat_template":"t",
              "prompt_logprobs":3,"return_token_ids":true)")
          .requests[0];
  EXPECT_THAT(request.sampling().allowed_token_ids(), ElementsAre(5, 7));
  EXPECT_THAT(request.sampling().bad_words(), ElementsAre("x", " y"));
  EXPECT_EQ(request.truncation().max_tokens(), 0);
  EXPECT_TRUE(request.has_truncation());
  EXPECT_TRUE(request.truncation().keep_first());
  EXPECT_TRUE(request.conversation().omit_generation_prompt());
  EXPECT_EQ(request.conversation().chat_template(), "t");
  EXPECT_EQ(request.output().prompt_logprobs(), 3);
  EXPECT_TRUE(request.output().prompt_tokens());
  EXPECT_EQ(Completions(R"("prompt":"a","truncate_prompt_tokens":9)")
                .requests[0]
                .truncation()
                .max_tokens(),
            9);
  EXPECT_FALSE(Chat(R"(,"truncation_side":"left")").requests[0].has_truncation());
  // vLLM's clients say both.
  const v1::Conversation continued =
      Chat(R"(,"add_generation_prompt":false,"continue_final_message":true)")
          .requests[0]
          .conversation();
  EXPECT_TRUE(continued.continue_final_message());
  EXPECT_FALSE(continued.omit_generation_prompt());
  EXPECT_EQ(RejectedChat(R"(,"add_generation_prompt":true,"continue_final_message":true)"),
            "add_generation_prompt");
  EXPECT_EQ(RejectedChat(R"(,"stream":true,"prompt_logprobs":0)"), "prompt_logprobs");
}

TEST(RequestJsonTest, SpecialTokensAreAddedToTextAlone) {
  Chat(R"(,"add_special_tokens":false)");
  EXPECT_EQ(RejectedChat(R"(,"add_special_tokens":true)"), "add_special_tokens");
  Completions(R"("prompt":"a","add_special_tokens":true)");
  EXPECT_EQ(RejectedBy(Endpoint::kCompletions, R"({"prompt":"a","add_special_tokens":false})"),
            "add_special_tokens");
}

TEST(RequestJsonTest, SomeMembersAreArgumentsOfTheTemplate) {
  const auto arguments = [](const std::string& more) {
    return Chat(more).requests[0].conversation().template_arguments();
  };
  EXPECT_EQ(arguments(""), "");
  EXPECT_EQ(arguments(R"(,"reasoning_effort":"low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(arguments(R"(,"reasoning_effort":"none")"),
            R"({"reasoning_effort":"none","enable_thinking":false,"thinking":false})");
  // Those of chat_template_kwargs are the client's last word.
  EXPECT_EQ(arguments(R"(,"documents":[{"text":"d"}],"reasoning_effort":"none",
                         "chat_template_kwargs":{"enable_thinking":true,"thinking":1})"),
            R"({"enable_thinking":true,"thinking":1,"reasoning_effort":"none",)"
            R"("documents":[{"text":"d"}]})");
  // A template sees the members of values in the client's order, and its numbers.
  EXPECT_EQ(arguments(R"(,"documents":[{"title":"T","text":"x","doc_id":1.0}],
                         "chat_template_kwargs": {"z": {"y":1,"b":18446744073709551616} } )"),
            R"({"z": {"y":1,"b":18446744073709551616} ,)"
            R"("documents":[{"title":"T","text":"x","doc_id":1.0}]})");
  EXPECT_EQ(arguments(R"(,"chat_template_kwargs": { },"reasoning_effort":"l\u006fw")"),
            R"({"reasoning_effort":"l\u006fw"})");
}

TEST(RequestJsonTest, EveryFormOfMessageIsRead) {
  const auto call = ParseCall(Endpoint::kChat, R"({"messages":[
      {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],
       "cache_control":{}},
      {"role":"assistant","content":null,"refusal":"no","tool_calls":[],"function_call":null,
       "audio":null,"annotations":[]},
      {"role":"assistant","content":[{"type":"refusal","refusal":"never"}],
       "reasoning_content":"so","reasoning":""},
      {"role":"assistant","content":"x","reasoning":"thus","prefix":false,"parsed":{"a":1}},
      {"role":"assistant","content":"y","prefix":true}]})");
  ASSERT_TRUE(call.ok()) << call.status();
  const v1::Conversation& conversation = call->requests[0].conversation();
  EXPECT_EQ(conversation.messages(0).content(), "a");
  EXPECT_EQ(conversation.messages(1).content(), "no");
  EXPECT_EQ(conversation.messages(2).content(), "never");
  EXPECT_EQ(conversation.messages(2).reasoning(), "so");
  EXPECT_EQ(conversation.messages(3).reasoning(), "thus");
  EXPECT_TRUE(conversation.continue_final_message());
  EXPECT_TRUE(Chat(R"(,"continue_final_message":true)")
                  .requests[0]
                  .conversation()
                  .continue_final_message());
}

TEST(RequestJsonTest, EveryFormOfPromptIsTaken) {
  EXPECT_EQ(Completions(R"("prompt":"one")").requests[0].text(), "one");
  EXPECT_THAT(Completions(R"("prompt":[1,2,4294967295])").requests[0].token_ids().ids(),
              ElementsAre(1, 2, 4294967295));
  const ParsedCall texts = Completions(R"("prompt":["a","b"],"n":2,"logprobs":0)");
  ASSERT_THAT(texts.requests, SizeIs(2));
  EXPECT_EQ(texts.requests[1].text(), "b");
  EXPECT_EQ(texts.requests[1].sampling().num_sequences(), 2);
  EXPECT_TRUE(texts.requests[1].output().has_logprobs());
  const ParsedCall ids = Completions(R"("prompt":[[1],[2,3]])");
  ASSERT_THAT(ids.requests, SizeIs(2));
  EXPECT_THAT(ids.requests[1].token_ids().ids(), ElementsAre(2, 3));
  EXPECT_EQ(ids.requests[1].stopping().max_tokens(), 16);
}

TEST(RequestJsonTest, BadPromptsAreNamed) {
  const auto rejected = [](const std::string& prompt, const std::string& more = "") {
    return RejectedBy(Endpoint::kCompletions, absl::StrCat(R"({"prompt":)", prompt, more, "}"));
  };
  EXPECT_EQ(rejected("null"), "prompt");
  EXPECT_EQ(rejected("[]"), "prompt");
  EXPECT_EQ(rejected("7"), "prompt");
  EXPECT_EQ(rejected("[1,-1]"), "prompt[1]");
  EXPECT_EQ(rejected("[1,4294967296]"), "prompt[1]");
  EXPECT_EQ(rejected("[1,\"a\"]"), "prompt[1]");
  EXPECT_EQ(rejected("[\"a\",1]"), "prompt[1]");
  EXPECT_EQ(rejected("[[1],[]]"), "prompt[1]");
  EXPECT_EQ(rejected("[[1],[1.5]]"), "prompt[1][0]");
  EXPECT_EQ(rejected(R"(["a","b"])", R"(,"n":65)"), "n");
  std::string many = "[\"\"";
  for (int i = 0; i < kMaxChoices; ++i) many += ",\"\"";
  EXPECT_EQ(rejected(many + "]"), "prompt");
}

TEST(RequestJsonTest, EchoAsksForTokensOfThePromptWhereItsTextDoesNotDo) {
  const ParsedCall text = Completions(R"("prompt":["a","b"],"echo":true,"n":2)");
  EXPECT_TRUE(text.form.echo);
  EXPECT_THAT(text.form.echo_texts, ElementsAre("a", "b"));
  EXPECT_FALSE(text.requests[0].output().prompt_tokens());
  EXPECT_FALSE(text.requests[0].output().has_prompt_logprobs());

  const ParsedCall ids = Completions(R"("prompt":[[1],[2,3]],"echo":true)");
  EXPECT_THAT(ids.form.echo_texts, ElementsAre("", ""));
  for (const v1::GenerateRequest& request : ids.requests) {
    EXPECT_TRUE(request.output().prompt_tokens());
    EXPECT_FALSE(request.output().has_prompt_logprobs());
  }
  for (const std::string prompt : {R"("a")", R"([1,2])", R"([[1],[2]])", R"(["a","b"])"}) {
    const ParsedCall scored =
        Completions("\"prompt\":" + prompt + R"(,"echo":true,"logprobs":3,"max_tokens":0)");
    for (const v1::GenerateRequest& request : scored.requests) {
      EXPECT_TRUE(request.output().prompt_tokens());
      EXPECT_EQ(request.output().prompt_logprobs(), 3u);
      EXPECT_EQ(request.output().logprobs(), 3u);
    }
  }
  // The rest of a prompt that is cut is repeated.
  const ParsedCall cut = Completions(R"("prompt":"abc","echo":true,"truncate_prompt_tokens":1)");
  EXPECT_THAT(cut.form.echo_texts, ElementsAre(""));
  EXPECT_TRUE(cut.requests[0].output().prompt_tokens());
  EXPECT_FALSE(Completions(R"("prompt":"a","echo":false)").form.echo);
}

TEST(RequestJsonTest, WhatEchoRepeatsIsBounded) {
  const auto rejected = [](const std::string& members) {
    return RejectedBy(Endpoint::kCompletions, "{" + members + R"(,"echo":true})");
  };
  EXPECT_EQ(rejected(R"("prompt":[1],"n":2)"), "n");
  EXPECT_EQ(rejected(R"("prompt":"a","logprobs":0,"n":2)"), "n");
  EXPECT_EQ(rejected(R"("n":2,"prompt":")" + std::string(600'000, 'a') + "\""), "n");
  EXPECT_EQ(rejected(R"("prompt":"a","suffix":"b","logprobs":0)"), "echo");
  EXPECT_EQ(rejected(R"("prompt":"a","logprobs":2,"prompt_logprobs":3)"), "prompt_logprobs");
  EXPECT_EQ(rejected(R"("prompt":"a","n":2,"truncate_prompt_tokens":3)"), "n");
}

TEST(RequestJsonTest, SuffixIsOfCompletionsOfText) {
  EXPECT_EQ(Completions(R"("prompt":["a","b"],"suffix":"z")").requests[1].suffix(), "z");
  for (const std::string nothing : {R"("")", "null"}) {
    EXPECT_FALSE(Completions(R"("prompt":"a","suffix":)" + nothing).requests[0].has_suffix());
  }
  EXPECT_EQ(RejectedBy(Endpoint::kCompletions, R"({"prompt":[1],"suffix":"z"})"), "suffix");
  EXPECT_EQ(RejectedBy(Endpoint::kCompletions, R"({"prompt":"a","suffix":1})"), "suffix");
  EXPECT_EQ(
      RejectedBy(Endpoint::kChat, R"({"messages":[{"role":"user","content":"a"}],"suffix":"z"})"),
      "suffix");
}

TEST(RequestJsonTest, WhatIsNoJsonObjectIsRejected) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{\"a\":\"\xff\"}"), std::string("{\"a\":\"\\ud800\"}"), std::string("{}x"),
        std::string("{\"a\":NaN}"), std::string("{\"a\":\"\0\"}", 9)}) {
    EXPECT_EQ(RejectedBy(Endpoint::kChat, body), "") << body;
  }
}

TEST(RequestJsonTest, DepthAndNumberOfValuesAreBounded) {
  const auto message = [](const std::string& value) {
    return std::string(
        ParseCall(Endpoint::kChat, absl::StrCat("{\"a\":", value, "}")).status().message());
  };
  EXPECT_THAT(message(std::string(1 << 20, '[')), HasSubstr("deeper than 32"));
  EXPECT_THAT(message(std::string(1 << 20, '{')), HasSubstr("deeper than 32"));
  std::string values = "[0";
  for (int i = 0; i < 1 << 20; ++i) values += ",0";
  EXPECT_THAT(message(values + "]"), HasSubstr("more than 1048576 values"));
  // Brackets in strings are text.
  Chat(absl::StrCat(",\"user\":\"\\\"", std::string(100, '['), "\""));
}

TEST(RequestJsonTest, FieldsHaveTheNamesThatTheClientKnows) {
  const auto chat = [](const char* field) { return ParamOf(Endpoint::kChat, field); };
  EXPECT_EQ(chat("sampling.top_p"), "top_p");
  EXPECT_EQ(chat("sampling.num_sequences"), "n");
  EXPECT_EQ(chat("stopping.strings[3]"), "stop");
  EXPECT_EQ(chat("stopping.max_tokens"), "max_tokens");
  EXPECT_EQ(chat("output.logprobs"), "top_logprobs");
  EXPECT_EQ(chat("conversation.messages[2].name"), "messages[2].name");
  EXPECT_EQ(chat("conversation"), "messages");
  EXPECT_EQ(chat("conversationalist"), "conversationalist");
  EXPECT_EQ(chat("x-request-id"), "x-request-id");
  EXPECT_EQ(ParamOf(Endpoint::kCompletions, "text"), "prompt");
  EXPECT_EQ(ParamOf(Endpoint::kCompletions, "token_ids.ids[4]"), "prompt[4]");
  EXPECT_EQ(ParamOf(Endpoint::kCompletions, "output.logprobs"), "logprobs");
  EXPECT_EQ(chat("stopping.token_ids[1]"), "stop_token_ids[1]");
  EXPECT_EQ(chat("cache.salt"), "cache_salt");
  EXPECT_EQ(chat("conversation.template_arguments"), "chat_template_kwargs");
  EXPECT_EQ(chat("output.prompt_logprobs"), "prompt_logprobs");
  // Where there are several names, the client's own.
  const ParsedCall call = Chat(R"(,"max_completion_tokens":5,"stop":["a"])");
  EXPECT_EQ(ParamOf(call.form.names, "stopping.max_tokens"), "max_completion_tokens");
  EXPECT_EQ(ParamOf(call.form.names, "stopping.strings[0]"), "stop[0]");
  ParamNames names(Endpoint::kCompletions);
  names.prompt = 3;
  EXPECT_EQ(ParamOf(names, "text"), "prompt[3]");
  EXPECT_EQ(ParamOf(names, "token_ids.ids[4]"), "prompt[3][4]");
  names.as_written = true;
  EXPECT_EQ(ParamOf(names, "text"), "text");
}

}  // namespace
}  // namespace continuo::gateway::openai
