// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/generate_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "services/protocol/error.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/server/session/answer.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using testing::Answer;
using testing::AnswerOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kEos;
using testing::RecordingWriter;

using Ids = decltype(engine::SequenceDelta::tokens);

Ids Bytes(std::string_view text) {
  Ids ids;
  for (const unsigned char c : text) ids.push_back(c);
  return ids;
}

// A session for which the test plays the engine.
class GenerateSessionTest : public ::testing::Test {
 protected:
  GenerateSessionTest()
      : text_(testing::OpenTestModel("byte_level")), model_(testing::MakeServedModel(text_.get())) {
    request_.set_text("hi");
    request_.mutable_stopping()->set_max_tokens(100);
  }

  // Writes end by themselves unless `manual`.
  void Start(bool manual = false) {
    writer_ = std::make_unique<RecordingWriter>(manual ? nullptr : &writes_);
    const CallInfo call = {.now = clock_.Now(), .random = testing::CountingRandom()};
    auto generation = PrepareGeneration(request_, call, model_, SaltKey(call.random));
    ASSERT_TRUE(generation.ok()) << generation.status();
    session_ = GenerateSession::Create(
        *generation, writer_.get(),
        {.finish_sequence = [this](int index) { finished_by_edge_.push_back(index); },
         .cancel = [this](absl::Status why) { cancelled_.push_back(why); },
         .cut = [this](const absl::Status& why) { cut_.push_back(why); }},
        &pool_, {std::shared_ptr<const void>(), &model_}, &clock_, max_unread_bytes_);
    writer_->Attach(session_);
    Send({.started = true});
  }

  void Send(engine::RequestEvent event) { session_->OnEvent(std::move(event)); }
  void SendTokens(const Ids& tokens, engine::FinishReason finish = engine::FinishReason::kNone,
                  int index = 0) {
    engine::RequestEvent event;
    event.deltas.push_back(
        {.index = index, .tokens = {tokens.begin(), tokens.end()}, .finish = finish});
    Send(std::move(event));
  }
  // Sends `count` tokens with twenty alternatives each.
  void SendScored(size_t count) {
    engine::RequestEvent event;
    engine::SequenceDelta& delta = event.deltas.emplace_back();
    delta.tokens.assign(count, 'a');
    delta.scores.assign(count, {.alternatives = std::vector<model::TokenAlternative>(20)});
    Send(std::move(event));
  }
  void SendEnd(absl::Status status = absl::OkStatus()) {
    engine::RequestEvent event;
    event.ended = std::move(status);
    Send(std::move(event));
  }
  Answer Finish(absl::Status status = absl::OkStatus()) {
    SendEnd(status);
    writer_->Wait();
    return AnswerOf(writer_->responses(), request_.output().collect());
  }
  // Returns when all work posted so far has run.
  void WaitForPostedWork() {
    absl::Notification done;
    pool_.Post([&] { done.Notify(); });
    done.WaitForNotification();
  }

  ManualClock clock_;
  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  v1::GenerateRequest request_;
  size_t max_unread_bytes_ = GenerateSession::kMaxUnreadBytes;
  std::unique_ptr<RecordingWriter> writer_;
  std::vector<int> finished_by_edge_;
  std::vector<absl::Status> cancelled_, cut_;
  WorkPool pool_{1};
  WorkPool writes_{1};
  std::shared_ptr<GenerateSession> session_;
};

TEST_F(GenerateSessionTest, TokensBecomeTextIdsAndASummary) {
  Start();
  SendTokens(Bytes("ab"));
  SendTokens(Bytes("c"), engine::FinishReason::kLength);
  const Answer answer = Finish();
  EXPECT_TRUE(writer_->Wait().ok());
  EXPECT_EQ(answer.sequences.at(0).text, "abc");
  EXPECT_THAT(answer.sequences.at(0).ids, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(answer.sequences.at(0).finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.summary.usage().prompt_tokens(), 2u);
  EXPECT_EQ(answer.summary.usage().completion_tokens(), 3u);
  EXPECT_EQ(answer.accepted.fingerprint(), "F");
  EXPECT_EQ(answer.accepted.worker(), "w0");
}

TEST_F(GenerateSessionTest, TheReportTellsWhereTheTimeWent) {
  Start();
  SendTokens(Bytes("ab"), engine::FinishReason::kLength);
  engine::RequestEvent end;
  end.ended = absl::OkStatus();
  end.cached_prompt_tokens = 1;
  end.timings = {.queue = absl::Seconds(1),
                 .prefill = absl::Seconds(2),
                 .total = absl::Seconds(7),
                 .num_preemptions = 3};
  Send(std::move(end));
  EXPECT_TRUE(writer_->Wait().ok());
  const SessionReport& report = session_->report();
  EXPECT_EQ(report.prompt_tokens, 2);
  EXPECT_EQ(report.cached_prompt_tokens, 1);
  EXPECT_EQ(report.completion_tokens, 2);
  EXPECT_EQ(report.timings.queue, absl::Seconds(1));
  EXPECT_EQ(report.decode(), absl::Seconds(4));
  EXPECT_EQ(report.timings.num_preemptions, 3);
}

TEST_F(GenerateSessionTest, AcceptedIsInTheFirstResponseAlone) {
  Start();
  SendTokens(Bytes("a"), engine::FinishReason::kLength);
  Finish();
  const auto responses = writer_->responses();
  for (size_t i = 0; i < responses.size(); ++i) {
    EXPECT_EQ(responses[i].has_accepted(), i == 0) << i;
  }
}

TEST_F(GenerateSessionTest, EventsDuringAWriteGoOutAsOneMessage) {
  Start(/*manual=*/true);
  WaitForPostedWork();
  ASSERT_EQ(writer_->responses().size(), 1u);  // Accepted
  for (const char c : std::string("hello")) SendTokens({c});
  WaitForPostedWork();
  EXPECT_EQ(writer_->responses().size(), 1u) << "a write is in flight";
  session_->WriteDone(true);
  ASSERT_EQ(writer_->responses().size(), 2u);
  ASSERT_EQ(writer_->responses()[1].deltas_size(), 1);
  EXPECT_EQ(writer_->responses()[1].deltas(0).text(), "hello");
  EXPECT_EQ(writer_->responses()[1].deltas(0).token_ids_size(), 5);
}

TEST_F(GenerateSessionTest, StopStringEndsInOneDeltaWithWhatWasHeldBack) {
  request_.mutable_stopping()->add_strings("stop");
  Start(/*manual=*/true);
  WaitForPostedWork();
  session_->WriteDone(true);
  SendTokens(Bytes("xst"));
  WaitForPostedWork();
  EXPECT_EQ(writer_->responses()[1].deltas(0).text(), "x");
  EXPECT_EQ(writer_->responses()[1].deltas(0).token_ids_size(), 3);
  session_->WriteDone(true);
  SendTokens(Bytes("opyz"));  // one step generated beyond the stop
  WaitForPostedWork();
  const v1::Delta last = writer_->responses()[2].deltas(0);
  EXPECT_EQ(last.text(), "");
  EXPECT_THAT(last.token_ids(), ElementsAre('o', 'p'));
  EXPECT_EQ(last.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(last.stop_sequence(), "stop");
  EXPECT_THAT(finished_by_edge_, ElementsAre(0));
  SendTokens(Bytes("late"));  // the engine was told late
  session_->WriteDone(true);
  SendEnd();
  WaitForPostedWork();
  const v1::GenerateResponse summary = writer_->responses().back();
  EXPECT_EQ(summary.deltas_size(), 0);
  EXPECT_EQ(summary.summary().usage().completion_tokens(), 5u);
  EXPECT_TRUE(writer_->Wait().ok());
}

TEST_F(GenerateSessionTest, IncludeStopKeepsTheStopStringInTheText) {
  request_.mutable_stopping()->add_strings("stop");
  request_.mutable_stopping()->set_include_stop(true);
  Start();
  SendTokens(Bytes("a stop!"));
  EXPECT_EQ(Finish().sequences.at(0).text, "a stop");
}

TEST_F(GenerateSessionTest, EndOfSequenceIsDeliveredWithoutText) {
  request_.mutable_stopping()->add_strings("bc");
  Start();
  SendTokens({'a', 'b', kEos}, engine::FinishReason::kStop);
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).text, "ab");
  EXPECT_THAT(answer.sequences.at(0).ids, ElementsAre('a', 'b', kEos));
  EXPECT_EQ(answer.sequences.at(0).finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.sequences.at(0).matched, "");
  EXPECT_EQ(answer.summary.usage().completion_tokens(), 3u);
  EXPECT_THAT(finished_by_edge_, IsEmpty()) << "the engine ended it itself";
}

TEST_F(GenerateSessionTest, StopIdIsNamedAndItsTextCutOff) {
  request_.mutable_stopping()->add_token_ids('c');
  Start();
  SendTokens({'a', 'b', 'c'}, engine::FinishReason::kStop);
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).text, "ab");
  EXPECT_EQ(answer.sequences.at(0).matched, "id 99");
}

TEST_F(GenerateSessionTest, IncludeStopKeepsTheTextOfAStopId) {
  request_.mutable_stopping()->add_strings("xcc");  // holds back
  request_.mutable_stopping()->add_token_ids('c');
  request_.mutable_stopping()->set_include_stop(true);
  Start();
  SendTokens({'a', 'x', 'c'}, engine::FinishReason::kStop);
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).text, "axc");
  EXPECT_EQ(answer.sequences.at(0).matched, "id 99");
  EXPECT_THAT(answer.sequences.at(0).ids, ElementsAre('a', 'x', 'c'));
}

TEST_F(GenerateSessionTest, IncludeStopKeepsNoTextOfTheEndOfSequence) {
  request_.mutable_stopping()->add_token_ids(kEos);
  request_.mutable_stopping()->set_include_stop(true);
  Start();
  SendTokens({'a', kEos}, engine::FinishReason::kStop);
  EXPECT_EQ(Finish().sequences.at(0).text, "a");
}

TEST_F(GenerateSessionTest, HalfACharacterIsFlushedAtALimit) {
  Start();
  SendTokens({'a', 0xC3}, engine::FinishReason::kLength);
  EXPECT_EQ(Finish().sequences.at(0).text, "a\xEF\xBF\xBD");
}

TEST_F(GenerateSessionTest, StopCompletedByTheLastAllowedTokenIsAStop) {
  request_.mutable_stopping()->add_strings("bc");
  Start();
  SendTokens({'a', 'b', 'c'}, engine::FinishReason::kLength);
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.sequences.at(0).text, "a");
}

TEST_F(GenerateSessionTest, StopBeforeMinTokensIsPlainText) {
  request_.mutable_stopping()->add_strings("a");
  request_.mutable_stopping()->set_min_tokens(2);
  Start();
  SendTokens(Bytes("aba"));
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).text, "ab");
  EXPECT_EQ(answer.sequences.at(0).ids.size(), 3u);
}

TEST_F(GenerateSessionTest, TimeLimitEndsWithoutATokenOfItsOwn) {
  request_.mutable_stopping()->add_strings("bc");
  Start();
  SendTokens(Bytes("ab"));
  engine::RequestEvent event;
  event.deltas.push_back({.index = 0, .finish = engine::FinishReason::kTimeLimit});
  Send(std::move(event));
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).text, "ab");
  EXPECT_EQ(answer.sequences.at(0).finish, v1::FINISH_REASON_TIME_LIMIT);
}

TEST_F(GenerateSessionTest, SequencesEndAlone) {
  request_.mutable_sampling()->set_num_sequences(3);
  request_.mutable_stopping()->add_strings("!");
  Start();
  SendTokens(Bytes("a!"), engine::FinishReason::kNone, 1);
  SendTokens(Bytes("b"), engine::FinishReason::kNone, 0);
  SendTokens({kEos}, engine::FinishReason::kStop, 2);
  SendTokens(Bytes("c"), engine::FinishReason::kLength, 0);
  const Answer answer = Finish();
  EXPECT_EQ(answer.sequences.at(0).text, "bc");
  EXPECT_EQ(answer.sequences.at(1).text, "a");
  EXPECT_EQ(answer.sequences.at(2).text, "");
  EXPECT_THAT(finished_by_edge_, ElementsAre(1));
  EXPECT_EQ(answer.summary.usage().completion_tokens(), 5u);
}

TEST_F(GenerateSessionTest, LogprobsCarryTheBytesOfTheirTokens) {
  request_.mutable_output()->set_logprobs(1);
  Start();
  engine::RequestEvent event;
  event.deltas.push_back({.index = 0,
                          .tokens = {0xC3, kEos},
                          .scores = {{.logprob = -1.5f, .alternatives = {{'x', -0.5f}}},
                                     {.logprob = -2, .alternatives = {{kEos, -2}}}},
                          .finish = engine::FinishReason::kStop});
  Send(std::move(event));
  const std::vector<std::string> logprobs = Finish().sequences.at(0).logprobs;
  ASSERT_EQ(logprobs.size(), 2u);
  v1::TokenLogprob first, second;
  ASSERT_TRUE(first.ParseFromString(logprobs[0]));
  ASSERT_TRUE(second.ParseFromString(logprobs[1]));
  EXPECT_EQ(first.token(), "\xC3") << "part of a character";
  EXPECT_EQ(first.logprob(), -1.5f);
  EXPECT_EQ(first.alternatives(0).token(), "x");
  EXPECT_EQ(first.special_token(), "");
  EXPECT_EQ(first.alternatives(0).special_token(), "");
  EXPECT_EQ(second.token(), "") << "a special token";
  EXPECT_EQ(second.special_token(), text_->TokenName(kEos));
  EXPECT_NE(second.special_token(), "");
  EXPECT_EQ(second.alternatives(0).token(), "");
  EXPECT_EQ(second.alternatives(0).special_token(), text_->TokenName(kEos));
}

TEST_F(GenerateSessionTest, PromptLogprobsNameTheTokensAfterTheFirst) {
  request_.set_text("abc");
  request_.mutable_output()->set_prompt_logprobs(0);
  Start();
  Send({.prompt_scores = {{.logprob = -1}}});
  Send({.prompt_scores = {{.logprob = -2}}});
  SendTokens(Bytes("x"), engine::FinishReason::kLength);
  const Answer answer = Finish();
  ASSERT_EQ(answer.prompt_logprobs.size(), 2u);
  v1::TokenLogprob logprob;
  ASSERT_TRUE(logprob.ParseFromString(answer.prompt_logprobs[1]));
  EXPECT_EQ(logprob.token_id(), static_cast<uint32_t>('c'));
  EXPECT_EQ(logprob.logprob(), -2);
}

TEST_F(GenerateSessionTest, PromptTokensAreAllOfThemBeforeTheLogprobs) {
  request_.set_text("abc");
  request_.mutable_output()->set_prompt_tokens(true);
  request_.mutable_output()->set_prompt_logprobs(0);
  Start();
  Send({.started = true});
  for (int i = 0; i < 2; ++i) Send({.prompt_scores = {{.logprob = -1}}});
  SendTokens(Bytes("x"), engine::FinishReason::kLength);
  const Answer answer = Finish();
  std::string text;
  for (const std::string& serialized : answer.prompt_tokens) {
    v1::PromptToken token;
    ASSERT_TRUE(token.ParseFromString(serialized));
    text += token.token();
  }
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(answer.prompt_tokens.size(), 3u);
  EXPECT_EQ(answer.prompt_logprobs.size(), 2u);
}

TEST_F(GenerateSessionTest, CollectGivesOneResponseWithEverything) {
  request_.mutable_output()->set_collect(true);
  request_.mutable_stopping()->set_max_tokens(50);
  Start();
  SendTokens(Bytes("ab"));
  SendTokens(Bytes("c"), engine::FinishReason::kLength);
  const Answer answer = Finish();
  ASSERT_EQ(writer_->responses().size(), 1u);
  EXPECT_TRUE(writer_->responses()[0].has_accepted());
  EXPECT_EQ(writer_->responses()[0].deltas_size(), 1);
  EXPECT_EQ(answer.sequences.at(0).text, "abc");
  EXPECT_TRUE(answer.has_summary);
}

TEST_F(GenerateSessionTest, OnlyCollectTellsThatItIsAcceptedBeforeItsFirstResponse) {
  for (const bool collect : {false, true}) {
    request_.mutable_output()->set_collect(collect);
    request_.mutable_stopping()->set_max_tokens(50);
    Start();
    WaitForPostedWork();
    EXPECT_EQ(writer_->num_accepted(), collect ? 1 : 0);
    SendTokens(Bytes("ab"), engine::FinishReason::kLength);
    Finish();
    EXPECT_EQ(writer_->num_accepted(), collect ? 1 : 0);
  }
}

TEST_F(GenerateSessionTest, CollectThatFailsGivesTheStatusAlone) {
  request_.mutable_output()->set_collect(true);
  request_.mutable_stopping()->set_max_tokens(50);
  Start();
  SendTokens(Bytes("ab"));
  Finish(absl::DeadlineExceededError("late"));
  EXPECT_THAT(writer_->responses(), IsEmpty());
  EXPECT_EQ(writer_->Wait().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GenerateSessionTest, ProgressComesWithAcceptedWhileTheRequestWaits) {
  request_.mutable_output()->set_progress(true);
  writer_ = std::make_unique<RecordingWriter>(&writes_);
  const CallInfo call = {.now = clock_.Now(), .random = testing::CountingRandom()};
  auto generation = PrepareGeneration(request_, call, model_, SaltKey(call.random));
  ASSERT_TRUE(generation.ok());
  EXPECT_TRUE(generation->request.want_progress);
  session_ = GenerateSession::Create(*generation, writer_.get(), {}, &pool_,
                                     {std::shared_ptr<const void>(), &model_}, &clock_);
  writer_->Attach(session_);
  Send({.progress = engine::PromptProgress{.queue_position = 3, .prompt_tokens = 2}});
  WaitForPostedWork();
  ASSERT_EQ(writer_->responses().size(), 1u);
  EXPECT_TRUE(writer_->responses()[0].has_accepted());
  EXPECT_EQ(writer_->responses()[0].progress().queue_position(), 3u);
  Send({.started = true});
  SendTokens(Bytes("x"), engine::FinishReason::kLength);
  EXPECT_EQ(Finish().sequences.at(0).text, "x");
}

TEST_F(GenerateSessionTest, WhatWasGeneratedIsFlushedBeforeAnError) {
  Start();
  SendTokens(Bytes("ab"));
  const Answer answer =
      Finish(protocol::WithReason(absl::UnavailableError("drains"), protocol::kReasonDraining));
  EXPECT_EQ(answer.sequences.at(0).text, "ab");
  EXPECT_FALSE(answer.has_summary);
  EXPECT_EQ(protocol::ReasonOf(writer_->Wait()), protocol::kReasonDraining);
}

TEST_F(GenerateSessionTest, TheLastResponseAndTheStatusComeTogether) {
  Start(/*manual=*/true);
  WaitForPostedWork();
  SendTokens(Bytes("a"));
  SendTokens(Bytes("b"), engine::FinishReason::kLength);
  SendEnd();
  WaitForPostedWork();
  EXPECT_FALSE(writer_->finished()) << "a write is in flight";
  session_->WriteDone(true);
  EXPECT_TRUE(writer_->finished());
  EXPECT_TRUE(writer_->wrote_last());
  ASSERT_EQ(writer_->responses().size(), 2u);
  EXPECT_EQ(writer_->responses()[1].deltas(0).text(), "ab");
  EXPECT_TRUE(writer_->responses()[1].has_summary());
}

TEST_F(GenerateSessionTest, AWholeAnswerIsNotSpoiltByALateError) {
  request_.mutable_stopping()->add_strings("b");
  Start();
  SendTokens(Bytes("ab"));
  const Answer answer = Finish(absl::UnavailableError("drains"));
  EXPECT_TRUE(answer.has_summary);
  EXPECT_TRUE(writer_->Wait().ok());
}

TEST_F(GenerateSessionTest, AReaderWhoIsGoneCancelsTheRequestAndGetsNothingMore) {
  Start(/*manual=*/true);
  WaitForPostedWork();
  session_->WriteDone(false);
  ASSERT_EQ(cancelled_.size(), 1u);
  EXPECT_EQ(cancelled_[0].code(), absl::StatusCode::kCancelled);
  SendTokens(Bytes("ab"));
  SendEnd(cancelled_[0]);
  EXPECT_EQ(writer_->Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(writer_->responses().size(), 1u);
}

TEST_F(GenerateSessionTest, AReaderWhoDoesNotReadIsGivenUpAtTheBound) {
  max_unread_bytes_ = 1 << 20;
  request_.mutable_output()->set_logprobs(20);
  Start(/*manual=*/true);
  WaitForPostedWork();
  int events = 0;
  while (cancelled_.empty() && events < 100) {
    SendScored(256);
    ++events;
  }
  ASSERT_EQ(cancelled_.size(), 1u);
  EXPECT_EQ(cancelled_[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(events, 1);
  WaitForPostedWork();
  ASSERT_EQ(cut_.size(), 1u) << "the write in flight would never end";
  EXPECT_EQ(cut_[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(protocol::ReasonOf(cut_[0]), protocol::kReasonSlowReader);
  SendEnd(cancelled_[0]);
  session_->WriteDone(false);
  EXPECT_EQ(writer_->Wait().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GenerateSessionTest, WhatWaitsAsResponsesCountsAsUnreadToo) {
  max_unread_bytes_ = 4 << 20;
  request_.mutable_output()->set_logprobs(20);
  Start(/*manual=*/true);
  WaitForPostedWork();
  // The events of each round are far below the bound, and one response of each is read.
  int rounds = 0;
  while (cancelled_.empty() && rounds < 20) {
    SendScored(5000);
    WaitForPostedWork();
    session_->WriteDone(true);
    ++rounds;
  }
  ASSERT_EQ(cancelled_.size(), 1u);
  EXPECT_EQ(cancelled_[0].code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GenerateSessionTest, WhatWasReadIsForgotten) {
  max_unread_bytes_ = 4 << 20;
  request_.mutable_output()->set_logprobs(20);
  Start(/*manual=*/true);
  WaitForPostedWork();
  session_->WriteDone(true);
  for (int round = 0; round < 6; ++round) {
    SendScored(5000);
    WaitForPostedWork();
    size_t written = 0;
    while (written != writer_->responses().size()) {
      written = writer_->responses().size();
      session_->WriteDone(true);
    }
  }
  EXPECT_THAT(cancelled_, IsEmpty());
}

TEST_F(GenerateSessionTest, LargeAnswersAreSplitWithoutLoss) {
  model_.max_context_tokens = 100000;
  request_.mutable_stopping()->set_max_tokens(50000);
  request_.mutable_output()->set_logprobs(20);
  Start(/*manual=*/true);
  WaitForPostedWork();
  constexpr int kTokens = 5000;
  std::string text;
  for (int i = 0; i < kTokens; ++i) text.push_back(static_cast<char>('a' + i % 26));
  engine::RequestEvent event;
  engine::SequenceDelta delta = {.index = 0, .finish = engine::FinishReason::kLength};
  for (const char c : text) delta.tokens.push_back(c);
  for (int i = 0; i < kTokens; ++i) {
    delta.scores.push_back({.logprob = static_cast<float>(-i),
                            .alternatives = std::vector<model::TokenAlternative>(20, {'z', -1})});
  }
  event.deltas.push_back(std::move(delta));
  Send(std::move(event));
  SendEnd();
  WaitForPostedWork();
  while (!writer_->finished()) session_->WriteDone(true);
  const Answer answer = AnswerOf(writer_->responses());  // checks the sizes
  EXPECT_GT(writer_->responses().size(), 2u);
  EXPECT_EQ(answer.sequences.at(0).text, text);
  EXPECT_EQ(answer.sequences.at(0).logprobs.size(), static_cast<size_t>(kTokens));
}

TEST_F(GenerateSessionTest, GroupingIntoEventsChangesNothing) {
  std::mt19937 random(5);
  const std::string alphabet = "ab \xC3\xA9\xF0\x9F";
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> tokens(random() % 40);
    for (int32_t& token : tokens) {
      token = static_cast<unsigned char>(alphabet[random() % alphabet.size()]);
    }
    request_.mutable_stopping()->clear_strings();
    for (int i = 0; i < 2; ++i) {
      std::string stop;
      for (size_t k = 0; k < 1 + random() % 4; ++k) stop.push_back("ab "[random() % 3]);
      request_.mutable_stopping()->add_strings(stop);
    }
    std::string first;
    for (int grouping = 0; grouping < 3; ++grouping) {
      finished_by_edge_.clear();
      Start();
      size_t sent = 0;
      while (sent < tokens.size()) {
        const size_t count =
            grouping == 0 ? 1 : std::min<size_t>(1 + random() % 7, tokens.size() - sent);
        SendTokens({tokens.begin() + sent, tokens.begin() + sent + count});
        sent += count;
      }
      engine::RequestEvent end;
      end.deltas.push_back({.index = 0, .finish = engine::FinishReason::kTimeLimit});
      Send(std::move(end));
      const std::string whole = Finish().Comparable();
      if (grouping == 0) first = whole;
      ASSERT_EQ(whole, first) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace continuo::server
