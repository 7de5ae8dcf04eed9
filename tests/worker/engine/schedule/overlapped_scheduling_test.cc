// SPDX-License-Identifier: Apache-2.0
// Tests steps that are planned before the tokens of the step in flight are known.
#include <gmock/gmock.h>

#include <vector>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::IsEmpty;

int BeginOverlapped(Harness& h) {
  EXPECT_TRUE(h.scheduler().CanOverlap());
  return h.Begin().num_rows();
}

void ExpectWhole(Harness& h, RequestId id, int index = 0) {
  EXPECT_EQ(h.received(id).answers[static_cast<size_t>(index)], h.Expected(id, index))
      << id << "." << index;
}

// Expects that nothing is left and nothing went wrong.
void ExpectEmpty(Harness& h) {
  EXPECT_TRUE(h.status().ok()) << h.status();
  EXPECT_TRUE(h.scheduler().idle());
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

TEST(OverlappedSchedulingTest, AnAnswerThatEndsByItsLengthComputesNoTokenTooMany) {
  Harness h;
  const RequestId id = h.Add(RequestOf(Tokens(5), 2));
  EXPECT_EQ(h.Begin().num_rows(), 5);
  EXPECT_EQ(BeginOverlapped(h), 1);
  h.Finish();
  EXPECT_EQ(BeginOverlapped(h), 0);  // no step
  EXPECT_EQ(h.scheduler().num_steps_in_flight(), 1);
  h.Finish();
  ExpectWhole(h, id);
  ExpectEmpty(h);
}

TEST(OverlappedSchedulingTest, ACancelledRequestInFlightGivesNoTokenAndReleasesItsBlocks) {
  Harness h;
  const RequestId gone = h.Add(RequestOf(Tokens(6), 9));
  h.Begin();
  BeginOverlapped(h);
  h.scheduler().End(gone, absl::CancelledError("gone"), h.now());
  h.scheduler().Deliver();
  EXPECT_EQ(h.received(gone).ended->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
  // Another one takes the blocks while both steps are in flight.
  const RequestId next = h.Add(RequestOf(Tokens(6, 1), 3));
  h.Finish();
  BeginOverlapped(h);
  h.Finish();
  EXPECT_THAT(h.record().sequences, IsEmpty());
  h.RunOverlappedToEnd();
  EXPECT_THAT(h.received(gone).answers[0], IsEmpty());
  ExpectWhole(h, next);
  ExpectEmpty(h);
}

TEST(OverlappedSchedulingTest, ATokenBeyondAStopIsNotRecorded) {
  Harness h;
  Request request = RequestOf(Tokens(5), 9);
  request.stop_ids = {FakeAnswer(request, 0, h.options().vocab_size)[0]};
  h.Add(request);
  h.Begin();
  BeginOverlapped(h);
  h.Finish();
  ASSERT_EQ(h.record().sequences.size(), 1u);
  EXPECT_EQ(h.record().sequences[0].finish, FinishReason::kStop);
  EXPECT_TRUE(h.scheduler().idle());
  h.Finish();
  EXPECT_THAT(h.record().sequences, IsEmpty());
  ExpectEmpty(h);
}

TEST(OverlappedSchedulingTest, ALostSampleIsMadeAgainWithoutOverlap) {
  Harness h;
  h.leaves_samples = true;
  const RequestId id = h.Add(RequestOf(Tokens(5), 4));
  h.Begin();
  BeginOverlapped(h);
  h.Finish();
  EXPECT_EQ(h.Begin().num_rows(), 1);  // the prompt's last row
  h.Finish();                          // the step that went on without the token is dropped
  EXPECT_THAT(h.received(id).answers[0], IsEmpty());
  EXPECT_FALSE(h.scheduler().CanOverlap());
  h.Finish();
  EXPECT_EQ(h.received(id).answers[0].size(), 1u);
  h.RunOverlappedToEnd();
  ExpectWhole(h, id);
  ExpectEmpty(h);
}

// The prefill leader ends while the first tokens of all siblings are in flight, and these samples
// are then lost: no sibling gets its token twice.
TEST(OverlappedSchedulingTest, SiblingsOfALeaderThatEndsInFlightSampleOnceEach) {
  for (const int prompt : {6, 8}) {
    Harness h;
    h.leaves_samples = true;
    Request request = RequestOf(Tokens(prompt), 5);
    request.num_sequences = 3;
    const RequestId id = h.Add(request);
    EXPECT_EQ(h.Begin().num_rows(), prompt);
    h.scheduler().FinishSequence(id, 0, h.now());
    if (h.scheduler().CanOverlap()) h.Begin();
    h.leaves_samples = false;
    h.Finish();
    h.RunOverlappedToEnd();
    ExpectWhole(h, id, 1);
    ExpectWhole(h, id, 2);
    ExpectEmpty(h);
  }
}

TEST(OverlappedSchedulingTest, WhoYieldsIsDecidedWhenItIsKnownWhoEnds) {
  Harness h(EngineOptions{.max_running = 2});
  h.Add(RequestOf(Tokens(4), 2));
  h.Add(RequestOf(Tokens(4, 1), 9));
  h.Begin();
  BeginOverlapped(h);
  h.Finish();
  // The last token of the first one is in flight.
  Request request = RequestOf(Tokens(4, 2), 2);
  request.priority = 1;
  h.Add(request);
  EXPECT_FALSE(h.scheduler().CanOverlap());
  h.Finish();
  h.RunOverlappedToEnd();
  EXPECT_EQ(h.metrics().preemptions, 0u);
  for (const RequestId id : {1, 2, 3}) ExpectWhole(h, id);
  ExpectEmpty(h);
}

TEST(OverlappedSchedulingTest, NoStepOverlapsWhileABlockIsMissing) {
  Harness h(EngineOptions{.num_blocks = 1});  // of 4 tokens
  h.Add(RequestOf(Tokens(3), 9));
  h.Begin();
  BeginOverlapped(h);
  h.Finish();
  EXPECT_EQ(h.scheduler().pool().num_free(), 0);
  EXPECT_FALSE(h.scheduler().CanOverlap());
  h.scheduler().EndAll(absl::CancelledError("it never fits"), h.now());
  h.Finish();
  ExpectEmpty(h);
}

TEST(OverlappedSchedulingTest, NoStepOverlapsALongOne) {
  Harness h(EngineOptions{.target_step = absl::Milliseconds(100)});
  for (const int milliseconds : {20, 30}) {
    for (int i = 0; i < 9; ++i) {
      h.scheduler().cost().Observe({5, 15, 1}, absl::Milliseconds(milliseconds));
    }
    h.Add(RequestOf(Tokens(5, milliseconds), 9));
    EXPECT_EQ(h.Begin().num_rows(), 5);
    EXPECT_EQ(h.scheduler().CanOverlap(), milliseconds == 20) << h.scheduler().predicted();
    h.Finish();
    h.scheduler().EndAll(absl::CancelledError("the next one"), h.now());
  }
  ExpectEmpty(h);
}

TEST(OverlappedSchedulingTest, BarredSequencesOfTokensWaitForTheLastOneAndOthersDoNot) {
  for (const int length : {1, 2, 3}) {
    Harness h;
    Request request = RequestOf(Tokens(5), 40);
    const std::vector<int32_t> whole = FakeAnswer(request, 0, h.options().vocab_size);
    request.barred = {{whole.begin() + 7, whole.begin() + 7 + length}};
    const RequestId id = h.Add(request);
    h.Begin();
    EXPECT_EQ(h.scheduler().CanOverlap(), length == 1);
    h.RunOverlappedToEnd();
    ExpectWhole(h, id);
    EXPECT_NE(h.received(id).answers[0], whole);
    ExpectEmpty(h);
  }
}

}  // namespace
}  // namespace continuo::engine
