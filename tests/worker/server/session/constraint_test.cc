// SPDX-License-Identifier: Apache-2.0
// Answers that have to match something, from requests to deltas, with grammars of the library.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/protocol/error.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/text_files.h"
#include "tests/worker/server/session/answer.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using testing::Answer;
using testing::AnswerOf;
using ::testing::HasSubstr;
using testing::kEos;
using ::testing::MatchesRegex;
using testing::SessionHarness;

constexpr int32_t kThink = 271;

constexpr char kSchema[] =
    R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99999},)"
    R"("b":{"enum":["x","yz"]}},"required":["a","b"],"additionalProperties":false})";

// Opens a model whose chat template ends with `prompt_end`.
std::unique_ptr<text::TextModel> OpenChat(const std::string& prompt_end) {
  const std::string tokenizer = testing::ReadFile(
      testing::SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
  auto text =
      testing::OpenText({.tokenizer_json = tokenizer,
                         .chat_template = absl::StrCat(
                             "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
                             "{% if add_generation_prompt %}<|assistant|>",
                             prompt_end, "{% endif %}{# <think> #}")});
  EXPECT_TRUE(text.ok()) << text.status();
  return *std::move(text);
}

v1::GenerateRequest TextRequest() {
  v1::GenerateRequest request;
  request.set_request_id("r");
  request.set_text("some prompt");
  request.mutable_sampling()->set_seed(9);
  return request;
}
v1::GenerateRequest ChatRequest() {
  v1::GenerateRequest request = TextRequest();
  v1::ChatMessage& message = *request.mutable_conversation()->add_messages();
  message.set_role("user");
  message.set_content("x");
  return request;
}

std::string TextOf(const SessionHarness::Outcome& outcome, int index = 0) {
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  const Answer answer = AnswerOf(outcome.responses);
  return answer.sequences.contains(index) ? answer.sequences.at(index).text : "";
}

TEST(ConstraintTest, AnswersMatchWhateverKindOfConstraint) {
  SessionHarness harness;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    v1::GenerateRequest request = TextRequest();
    request.mutable_sampling()->set_seed(seed);
    v1::Constraint& constraint = *request.mutable_constraint();
    constraint.set_json_schema(kSchema);
    const nlohmann::json object =
        nlohmann::json::parse(TextOf(harness.Run(request)), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(object.is_object()) << seed;
    EXPECT_EQ(object.size(), 2u);
    EXPECT_TRUE(object["a"].is_number_integer());
    EXPECT_TRUE(object["b"] == "x" || object["b"] == "yz");

    constraint.set_regex("h[a-e]{3,5}(wor|ld)+!");
    EXPECT_THAT(TextOf(harness.Run(request)), MatchesRegex("h[a-e]+(wor|ld)+!"));
    constraint.mutable_choice()->add_options("hello world");
    constraint.mutable_choice()->add_options("hell\xc3\xa9");
    const std::string chosen = TextOf(harness.Run(request));
    EXPECT_TRUE(chosen == "hello world" || chosen == "hell\xc3\xa9") << chosen;
    constraint.set_lark("start: \"a\" b \"c\"\nb: \"(\" b \")\" | \"x\"");
    EXPECT_THAT(TextOf(harness.Run(request)), MatchesRegex("a\\(*x\\)*c"));
  }
}

TEST(ConstraintTest, TheEndOfTheConstraintIsTheEndOfTheAnswer) {
  SessionHarness harness;
  v1::GenerateRequest request = TextRequest();
  request.mutable_constraint()->mutable_choice()->add_options("hello");
  for (const bool ignore_eos : {false, true}) {
    request.mutable_stopping()->set_ignore_eos(ignore_eos);
    request.mutable_stopping()->set_min_tokens(20);
    request.mutable_stopping()->set_max_tokens(30);
    const Answer answer = AnswerOf(harness.Run(request).responses);
    EXPECT_EQ(answer.sequences.at(0).text, "hello");
    EXPECT_EQ(answer.sequences.at(0).finish, v1::FINISH_REASON_STOP);
    EXPECT_EQ(answer.sequences.at(0).matched, "");
    EXPECT_NE(answer.sequences.at(0).ids.back(), uint32_t{kEos}) << "no end was sampled";
  }
  // At the end nothing is held back for a stop string that it may begin.
  request.mutable_stopping()->clear_min_tokens();
  request.mutable_stopping()->add_strings("lo!");
  EXPECT_EQ(TextOf(harness.Run(request)), "hello");
  // Stop strings act as ever.
  request.mutable_stopping()->set_strings(0, "ell");
  const Answer stopped = AnswerOf(harness.Run(request).responses);
  EXPECT_EQ(stopped.sequences.at(0).text, "h");
  EXPECT_EQ(stopped.sequences.at(0).matched, "string ell");
  // max_tokens cuts the answer.
  request.mutable_stopping()->clear_strings();
  request.mutable_stopping()->set_max_tokens(1);
  request.mutable_constraint()->mutable_choice()->set_options(0, std::string(50, 'x'));
  EXPECT_EQ(AnswerOf(harness.Run(request).responses).sequences.at(0).finish,
            v1::FINISH_REASON_LENGTH);
}

TEST(ConstraintTest, ThoughtsAreFreeAndComeApart) {
  struct Case {
    std::string prompt_end;
    bool begins_with_thought;
  };
  for (const Case& c : std::vector<Case>{{"<think>", true}, {"<think>\n\n</think>\n\n", false}}) {
    SessionHarness harness(OpenChat(c.prompt_end));
    v1::GenerateRequest request = ChatRequest();
    request.mutable_constraint()->set_regex("(<think>)?[ab]{4}");
    bool any_thought = false;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      request.mutable_sampling()->set_seed(seed);
      request.mutable_stopping()->set_max_tokens(100);
      const Answer answer = AnswerOf(harness.Run(request).responses);
      const Answer::Sequence& said = answer.sequences.at(0);
      any_thought |= !said.reasoning.empty();
      if (said.finish == v1::FINISH_REASON_STOP) {
        // A mark is text where the answer has begun.
        EXPECT_THAT(said.text, MatchesRegex("(<think>)?[ab]+"));
      } else {
        EXPECT_TRUE(c.begins_with_thought) << "a thought of random bytes seldom ends";
        EXPECT_EQ(said.text, "");
        EXPECT_EQ(answer.summary.usage().reasoning_tokens(), said.ids.size());
      }
    }
    EXPECT_EQ(any_thought, c.begins_with_thought);
  }
}

// Prepares continuations with the ids that a worker has sent, whose answers may have a thought
// first.
class ConstrainedReplayTest : public ::testing::Test {
 protected:
  absl::StatusOr<Generation> Prepare(const std::vector<int32_t>& ids, bool same_worker = true) {
    v1::GenerateRequest request = request_;
    v1::GenerateResponse& received = *request.mutable_continuation()->mutable_received();
    received.mutable_accepted()->set_fingerprint(same_worker ? "F" : "other");
    received.mutable_accepted()->set_tokenizer_fingerprint("T");
    for (const int32_t id : ids) {
      received.add_deltas()->add_token_ids(static_cast<uint32_t>(id));
    }
    CallInfo call;
    call.random = testing::CountingRandom();
    const SaltKey key(call.random);
    return PrepareGeneration(request, call, model_, key);
  }

  std::unique_ptr<text::TextModel> text_ = OpenChat("");
  ServedModel model_ = testing::MakeServedModel(text_.get());
  v1::GenerateRequest request_ = ChatRequest();
};

std::vector<int32_t> Ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST_F(ConstrainedReplayTest, AContinuationGoesOnInAThoughtBehindItAndInTheGrammar) {
  request_.mutable_constraint()->set_regex("ab+c");
  std::vector<int32_t> ids = {kThink};
  for (const int32_t id : Ids("Hm</think>\nabb")) ids.push_back(id);
  for (size_t cut = 0; cut <= ids.size(); ++cut) {
    const auto generation = Prepare({ids.begin(), ids.begin() + static_cast<ptrdiff_t>(cut)});
    ASSERT_TRUE(generation.ok()) << generation.status() << " after " << cut;
    ASSERT_EQ(generation->request.constraints.size(), 1u);
    engine::TokenConstraint& constraint = *generation->request.constraints[0];
    EXPECT_FALSE(constraint.MustEnd());
    // Goes on to its end.
    for (size_t i = cut; i < ids.size(); ++i) ASSERT_TRUE(constraint.Accept(ids[i])) << cut;
    EXPECT_FALSE(constraint.Accept('x'));
    ASSERT_TRUE(constraint.Accept('c'));
    EXPECT_TRUE(constraint.MustEnd());
  }
}

TEST_F(ConstrainedReplayTest, ReceivedIdsThatEndTheConstraintEndTheAnswer) {
  request_.mutable_constraint()->set_regex("ab+c");
  const auto generation = Prepare(Ids("abc"));
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_TRUE(generation->replay.all_finished());
  EXPECT_EQ(generation->replay.endings[0]->finish, v1::FINISH_REASON_STOP);
  EXPECT_TRUE(generation->request.received[0].finished);
  // An end token ends it where the grammar allows an end, also before min_tokens.
  request_.mutable_constraint()->set_regex("ab+");
  std::vector<int32_t> ids = Ids("abb");
  EXPECT_FALSE(Prepare(ids)->replay.all_finished());
  ids.push_back(kEos);
  request_.mutable_stopping()->set_min_tokens(10);
  EXPECT_EQ(Prepare(ids)->replay.endings[0]->finish, v1::FINISH_REASON_STOP);
}

TEST_F(ConstrainedReplayTest, IdsThatTheConstraintDoesNotAllowAreRefused) {
  request_.mutable_constraint()->set_regex("ab+c");
  for (const std::vector<int32_t>& ids :
       {Ids("ax"), Ids("abcd"), std::vector<int32_t>{'a', kEos}, {kThink, 'x', kEos}}) {
    const absl::Status status = Prepare(ids).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(protocol::FieldOf(status), "continuation.received.deltas");
    EXPECT_THAT(std::string(status.message()), HasSubstr("constraint does not allow"));
    const absl::Status elsewhere = Prepare(ids, /*same_worker=*/false).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(elsewhere)) << elsewhere;
    EXPECT_EQ(protocol::ReasonOf(elsewhere), protocol::kReasonModelChanged);
  }
}

TEST_F(ConstrainedReplayTest, WhatCannotBeCompiledIsNamedByItsField) {
  v1::Constraint& constraint = *request_.mutable_constraint();
  const auto refused = [&](const std::string& field, const std::string& message) {
    CallInfo call;
    call.random = testing::CountingRandom();
    const SaltKey key(call.random);
    const absl::Status status = PrepareGeneration(request_, call, model_, key).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(protocol::FieldOf(status), field) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  constraint.set_json_schema(R"({"type":"object","properties":{"a":{"not":{}}}})");
  refused("constraint.json_schema", "not");
  constraint.set_json_schema("{");
  refused("constraint.json_schema", "");
  constraint.set_regex("(");
  refused("constraint.regex", "");
  constraint.set_lark("x");
  refused("constraint.lark", "");
  constraint.mutable_choice()->add_options("");
  refused("constraint.choice.options", "empty answer");
  // No answer can begin with it.
  constraint.set_lark("start: start \"a\"");
  refused("constraint.lark", "no answer obeys it");
}

TEST(ConstraintTest, AContinuationAfterAnyIdGivesTheSameAnswer) {
  std::vector<std::pair<std::string, v1::GenerateRequest>> cases;
  const auto add = [&](const char* prompt_end, v1::GenerateRequest request) {
    request.mutable_stopping()->set_max_tokens(60);
    cases.emplace_back(prompt_end, std::move(request));
  };
  v1::GenerateRequest request = TextRequest();
  request.mutable_constraint()->set_json_schema(kSchema);
  add("", request);
  request.mutable_sampling()->set_num_sequences(3);
  request.mutable_output()->set_logprobs(1);
  add("", request);
  request = ChatRequest();
  request.mutable_constraint()->set_regex("(a|<think>)+h[a-e\xc3\xa9]{3,5}(wor|ld)+!");
  request.mutable_stopping()->add_strings("ldwor");
  add("", request);
  request.mutable_stopping()->clear_strings();
  request.mutable_stopping()->set_min_tokens(50);
  request.mutable_sampling()->set_frequency_penalty(0.5);
  add("", request);
  add("<think>", request);
  int num_stopped = 0;
  for (const auto& [prompt_end, guided] : cases) {
    SessionHarness harness(OpenChat(prompt_end));
    const auto streams = harness.RunCutEverywhere(guided);
    const Answer undisturbed = AnswerOf(streams[0]);
    for (const auto& [index, said] : undisturbed.sequences) {
      num_stopped += said.finish == v1::FINISH_REASON_STOP ? 1 : 0;
    }
    for (size_t cut = 1; cut < streams.size(); ++cut) {
      EXPECT_EQ(AnswerOf(streams[cut]).Comparable(), undisturbed.Comparable())
          << "cut after " << cut;
    }
  }
  EXPECT_GE(num_stopped, 4) << "too few answers came to their end";
}

TEST(ConstraintTest, AGrammarIsCompiledOnce) {
  SessionHarness harness;
  v1::GenerateRequest request = TextRequest();
  request.mutable_constraint()->set_regex("ab");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(TextOf(harness.Run(request)), "ab");
  const text::GrammarCompiler::Counters counters = harness.model().grammars->counters();
  EXPECT_EQ(counters.compiles, 1u);
  EXPECT_EQ(counters.hits, 2u);
}

}  // namespace
}  // namespace continuo::server
