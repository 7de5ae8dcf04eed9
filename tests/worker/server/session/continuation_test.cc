// SPDX-License-Identifier: Apache-2.0
// Continuations through session and engine: whatever was received, the whole equals an undisturbed
// run (exactness: relay-edits-nothing, replay, migrations-first, prompt-logprobs).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "services/protocol/error.h"
#include "services/worker/server/session/answer_sequence.h"
#include "tests/worker/server/session/answer.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using testing::Answer;
using testing::AnswerOf;
using testing::SessionHarness;

// Returns the first `count` responses, merged, without the parts that a continuation need not
// bring.
v1::GenerateResponse Received(const std::vector<v1::GenerateResponse>& responses, size_t count) {
  v1::GenerateResponse received;
  for (size_t i = 0; i < count; ++i) received.MergeFrom(responses[i]);
  for (v1::Delta& delta : *received.mutable_deltas()) {
    delta.clear_text();
    delta.clear_logprobs();
    delta.clear_matched_stop();
  }
  received.clear_progress();
  return received;
}

std::vector<uint32_t> IdsOf(const std::vector<v1::GenerateResponse>& responses) {
  std::vector<uint32_t> ids;
  for (const v1::GenerateResponse& response : responses) {
    for (const v1::Delta& delta : response.deltas()) {
      ids.insert(ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    }
  }
  return ids;
}

v1::GenerateRequest BaseRequest() {
  v1::GenerateRequest request;
  request.set_request_id("r");
  request.set_text("some prompt");
  request.mutable_sampling()->set_seed(9);
  request.mutable_stopping()->set_max_tokens(24);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// Returns requests of every kind that has state of its own; stop strings are taken from the answer
// itself.
std::vector<v1::GenerateRequest> Requests(SessionHarness& harness) {
  std::vector<v1::GenerateRequest> requests(6, BaseRequest());
  requests[1].mutable_sampling()->set_num_sequences(3);
  requests[2].mutable_output()->set_logprobs(2);
  requests[2].mutable_output()->set_prompt_logprobs(1);
  requests[2].mutable_output()->set_prompt_tokens(true);
  requests[3].mutable_sampling()->set_repetition_penalty(1.5);
  requests[3].mutable_sampling()->set_frequency_penalty(0.5);
  requests[4].mutable_sampling()->clear_seed();
  requests[4].clear_request_id();
  requests[5].mutable_sampling()->set_num_sequences(2);
  const Answer answer = AnswerOf(harness.Run(requests[5]).responses);
  const std::string& text = answer.sequences.at(0).text;
  // Begins in the middle of the text, at a character.
  size_t at = text.size() / 2;
  while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
  size_t end = at + 1;
  while (end < text.size() && (end < at + 3 || (text[end] & 0xC0) == 0x80)) ++end;
  requests[5].mutable_stopping()->add_strings(text.substr(at, end - at));
  requests[5].mutable_stopping()->add_token_ids(answer.sequences.at(1).ids[12]);
  return requests;
}

TEST(ContinuationTest, AfterAnyResponseTheWholeEqualsAnUndisturbedRun) {
  SessionHarness harness;
  for (const v1::GenerateRequest& request : Requests(harness)) {
    const SessionHarness::Outcome whole = harness.Run(request);
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    const Answer undisturbed = AnswerOf(whole.responses);
    for (size_t cut = 0; cut <= whole.responses.size(); ++cut) {
      v1::GenerateRequest again = request;
      *again.mutable_continuation()->mutable_received() = Received(whole.responses, cut);
      if (cut == 0) {
        again.mutable_continuation()->clear_received();
        again.set_request_id(undisturbed.accepted.request_id());
        again.mutable_sampling()->set_seed(undisturbed.accepted.seed());
      }
      const SessionHarness::Outcome rest = harness.Run(again);
      ASSERT_TRUE(rest.status.ok()) << rest.status;
      Answer joined = AnswerOf({whole.responses.begin(), whole.responses.begin() + cut});
      for (const auto& response : rest.responses) joined.Add(response);
      EXPECT_EQ(joined.Comparable(), undisturbed.Comparable()) << "cut after " << cut;
      EXPECT_TRUE(joined.has_summary);
      if (cut < whole.responses.size()) {
        EXPECT_EQ(joined.summary.migrations(), cut > 0 ? 1u : 0u);
        EXPECT_TRUE(rest.responses[0].has_accepted());
        EXPECT_FALSE(joined.summary.inexact());
      } else {
        EXPECT_TRUE(rest.responses.empty()) << "the summary was received";
      }
    }
  }
}

// The text that an unfinished sequence has delivered with these ids.
std::string DeliveredText(const ServedModel& model, const StopRules& rules,
                          const std::vector<uint32_t>& ids, size_t count, bool ends_by_id) {
  AnswerSequence sequence(&model, &rules);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    if (ends_by_id && i + 1 == ids.size()) break;
    text += testing::TextOf(sequence.Push(static_cast<int32_t>(ids[i])));
  }
  return text;
}

TEST(ContinuationTest, AfterAnyIdsTheWholeEqualsAnUndisturbedRun) {
  SessionHarness harness;
  std::mt19937 random(3);
  for (const v1::GenerateRequest& request : Requests(harness)) {
    const Answer undisturbed = AnswerOf(harness.Run(request).responses);
    StopRules rules;
    rules.strings = {request.stopping().strings().begin(), request.stopping().strings().end()};
    rules.stop_ids = {request.stopping().token_ids().begin(), request.stopping().token_ids().end()};
    for (int round = 0; round < 40; ++round) {
      v1::GenerateRequest again = request;
      v1::GenerateResponse& received = *again.mutable_continuation()->mutable_received();
      *received.mutable_accepted() = undisturbed.accepted;
      received.set_sequence(41);
      Answer joined;
      joined.accepted = undisturbed.accepted;
      joined.next_sequence = 42;
      joined.prompt_logprobs = undisturbed.prompt_logprobs;
      for (const std::string& logprob : undisturbed.prompt_logprobs) {
        ASSERT_TRUE(received.add_prompt_logprobs()->ParseFromString(logprob));
      }
      joined.prompt_tokens = undisturbed.prompt_tokens;
      for (const std::string& token : undisturbed.prompt_tokens) {
        ASSERT_TRUE(received.add_prompt_tokens()->ParseFromString(token));
      }
      for (const auto& [index, sequence] : undisturbed.sequences) {
        // The ids of the first sequence are cut everywhere, also right at the end.
        const size_t count =
            index == 0 ? round % (sequence.ids.size() + 1) : random() % (sequence.ids.size() + 1);
        v1::Delta& delta = *received.add_deltas();
        delta.set_index(static_cast<uint32_t>(index));
        delta.mutable_token_ids()->Add(sequence.ids.begin(), sequence.ids.begin() + count);
        Answer::Sequence& had = joined.sequences[index];
        had.ids.assign(sequence.ids.begin(), sequence.ids.begin() + count);
        if (!sequence.logprobs.empty()) {
          had.logprobs.assign(sequence.logprobs.begin(), sequence.logprobs.begin() + count);
        }
        had.text = DeliveredText(harness.model(), rules, sequence.ids, count,
                                 sequence.matched.starts_with("id"));
      }
      const SessionHarness::Outcome rest = harness.Run(again);
      ASSERT_TRUE(rest.status.ok()) << rest.status;
      for (const auto& response : rest.responses) joined.Add(response);
      EXPECT_EQ(joined.Comparable(), undisturbed.Comparable()) << "round " << round;
    }
  }
}

TEST(ContinuationTest, IdsThatEndASequenceAreNotComputedAgain) {
  SessionHarness harness;
  const SessionHarness::Outcome whole = harness.Run(BaseRequest());
  v1::GenerateRequest again = BaseRequest();
  v1::GenerateResponse& received = *again.mutable_continuation()->mutable_received();
  received = Received(whole.responses, whole.responses.size());
  received.clear_summary();
  for (v1::Delta& delta : *received.mutable_deltas()) delta.clear_finish_reason();
  const int64_t steps = harness.executor().num_steps();
  const SessionHarness::Outcome rest = harness.Run(again);
  EXPECT_EQ(harness.executor().num_steps(), steps);
  ASSERT_EQ(rest.responses.size(), 1u);
  EXPECT_EQ(rest.responses[0].deltas(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(rest.responses[0].summary().usage().completion_tokens(), 24u);
}

TEST(ContinuationTest, AllFinishedGivesTheSummaryAlone) {
  SessionHarness harness;
  const SessionHarness::Outcome whole = harness.Run(BaseRequest());
  v1::GenerateRequest again = BaseRequest();
  v1::GenerateResponse& received = *again.mutable_continuation()->mutable_received();
  received = Received(whole.responses, whole.responses.size());
  received.clear_summary();
  const SessionHarness::Outcome rest = harness.Run(again);
  ASSERT_EQ(rest.responses.size(), 1u);
  EXPECT_EQ(rest.responses[0].deltas_size(), 0);
  EXPECT_TRUE(rest.responses[0].has_summary());
  EXPECT_EQ(rest.responses[0].sequence(), received.sequence() + 1);
}

TEST(ContinuationTest, AnotherFingerprintGoesOnInexactly) {
  SessionHarness harness;
  const SessionHarness::Outcome whole = harness.Run(BaseRequest());
  v1::GenerateRequest again = BaseRequest();
  v1::GenerateResponse& received = *again.mutable_continuation()->mutable_received();
  *received.mutable_accepted() = whole.responses[0].accepted();
  received.mutable_accepted()->set_fingerprint("other");
  received.add_deltas()->add_token_ids('x');
  const SessionHarness::Outcome rest = harness.Run(again);
  ASSERT_TRUE(rest.status.ok());
  EXPECT_EQ(AnswerOf(whole.responses).sequences.at(0).ids.size(), 24u);
  EXPECT_TRUE(rest.responses[0].accepted().inexact());
  EXPECT_TRUE(rest.responses.back().summary().inexact());

  again.set_exact_only(true);
  const absl::Status refused = harness.Run(again).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonNoWorker);
}

TEST(ContinuationTest, IdsOfAnotherFingerprintAreTakenHoweverOftenTheyCome) {
  SessionHarness harness;
  v1::GenerateRequest again = BaseRequest();
  again.mutable_stopping()->set_ignore_eos(false);
  v1::GenerateResponse& received = *again.mutable_continuation()->mutable_received();
  received.mutable_accepted()->set_fingerprint("other");
  received.mutable_accepted()->set_tokenizer_fingerprint("T");
  // The other worker ended nothing here.
  received.add_deltas()->add_token_ids(testing::kEos);
  received.mutable_deltas(0)->add_token_ids('x');
  const SessionHarness::Outcome second = harness.Run(again);
  ASSERT_TRUE(second.status.ok()) << second.status;
  ASSERT_FALSE(second.responses.empty());
  // The stream goes on to a third worker, of the second one's fingerprint.
  *received.mutable_accepted() = second.responses[0].accepted();
  ASSERT_EQ(received.accepted().fingerprint(), "F");
  const SessionHarness::Outcome third = harness.Run(again);
  ASSERT_TRUE(third.status.ok()) << third.status;
  ASSERT_FALSE(third.responses.empty());
  EXPECT_TRUE(third.responses[0].accepted().inexact());
  EXPECT_EQ(IdsOf(third.responses), IdsOf(second.responses));
}

TEST(ContinuationTest, AnotherTokenizerIsRefused) {
  SessionHarness harness;
  v1::GenerateRequest again = BaseRequest();
  v1::Accepted& accepted = *again.mutable_continuation()->mutable_received()->mutable_accepted();
  accepted.set_fingerprint("F");
  accepted.set_tokenizer_fingerprint("other");
  const absl::Status refused = harness.Run(again).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonModelChanged);
}

}  // namespace
}  // namespace continuo::server
