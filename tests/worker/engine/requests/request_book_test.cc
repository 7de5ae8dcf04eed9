// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/request_book.h"

#include <gmock/gmock.h>

#include <utility>
#include <vector>

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class RequestBookTest : public ::testing::Test {
 protected:
  LiveRequest& Add(RequestId id, int num_sequences = 1) {
    Request r;
    r.id = id;
    r.tenant = "t";
    r.prompt = {1, 2, 3};
    r.max_tokens = 4;
    r.num_sequences = num_sequences;
    LiveRequest* live = book_.Add(
        std::move(r), [](RequestEvent) {}, absl::ZeroDuration());
    EXPECT_NE(live, nullptr);
    return *live;
  }
  // Takes the sequence out of the queue, as if it had been admitted.
  void Run(Sequence& s) {
    book_.Dequeue(s);
    book_.MarkAdmitted(*s.request);
    s.state = SequenceState::kRunning;
    book_.OnRunning(s);
  }
  std::vector<SequenceState> States(const LiveRequest& r) {
    std::vector<SequenceState> states;
    for (const Sequence& s : r.sequences) states.push_back(s.state);
    return states;
  }

  EngineMetrics metrics_;
  RequestBook book_{/*max_batch_tokens=*/64, &metrics_};
};

constexpr auto kPending = SequenceState::kPending, kWaiting = SequenceState::kWaiting,
               kRunning = SequenceState::kRunning, kFinished = SequenceState::kFinished;

TEST_F(RequestBookTest, SiblingsArePendingUntilTheLeaderHasThePrompt) {
  LiveRequest& r = Add(1, 3);
  EXPECT_THAT(States(r), ElementsAre(kWaiting, kPending, kPending));
  Run(r.sequences[0]);
  EXPECT_EQ(r.prefill_leader, &r.sequences[0]);
  book_.OnPrefillDone(r);
  EXPECT_EQ(r.prefill_leader, nullptr);
  EXPECT_THAT(States(r), ElementsAre(kRunning, kWaiting, kWaiting));
  EXPECT_EQ(book_.queued_tokens(), 6);
}

TEST_F(RequestBookTest, AnotherSiblingLeadsAfterALeaderThatFinishes) {
  LiveRequest& r = Add(1, 3);
  Run(r.sequences[0]);
  book_.OnFinished(r.sequences[0], /*step=*/1);
  book_.ReplaceLeader(r, /*blocks_transferred=*/false);
  EXPECT_EQ(r.prefill_leader, &r.sequences[1]);
  EXPECT_THAT(States(r), ElementsAre(kFinished, kWaiting, kPending));
  EXPECT_EQ(book_.num_unfinished(), 2);
}

TEST_F(RequestBookTest, NobodyLeadsAfterALeaderThatLeavesTheWholePrompt) {
  LiveRequest& r = Add(1, 3);
  Run(r.sequences[0]);
  book_.OnFinished(r.sequences[0], /*step=*/1);
  r.sequences[1].state = kRunning;  // it has taken the blocks
  book_.ReplaceLeader(r, /*blocks_transferred=*/true);
  EXPECT_EQ(r.prefill_leader, nullptr);
  EXPECT_THAT(States(r), ElementsAre(kFinished, kRunning, kWaiting));
}

TEST_F(RequestBookTest, APreemptedSequenceWaitsUnlessASiblingLeads) {
  LiveRequest& r = Add(1, 2);
  Run(r.sequences[0]);
  book_.OnPrefillDone(r);
  Run(r.sequences[1]);  // without the prompt it leads again
  EXPECT_EQ(r.prefill_leader, &r.sequences[1]);
  book_.Requeue(r.sequences[0]);
  EXPECT_EQ(r.sequences[0].state, kPending);
  book_.Requeue(r.sequences[1]);
  EXPECT_EQ(r.sequences[1].state, kWaiting);
}

TEST_F(RequestBookTest, EachEntryIntoTheQueueGetsANewTicket) {
  LiveRequest& r = Add(1);
  Sequence& s = r.sequences[0];
  const uint64_t first = s.queue_ticket;
  Run(s);
  book_.Requeue(s);
  EXPECT_NE(s.queue_ticket, first);
  EXPECT_NE(Add(2).sequences[0].queue_ticket, s.queue_ticket);
}

TEST_F(RequestBookTest, ARequestLeavesTheQueueOnce) {
  LiveRequest& r = Add(1);
  EXPECT_EQ(book_.waiting_tokens(), 3);
  Run(r.sequences[0]);
  EXPECT_EQ(book_.waiting_tokens(), 0);
  EXPECT_THAT(book_.TakeLeftQueue(), ElementsAre(Pair("t", 3)));
  book_.OnFinished(r.sequences[0], /*step=*/1);
  book_.End(r, absl::OkStatus(), {});
  EXPECT_THAT(book_.TakeLeftQueue(), IsEmpty());
  EXPECT_TRUE(book_.live().empty());
  EXPECT_EQ(book_.tenants().num_live(), 0);
}

TEST_F(RequestBookTest, TokensInFlightThatAreLostAreNotQueued) {
  LiveRequest& r = Add(1);
  Sequence& s = r.sequences[0];
  Run(s);
  s.num_in_flight = 1;
  book_.Requeue(s);
  EXPECT_EQ(book_.queued_tokens(), 4);
  book_.DropInFlight(s);
  EXPECT_EQ(book_.queued_tokens(), 3);
  EXPECT_EQ(NumTokens(s), 3);
}

}  // namespace
}  // namespace continuo::engine
