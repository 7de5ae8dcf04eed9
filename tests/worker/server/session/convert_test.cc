// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kEos;

class ConvertTest : public ::testing::Test {
 protected:
  ConvertTest()
      : text_(testing::OpenTestModel("byte_level")), model_(testing::MakeServedModel(text_.get())) {
    call_.now = absl::FromUnixSeconds(1000) + absl::Nanoseconds(5);
    call_.random = testing::CountingRandom();
    request_.set_text("abc");
  }
  Generation Prepare() {
    auto generation = PrepareGeneration(request_, call_, model_, SaltKey(call_.random));
    EXPECT_TRUE(generation.ok()) << generation.status();
    return *std::move(generation);
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  CallInfo call_;
  v1::GenerateRequest request_;
};

TEST_F(ConvertTest, DefaultsAreTheProtos) {
  const engine::Request r = Prepare().request;
  EXPECT_THAT(r.prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(r.num_sequences, 1);
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.top_p, 1);
  EXPECT_EQ(r.sampling.min_p, 0);
  EXPECT_EQ(r.sampling.repetition_penalty, 1);
  EXPECT_EQ(r.sampling.presence_penalty, 0);
  EXPECT_EQ(r.sampling.num_logprobs, -1);
  EXPECT_EQ(r.num_prompt_logprobs, -1);
  EXPECT_EQ(r.max_tokens, 125) << "what the context leaves";
  EXPECT_EQ(r.min_tokens, 0);
  EXPECT_THAT(r.stop_ids, ElementsAre(kEos));
  EXPECT_EQ(r.priority, 0);
  EXPECT_EQ(r.deadline, absl::InfiniteFuture());
  EXPECT_EQ(r.time_limit, absl::InfiniteFuture());
  EXPECT_THAT(r.received, IsEmpty());
  EXPECT_EQ(r.tenant, "default");
}

TEST_F(ConvertTest, TheModelsDefaultsComeBeforeTheProtosAndAfterTheRequests) {
  model_.defaults = {
      .temperature = 0.6f, .top_p = 0.9f, .min_p = 0.1f, .repetition_penalty = 1.1f, .top_k = 40};
  request_.mutable_sampling()->set_temperature(0);
  const model::SamplingParams p = Prepare().request.sampling;
  EXPECT_EQ(p.temperature, 0);
  EXPECT_EQ(p.top_p, 0.9f);
  EXPECT_EQ(p.min_p, 0.1f);
  EXPECT_EQ(p.repetition_penalty, 1.1f);
  EXPECT_EQ(p.top_k, 40);
}

TEST_F(ConvertTest, ATopPOfZeroIsGreedy) {
  request_.mutable_sampling()->set_temperature(1.5f);
  request_.mutable_sampling()->set_top_p(0);
  model::SamplingParams p = Prepare().request.sampling;
  EXPECT_EQ(p.temperature, 0);
  EXPECT_EQ(p.top_p, 1);
  // Also where it is the model's default.
  request_.mutable_sampling()->clear_top_p();
  model_.defaults.top_p = 0.0f;
  p = Prepare().request.sampling;
  EXPECT_EQ(p.temperature, 0);
  EXPECT_EQ(p.top_p, 1);
}

TEST_F(ConvertTest, BadWordsAreTheirTokensWithAndWithoutASpace) {
  for (const char* word : {"ab", " cd", "e", "ab"})
    request_.mutable_sampling()->add_bad_words(word);
  EXPECT_THAT(Prepare().request.barred,
              ElementsAre(ElementsAre(' ', 'a', 'b'), ElementsAre(' ', 'c', 'd'),
                          ElementsAre(' ', 'e'), ElementsAre('a', 'b'), ElementsAre('e')));
}

TEST_F(ConvertTest, AllowedIdsAreAMaskAndHaveOneThatDoesNotEndTheAnswer) {
  EXPECT_THAT(Prepare().request.allowed_mask, IsEmpty());
  for (const uint32_t id : {33u, 0u, 33u}) request_.mutable_sampling()->add_allowed_token_ids(id);
  std::vector<uint32_t> mask(static_cast<size_t>(model_.vocab_size + 31) / 32, 0);
  mask[0] = 1;
  mask[1] = 2;
  EXPECT_EQ(Prepare().request.allowed_mask, mask);
  request_.mutable_stopping()->set_min_tokens(1);
  EXPECT_EQ(Prepare().request.allowed_mask, mask);
  request_.mutable_sampling()->clear_allowed_token_ids();
  request_.mutable_sampling()->add_allowed_token_ids(kEos);
  const auto refused = PrepareGeneration(request_, call_, model_, SaltKey(call_.random));
  EXPECT_EQ(protocol::FieldOf(refused.status()), "sampling.allowed_token_ids");
  request_.mutable_stopping()->set_min_tokens(0);
  EXPECT_EQ(Prepare().request.allowed_mask[kEos / 32], uint32_t{1} << (kEos % 32));
}

TEST_F(ConvertTest, APromptIsCutAtItsBeginningOrItsEnd) {
  const auto prompt = [&](uint32_t most, bool keep_first) {
    request_.mutable_truncation()->set_max_tokens(most);
    request_.mutable_truncation()->set_keep_first(keep_first);
    return Prepare().request.prompt;
  };
  EXPECT_THAT(prompt(2, false), ElementsAre('b', 'c'));
  EXPECT_THAT(prompt(2, true), ElementsAre('a', 'b'));
  for (const uint32_t most : {3u, 4u, ~0u}) {
    EXPECT_THAT(prompt(most, false), ElementsAre('a', 'b', 'c'));
  }
  // 0 is what the context leaves: 128 tokens and the answer's.
  request_.set_text(std::string(500, 'x') + "yz");
  EXPECT_EQ(prompt(0, false).size(), 127u);
  EXPECT_EQ(prompt(0, false).back(), 'z');
  request_.mutable_stopping()->set_max_tokens(28);
  EXPECT_EQ(prompt(0, true), std::vector<int32_t>(100, 'x'));
  request_.mutable_stopping()->set_max_tokens(~0u);
  EXPECT_THAT(prompt(0, false), ElementsAre('z'));
  // Text that has no place in the context may be cut, up to a bound.
  request_.set_text(std::string(protocol::kMaxTokenizeBytes, 'x'));
  EXPECT_EQ(prompt(100, false).size(), 100u);
  request_.set_text(std::string(protocol::kMaxTokenizeBytes + 1, 'x'));
  EXPECT_EQ(protocol::ReasonOf(
                PrepareGeneration(request_, call_, model_, SaltKey(call_.random)).status()),
            protocol::kReasonContextTooLong);
  // One that is cut too little is too long still.
  request_.set_text(std::string(500, 'x'));
  request_.mutable_truncation()->set_max_tokens(129);
  EXPECT_EQ(protocol::ReasonOf(
                PrepareGeneration(request_, call_, model_, SaltKey(call_.random)).status()),
            protocol::kReasonContextTooLong);
}

TEST_F(ConvertTest, FieldsArriveWhereTheEngineReadsThem) {
  v1::Sampling& s = *request_.mutable_sampling();
  s.set_seed(~uint64_t{0});
  s.set_num_sequences(3);
  s.set_presence_penalty(0.5f);
  s.set_frequency_penalty(-0.5f);
  (*s.mutable_logit_bias())[9] = 1;
  (*s.mutable_logit_bias())[2] = -1;
  v1::Stopping& stop = *request_.mutable_stopping();
  stop.set_max_tokens(1000);
  stop.set_min_tokens(7);
  stop.add_token_ids(9);
  stop.add_token_ids(3);
  stop.add_token_ids(9);
  stop.set_ignore_eos(true);
  stop.mutable_time_limit()->set_seconds(2);
  request_.mutable_output()->set_logprobs(0);
  request_.mutable_output()->set_prompt_logprobs(4);
  request_.mutable_output()->set_progress(true);
  request_.mutable_cache()->set_bypass(true);
  request_.set_priority(-5);
  request_.set_request_id("me");
  call_.deadline = absl::FromUnixSeconds(2000);
  const engine::Request r = Prepare().request;
  EXPECT_EQ(r.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(r.num_sequences, 3);
  EXPECT_EQ(r.sampling.presence_penalty, 0.5f);
  EXPECT_EQ(r.sampling.frequency_penalty, -0.5f);
  ASSERT_EQ(r.biases.size(), 2u);
  EXPECT_EQ(r.biases[0].token_id, 2);
  EXPECT_EQ(r.biases[1].token_id, 9);
  EXPECT_EQ(r.max_tokens, 125) << "more is cut to what the context leaves";
  EXPECT_EQ(r.min_tokens, 7);
  EXPECT_THAT(r.stop_ids, ElementsAre(3, 9));
  EXPECT_EQ(r.time_limit, call_.now + absl::Seconds(2));
  EXPECT_EQ(r.sampling.num_logprobs, 0);
  EXPECT_EQ(r.num_prompt_logprobs, 4);
  EXPECT_TRUE(r.want_progress);
  EXPECT_TRUE(r.cache_bypass);
  EXPECT_EQ(r.priority, -5);
  EXPECT_EQ(r.label, "me");
  EXPECT_EQ(r.deadline, call_.deadline);
}

TEST_F(ConvertTest, TheServerChoosesIdSeedAndTime) {
  const v1::Accepted first = Prepare().accepted;
  const v1::Accepted second = Prepare().accepted;
  EXPECT_EQ(first.request_id().size(), 32u);
  EXPECT_NE(first.request_id(), second.request_id());
  EXPECT_NE(first.seed(), second.seed());
  EXPECT_LT(first.seed(), uint64_t{1} << 53);
  EXPECT_EQ(first.reference_time().seconds(), 1000);
  EXPECT_EQ(first.reference_time().nanos(), 5);
  EXPECT_EQ(first.model(), "bytes");
  EXPECT_EQ(first.migrations(), 0u);
}

TEST_F(ConvertTest, ATimeOfTheGatewayGivesWayToTheContinuationsAlone) {
  call_.reference_time = absl::FromUnixSeconds(700);
  const v1::Accepted first = Prepare().accepted;
  EXPECT_EQ(first.reference_time().seconds(), 700);
  v1::Accepted& had = *request_.mutable_continuation()->mutable_received()->mutable_accepted();
  had = first;
  had.mutable_reference_time()->set_seconds(500);
  EXPECT_EQ(Prepare().accepted.reference_time().seconds(), 500);
}

TEST_F(ConvertTest, TheIdComesFromTheRequestThenTheContinuationThenTheHeader) {
  call_.request_id = "header";
  EXPECT_EQ(Prepare().accepted.request_id(), "header");
  v1::Accepted& had = *request_.mutable_continuation()->mutable_received()->mutable_accepted();
  had.set_request_id("before");
  had.set_tokenizer_fingerprint("T");
  had.set_fingerprint("F");
  EXPECT_EQ(Prepare().accepted.request_id(), "before");
  request_.set_request_id("own");
  EXPECT_EQ(Prepare().accepted.request_id(), "own");
}

TEST_F(ConvertTest, AContinuationBringsBackWhatTheFirstWorkerChose) {
  v1::Accepted& had = *request_.mutable_continuation()->mutable_received()->mutable_accepted();
  had.set_seed(1234);
  had.set_tokenizer_fingerprint("T");
  had.set_fingerprint("F");
  had.mutable_reference_time()->set_seconds(500);
  had.set_migrations(2);
  request_.mutable_stopping()->mutable_time_limit()->set_seconds(10);
  const Generation g = Prepare();
  EXPECT_EQ(g.accepted.seed(), 1234u);
  EXPECT_EQ(g.request.sampling.seed, 1234u);
  EXPECT_EQ(g.accepted.reference_time().seconds(), 500);
  EXPECT_EQ(g.request.time_limit, absl::FromUnixSeconds(510));
  EXPECT_EQ(g.accepted.migrations(), 3u);
  EXPECT_FALSE(g.accepted.inexact());
}

TEST_F(ConvertTest, AnEmptyContinuationIsNoMigration) {
  request_.mutable_continuation()->mutable_received();
  const Generation g = Prepare();
  EXPECT_EQ(g.accepted.migrations(), 0u);
  EXPECT_EQ(g.next_sequence, 0u);
}

TEST_F(ConvertTest, InexactStaysOnceItWasSo) {
  v1::Accepted& had = *request_.mutable_continuation()->mutable_received()->mutable_accepted();
  had.set_tokenizer_fingerprint("T");
  had.set_fingerprint("F");
  had.set_inexact(true);
  EXPECT_TRUE(Prepare().accepted.inexact());
}

TEST_F(ConvertTest, TheTemplatesClockIsTheReferenceTime) {
  request_.mutable_conversation()->add_messages()->set_role("user");
  request_.mutable_conversation()->set_template_arguments(R"({"date": "%Y"})");
  v1::Accepted& had = *request_.mutable_continuation()->mutable_received()->mutable_accepted();
  had.set_tokenizer_fingerprint("T");
  had.mutable_reference_time()->set_seconds(0);
  const std::string prompt = *text_->Decode(Prepare().request.prompt, true);
  EXPECT_THAT(prompt, ::testing::HasSubstr("1970"));
}

TEST_F(ConvertTest, AConversationHasAMessage) {
  const auto rendered =
      RenderConversation(v1::Conversation(), "conversation", absl::UnixEpoch(), *text_);
  EXPECT_TRUE(absl::IsInvalidArgument(rendered.status()));
  EXPECT_EQ(std::string(rendered.status().message()), "conversation.messages: is empty");
}

TEST_F(ConvertTest, ControlTokensInAConversationAreTextUnlessTheWorkerParsesThem) {
  v1::ChatMessage& message = *request_.mutable_conversation()->add_messages();
  message.set_role("user");
  message.set_content("<|end|>");
  const auto num_special = [&] {
    const std::vector<int32_t> prompt = Prepare().request.prompt;
    return std::count_if(prompt.begin(), prompt.end(),
                         [&](int32_t id) { return text_->IsSpecial(id); });
  };
  EXPECT_THAT(ToProto(model_).capabilities(),
              ElementsAre(v1::CAPABILITY_GENERATE, v1::CAPABILITY_CHAT, v1::CAPABILITY_REASONING,
                          v1::CAPABILITY_CONTENT_IS_TEXT, v1::CAPABILITY_CONSTRAINTS));
  EXPECT_EQ(ToProto(model_).response_format(), "none");
  EXPECT_EQ(num_special(), 3) << "user, end, assistant";
  model_.parse_special_in_content = true;
  EXPECT_EQ(num_special(), 4);
  EXPECT_THAT(ToProto(model_).capabilities(),
              ElementsAre(v1::CAPABILITY_GENERATE, v1::CAPABILITY_CHAT, v1::CAPABILITY_REASONING,
                          v1::CAPABILITY_CONSTRAINTS));
  // A text is taken as it is.
  model_.parse_special_in_content = false;
  request_.set_text("<|end|>");
  EXPECT_EQ(num_special(), 1);
}

TEST_F(ConvertTest, OnlyAContinuationIsAMigration) {
  call_.is_migration = true;
  EXPECT_FALSE(Prepare().request.is_migration);
  request_.mutable_continuation();
  EXPECT_TRUE(Prepare().request.is_migration);
}

TEST_F(ConvertTest, SaltsAreOfTheirTenantAndOfTheProcess) {
  const SaltKey key(testing::CountingRandom());
  EXPECT_EQ(key.Combine("a", "x"), key.Combine("a", "x"));
  EXPECT_NE(key.Combine("a", "x"), key.Combine("b", "x"));
  EXPECT_NE(key.Combine("a", "bc"), key.Combine("ab", "c"));
  EXPECT_NE(key.Combine("a", ""), key.Combine("b", ""));
  EXPECT_NE(key.Combine("a", "x", "d"), key.Combine("a", "x"));
  EXPECT_NE(key.Combine("a", "x", "d"), key.Combine("a", "x", "e"));
  EXPECT_NE(key.Combine("a", "x", ""), key.Combine("a", "", "x"));
  auto other_random = testing::CountingRandom();
  other_random();
  EXPECT_NE(key.Combine("a", "x"), SaltKey(other_random).Combine("a", "x"));
}

}  // namespace
}  // namespace continuo::server
