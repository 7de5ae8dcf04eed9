// SPDX-License-Identifier: Apache-2.0
// A step planned before the tokens of the one under way are known.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tests/worker/engine/harness.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A scheduler driven by hand on a fake device that works apart.
class ScheduleAheadTest : public ::testing::Test {
 protected:
  explicit ScheduleAheadTest(int num_blocks = 64) {
    options_.num_blocks = num_blocks;
    options_.block_size = 4;
    options_.vocab_size = 50;
    Restart();
  }
  void Restart() {
    executor_ = std::make_unique<FakeExecutor>(
        FakeExecutorOptions{.num_blocks = options_.num_blocks,
                            .block_size = options_.block_size,
                            .vocab_size = options_.vocab_size,
                            .works_apart = true,
                            .leaves_draw = [this] { return leaves_draws_; }});
    scheduler_ = std::make_unique<Scheduler>(options_, &metrics_);
  }
  Moment Now() const { return {clock_.Now(), clock_.Elapsed()}; }

  void Add(Request request) {
    const RequestId id = request.id;
    requests_[id] = request;
    heard_[id].resize(static_cast<size_t>(request.num_sequences));
    scheduler_->Add(
        std::move(request),
        [this, id](RequestEvent event) {
          for (const SequenceDelta& delta : event.deltas) {
            auto& answer = heard_[id][static_cast<size_t>(delta.index)];
            answer.insert(answer.end(), delta.tokens.begin(), delta.tokens.end());
          }
          if (event.ended) ended_[id] = event.ended->code();
        },
        clock_.Elapsed(), Now());
  }
  // Number of rows of the step that begins.
  int Begin() {
    const StepPlan& plan = scheduler_->Schedule(Now());
    EXPECT_TRUE(scheduler_->CheckInvariants().ok()) << scheduler_->CheckInvariants();
    scheduler_->Deliver();
    if (plan.num_rows() == 0) return 0;
    const absl::Status status =
        executor_->Start(plan, [&](std::span<uint32_t> mask) { scheduler_->FillMask(mask); });
    EXPECT_TRUE(status.ok()) << status;
    return plan.num_rows();
  }
  int BeginAhead() {
    EXPECT_TRUE(scheduler_->MayGoAhead());
    return Begin();
  }
  void Finish() {
    auto result = executor_->Finish();
    ASSERT_TRUE(result.ok()) << result.status();
    clock_.Advance(absl::Milliseconds(1));
    const absl::Status status =
        scheduler_->Commit(*std::move(result), Now(), absl::Milliseconds(1));
    ASSERT_TRUE(status.ok()) << status;
    scheduler_->Describe(record_);
    scheduler_->Deliver();
    EXPECT_TRUE(scheduler_->CheckInvariants().ok()) << scheduler_->CheckInvariants();
  }
  void RunToEnd() {
    for (int step = 0; step < 1000 && !scheduler_->idle(); ++step) {
      if (scheduler_->num_under_way() == 0) Begin();
      if (scheduler_->MayGoAhead()) Begin();
      Finish();
    }
    while (scheduler_->num_under_way() > 0) Finish();
    EXPECT_TRUE(scheduler_->idle());
    EXPECT_EQ(scheduler_->pool().num_used(), 0);
  }
  std::vector<int32_t> Expected(RequestId id, int index = 0) {
    return FakeAnswer(requests_[id], index, options_.vocab_size);
  }
  static Request Asking(RequestId id, int prompt, int max_tokens) {
    Request request = RequestOf(Tokens(prompt, static_cast<int>(id)), max_tokens);
    request.id = id;
    return request;
  }

  EngineOptions options_;
  ManualClock clock_;
  EngineMetrics metrics_;
  bool leaves_draws_ = false;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  StepRecord record_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, std::vector<std::vector<int32_t>>> heard_;
  std::map<RequestId, absl::StatusCode> ended_;
};

TEST_F(ScheduleAheadTest, AnAnswerThatEndsByItsLengthHasNoRowTooMuch) {
  Add(Asking(1, 5, 2));
  EXPECT_EQ(Begin(), 5);
  EXPECT_EQ(BeginAhead(), 1);
  Finish();
  EXPECT_EQ(BeginAhead(), 0);  // no step
  EXPECT_EQ(scheduler_->num_under_way(), 1);
  Finish();
  EXPECT_EQ(heard_[1][0], Expected(1));
  RunToEnd();
}

TEST_F(ScheduleAheadTest, WhatIsCancelledUnderWayGivesNothingMoreAndItsBlocksAtOnce) {
  Add(Asking(1, 6, 9));
  Begin();
  BeginAhead();
  scheduler_->End(1, absl::CancelledError("gone"), Now());
  scheduler_->Deliver();
  EXPECT_EQ(ended_[1], absl::StatusCode::kCancelled);
  EXPECT_EQ(scheduler_->pool().num_used(), 0);
  // Another one takes the blocks while both steps are under way.
  Add(Asking(2, 6, 3));
  Finish();
  BeginAhead();
  Finish();
  EXPECT_THAT(record_.sequences, IsEmpty());
  RunToEnd();
  EXPECT_THAT(heard_[1][0], IsEmpty());
  EXPECT_EQ(heard_[2][0], Expected(2));
}

TEST_F(ScheduleAheadTest, ARowBeyondAStopIsNotRecorded) {
  Request request = Asking(1, 5, 9);
  requests_[1] = request;
  request.stop_ids = {Expected(1)[0]};
  Add(request);
  Begin();
  BeginAhead();
  Finish();
  ASSERT_EQ(record_.sequences.size(), 1u);
  EXPECT_EQ(record_.sequences[0].finish, FinishReason::kStop);
  EXPECT_TRUE(scheduler_->idle());
  Finish();
  EXPECT_THAT(record_.sequences, IsEmpty());
  RunToEnd();
}

TEST_F(ScheduleAheadTest, ALostDrawIsMadeAgainAndAwaitedThen) {
  Add(Asking(1, 5, 4));
  leaves_draws_ = true;
  Begin();
  BeginAhead();
  Finish();
  EXPECT_THAT(heard_[1][0], IsEmpty());
  EXPECT_EQ(Begin(), 1);  // the prompt's last row
  Finish();               // what went on without the token is dropped
  EXPECT_THAT(heard_[1][0], IsEmpty());
  EXPECT_FALSE(scheduler_->MayGoAhead());
  Finish();
  EXPECT_EQ(heard_[1][0].size(), 1u);
  RunToEnd();
  EXPECT_EQ(heard_[1][0], Expected(1));
}

// The one that reads the prompt for all ends while the first tokens of all are under way, and these
// are then lost: nobody's token is given twice.
TEST_F(ScheduleAheadTest, SiblingsOfAReaderThatEndsUnderWayDrawOnceEach) {
  for (const int prompt : {6, 8}) {
    Restart();
    heard_.clear();
    Request request = Asking(1, prompt, 5);
    request.num_sequences = 3;
    Add(request);
    leaves_draws_ = true;
    EXPECT_EQ(Begin(), prompt);
    scheduler_->FinishSequence(1, 0, Now());
    if (scheduler_->MayGoAhead()) Begin();
    leaves_draws_ = false;
    Finish();
    RunToEnd();
    for (const int index : {1, 2}) {
      EXPECT_EQ(heard_[1][static_cast<size_t>(index)], Expected(1, index)) << index;
    }
  }
}

TEST_F(ScheduleAheadTest, WhoGivesWayIsDecidedWhenItIsKnownWhoEnds) {
  options_.max_running = 2;
  Restart();
  Add(Asking(1, 4, 2));
  Add(Asking(2, 4, 9));
  Begin();
  BeginAhead();
  Finish();
  // The first one's last token is under way.
  Request request = Asking(3, 4, 2);
  request.priority = 1;
  Add(request);
  EXPECT_FALSE(scheduler_->MayGoAhead());
  Finish();
  RunToEnd();
  EXPECT_EQ(metrics_.preemptions, 0u);
  for (const RequestId id : {1, 2, 3}) EXPECT_EQ(heard_[id][0], Expected(id));
}

TEST_F(ScheduleAheadTest, WithoutABlockForTheNextRowTheTokensAreAwaited) {
  options_.num_blocks = 3;
  Restart();
  Add(Asking(1, 4, 3));
  Add(Asking(2, 3, 2));
  Begin();
  BeginAhead();  // the first one's second block, the last that is free
  Finish();
  EXPECT_EQ(scheduler_->pool().num_free(), 0);
  EXPECT_TRUE(scheduler_->MayGoAhead());  // nobody needs one more
  RunToEnd();
  EXPECT_EQ(metrics_.preemptions, 0u);
  for (const RequestId id : {1, 2}) EXPECT_EQ(heard_[id][0], Expected(id));
}

TEST_F(ScheduleAheadTest, NoStepIsBegunBehindALongOne) {
  options_.target_step = absl::Milliseconds(100);
  Restart();
  for (const int milliseconds : {20, 30}) {
    for (int i = 0; i < 9; ++i) {
      scheduler_->cost().Observe({5, 15, 1}, absl::Milliseconds(milliseconds));
    }
    Add(Asking(milliseconds, 5, 9));
    EXPECT_EQ(Begin(), 5);
    EXPECT_EQ(scheduler_->MayGoAhead(), milliseconds == 20) << scheduler_->predicted();
    Finish();
    scheduler_->EndAll(absl::CancelledError("the next one"), Now());
  }
}

}  // namespace
}  // namespace continuo
