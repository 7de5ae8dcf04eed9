// SPDX-License-Identifier: Apache-2.0
// Tests the engine with an asynchronous executor: while a step runs, the next one is started and
// the events of the last one are delivered.
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "services/worker/engine/draft/prompt_lookup.h"
#include "services/worker/engine/engine.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/forwarding_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/scripted_constraint.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;

constexpr int kVocab = 50;

// Notes the order of steps and how many tokens had been delivered by then: "start 2 after 0".
class WatchedExecutor : public ForwardingExecutor {
 public:
  WatchedExecutor(model::Executor* executor, const std::vector<int32_t>* given)
      : ForwardingExecutor(executor), given_(*given) {}

  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override {
    Note("start", ++num_started_);
    if (num_started_ == fails_at_) return absl::InternalError("the device is lost");
    return ForwardingExecutor::Start(plan, fill_mask);
  }
  absl::StatusOr<model::StepResult> Finish() override {
    Note("finish", ++num_finished_);
    return ForwardingExecutor::Finish();
  }
  void FailAtStart(int step) { fails_at_ = step; }
  // Called after the engine has ended.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Note(const char* what, int step) {
    notes_.push_back(absl::StrCat(what, " ", step, " after ", given_.size()));
  }

  const std::vector<int32_t>& given_;
  std::vector<std::string> notes_;
  int num_started_ = 0, num_finished_ = 0, fails_at_ = 0;
};

class OverlappedEngineTest : public ::testing::Test {
 protected:
  OverlappedEngineTest() {
    options_.num_blocks = 64;
    options_.block_size = 4;
    options_.vocab_size = kVocab;
    options_.calibrate = false;
  }
  static Request Asking(int max_tokens) {
    Request request;
    request.id = 1;
    request.prompt = {1, 2, 3};
    request.max_tokens = max_tokens;
    return request;
  }
  // Runs one request, and returns how it ended.
  absl::Status Answer(const Request& request) {
    Engine engine(options_, &executor_, &clock_, &metrics_);
    absl::Notification done;
    absl::Status ended;
    EXPECT_TRUE(engine
                    .Submit(request,
                            [&](RequestEvent event) {
                              for (const SequenceDelta& delta : event.deltas) {
                                given_.insert(given_.end(), delta.tokens.begin(),
                                              delta.tokens.end());
                              }
                              if (!event.ended) return;
                              ended = *event.ended;
                              done.Notify();
                            })
                    .ok());
    std::thread thread([&] { run_ = engine.Run(); });
    done.WaitForNotification();
    engine.Stop();
    thread.join();
    return ended;
  }

  EngineOptions options_;
  ManualClock clock_;
  EngineMetrics metrics_;
  std::vector<int32_t> given_;
  absl::Status run_;
  FakeExecutor fake_{
      {.num_blocks = 64, .block_size = 4, .vocab_size = kVocab, .is_asynchronous = true}};
  WatchedExecutor executor_{&fake_, &given_};
};

TEST_F(OverlappedEngineTest, TheNextStepStartsBeforeTheTokensOfTheLastOneAreKnown) {
  const Request request = Asking(4);
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
  EXPECT_THAT(
      executor_.notes(),
      ElementsAre("start 1 after 0", "start 2 after 0", "finish 1 after 0", "start 3 after 0",
                  "finish 2 after 1", "start 4 after 1", "finish 3 after 2", "finish 4 after 3"));
}

TEST_F(OverlappedEngineTest, AStepBeyondAStopIsDroppedAndDoesNotDelayTheEnd) {
  Request request = Asking(8);
  const std::vector<int32_t> whole = FakeAnswer(request, 0, kVocab);
  ASSERT_NE(whole[0], whole[1]);
  request.stop_ids = {whole[1]};
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_THAT(given_, ElementsAre(whole[0], whole[1]));
  EXPECT_THAT(executor_.notes(),
              ElementsAre("start 1 after 0", "start 2 after 0", "finish 1 after 0",
                          "start 3 after 0", "finish 2 after 1", "finish 3 after 2"));
  EXPECT_EQ(metrics_.kv_blocks_used, 0);
}

// The device itself adds the token in flight to the penalties.
TEST_F(OverlappedEngineTest, PenaltiesDelayNoStep) {
  Request request = Asking(4);
  request.sampling.frequency_penalty = 1;
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
  EXPECT_THAT(
      executor_.notes(),
      ElementsAre("start 1 after 0", "start 2 after 0", "finish 1 after 0", "start 3 after 0",
                  "finish 2 after 1", "start 4 after 1", "finish 3 after 2", "finish 4 after 3"));
}

TEST_F(OverlappedEngineTest, MaskedStepsGiveTheSameTokens) {
  Request request = Asking(6);
  request.min_tokens = 3;
  request.stop_ids = {4, 5, 6};
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
}

// The mask of the next token depends on the one in flight.
TEST_F(OverlappedEngineTest, AConstrainedStepWaitsForTheTokenBefore) {
  Request request = Asking(9);
  Constrain(request, Multiples(7, 3));
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
  EXPECT_THAT(executor_.notes(),
              ElementsAre("start 1 after 0", "finish 1 after 0", "start 2 after 0",
                          "finish 2 after 1", "start 3 after 1", "finish 3 after 2"));
  EXPECT_EQ(metrics_.constrained_samples, 3u);
  uint64_t masked_steps = 0;
  for (size_t i = 0; i <= metrics_.mask_seconds.bounds().size(); ++i) {
    masked_steps += metrics_.mask_seconds.count(i);
  }
  EXPECT_EQ(masked_steps, 3u);
}

TEST_F(OverlappedEngineTest, AStepThatFailsLosesNothingThatWasKnownBefore) {
  executor_.FailAtStart(4);
  const Request request = Asking(6);
  EXPECT_EQ(Answer(request).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(run_.code(), absl::StatusCode::kInternal);
  std::vector<int32_t> expected = FakeAnswer(request, 0, kVocab);
  expected.resize(2);
  EXPECT_EQ(given_, expected);
}

// A drafter that is slow and proposes nothing.
class SlowDrafter : public Drafter {
 public:
  SlowDrafter(ManualClock* clock, const std::vector<int32_t>* given)
      : clock_(*clock), given_(*given) {}
  void Propose(const Sequence&, int, std::vector<int32_t>& drafts) override { drafts.clear(); }
  bool works_in_batches() const override { return true; }
  void Prepare(std::span<const DraftAsk> asks) override {
    ++num_asked;
    EXPECT_EQ(static_cast<int>(given_.size()), NumAnswered(*asks[0].sequence));
    clock_.Advance(absl::Seconds(1));
  }
  int num_asked = 0;

 private:
  ManualClock& clock_;
  const std::vector<int32_t>& given_;
};

// Sampled tokens are delivered before the drafter works, and its time does not count as step time.
TEST_F(OverlappedEngineTest, TokensThatAreKnownDoNotWaitForADrafter) {
  const auto drafter = std::make_shared<SlowDrafter>(&clock_, &given_);
  options_.drafter = drafter;
  const Request request = Asking(200);
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
  EXPECT_GT(drafter->num_asked, 3);
  EXPECT_EQ(metrics_.step_seconds.sum(), 0);
}

// Drafts are asked for again and again; the steps in between are overlapped.
TEST_F(OverlappedEngineTest, MoreAndMoreStepsOverlapWhileNoDraftsAreFound) {
  options_.drafter = std::make_shared<PromptLookup>();
  const Request request = Asking(40);
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
  int steps = 0, overlapped = 0, in_flight = 0;
  for (const std::string& note : executor_.notes()) {
    const bool starts = note.starts_with("start");
    steps += starts;
    overlapped += starts && in_flight == 1;
    in_flight += starts ? 1 : -1;
  }
  EXPECT_EQ(metrics_.draft_tokens, 0u);
  EXPECT_GE(overlapped, steps / 2);
  EXPECT_LE(overlapped, steps - 4);
}

}  // namespace
}  // namespace continuo::engine
