// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/state_pool.h"

#include <gmock/gmock.h>

namespace continuo::engine {
namespace {

class StatePoolTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants(); }

  // Returns a slot that is kept for `block` and that nobody uses.
  StateSlot Keep(BlockId block) {
    const StateSlot slot = pool_.Allocate();
    pool_.KeepForBlock(block, slot);
    pool_.Release(slot);
    return slot;
  }

  StatePool pool_{/*num_slots=*/3, /*num_blocks=*/8};
};

TEST_F(StatePoolTest, ASlotIsFreeAgainAfterItsLastReference) {
  const StateSlot slot = pool_.Allocate();
  pool_.AddReference(slot);
  EXPECT_EQ(pool_.num_references(), 2);
  pool_.Release(slot);
  EXPECT_EQ(pool_.num_used(), 1);
  pool_.Release(slot);
  EXPECT_EQ(pool_.num_free(), 3);
  EXPECT_EQ(pool_.num_kept(), 0);
}

TEST_F(StatePoolTest, ASnapshotOutlivesItsUsers) {
  const StateSlot slot = Keep(5);
  EXPECT_TRUE(pool_.HasSnapshot(5));
  EXPECT_EQ(pool_.num_kept(), 1);
  EXPECT_EQ(pool_.num_free(), 3);
  EXPECT_EQ(pool_.AcquireOfBlock(5), slot);
  EXPECT_EQ(pool_.num_free(), 2);
  pool_.Release(slot);
  EXPECT_TRUE(pool_.HasSnapshot(5));
}

TEST_F(StatePoolTest, EmptySlotsAreHandedOutBeforeSnapshots) {
  const StateSlot kept = Keep(5);
  EXPECT_NE(pool_.Allocate(), kept);
  EXPECT_NE(pool_.Allocate(), kept);
  EXPECT_TRUE(pool_.HasSnapshot(5));
  EXPECT_EQ(pool_.Allocate(), kept);
  EXPECT_FALSE(pool_.HasSnapshot(5));
  EXPECT_EQ(pool_.num_free(), 0);
}

TEST_F(StatePoolTest, TheSnapshotThatWasReleasedFirstGoesFirst) {
  Keep(1);
  Keep(2);
  Keep(3);
  pool_.Release(pool_.AcquireOfBlock(1));  // used once more
  pool_.Allocate();
  EXPECT_TRUE(pool_.HasSnapshot(1));
  EXPECT_FALSE(pool_.HasSnapshot(2));
  pool_.Allocate();
  EXPECT_TRUE(pool_.HasSnapshot(1));
  EXPECT_FALSE(pool_.HasSnapshot(3));
}

TEST_F(StatePoolTest, ASnapshotInUseIsNotHandedOut) {
  Keep(1);
  const StateSlot used = pool_.AcquireOfBlock(1);
  pool_.Allocate();
  pool_.Allocate();
  EXPECT_EQ(pool_.num_free(), 0);
  EXPECT_TRUE(pool_.HasSnapshot(1));
  EXPECT_FALSE(pool_.IsExclusive(used));
}

TEST_F(StatePoolTest, ABlockThatIsHandedOutAnewHasNoSnapshot) {
  Keep(1);
  pool_.DropBlock(1);
  pool_.DropBlock(2);
  EXPECT_FALSE(pool_.HasSnapshot(1));
  EXPECT_EQ(pool_.num_kept(), 0);
}

TEST_F(StatePoolTest, ASnapshotThatIsDroppedWhileInUseIsChangedInPlace) {
  Keep(1);
  const StateSlot used = pool_.AcquireOfBlock(1);
  pool_.DropBlock(1);
  EXPECT_TRUE(pool_.IsExclusive(used));
  pool_.Release(used);
  EXPECT_EQ(pool_.num_kept(), 0);
}

TEST_F(StatePoolTest, ASecondSnapshotOfABlockIsNotKept) {
  const StateSlot first = Keep(1);
  const StateSlot second = Keep(1);
  EXPECT_NE(first, second);
  EXPECT_EQ(pool_.num_kept(), 1);
  EXPECT_EQ(pool_.AcquireOfBlock(1), first);
}

TEST_F(StatePoolTest, ThePromptsStateIsThereUntilTheSlotIsNeeded) {
  const StateSlot slot = pool_.Allocate();
  const KeptState kept = pool_.KeepForPrompt(slot);
  EXPECT_FALSE(pool_.IsExclusive(slot));
  pool_.Release(slot);
  EXPECT_TRUE(pool_.IsThere(kept));
  EXPECT_EQ(pool_.AcquireOfPrompt(kept), slot);
  pool_.Release(slot);
  for (int i = 0; i < 3; ++i) pool_.Allocate();
  EXPECT_FALSE(pool_.IsThere(kept));
  pool_.DropPrompt(kept);  // does nothing: the slot is another's
  EXPECT_EQ(pool_.num_free(), 0);
}

TEST_F(StatePoolTest, OneStateIsKeptForABlockAndAPrompt) {
  const StateSlot slot = pool_.Allocate();
  pool_.KeepForBlock(1, slot);
  const KeptState kept = pool_.KeepForPrompt(slot);
  pool_.Release(slot);
  pool_.DropPrompt(kept);
  EXPECT_TRUE(pool_.HasSnapshot(1));
  EXPECT_EQ(pool_.num_kept(), 1);
  EXPECT_FALSE(pool_.IsThere(KeptState()));
}

TEST_F(StatePoolTest, SeveralRequestsKeepOneState) {
  const StateSlot slot = pool_.Allocate();
  const KeptState one = pool_.KeepForPrompt(slot), other = pool_.KeepForPrompt(slot);
  pool_.Release(slot);
  pool_.DropPrompt(one);
  EXPECT_TRUE(pool_.IsThere(other));
  EXPECT_EQ(pool_.num_kept(), 1);
  pool_.DropPrompt(other);
  EXPECT_FALSE(pool_.IsThere(other));
  EXPECT_EQ(pool_.num_kept(), 0);
  EXPECT_EQ(pool_.num_free(), 3);
}

}  // namespace
}  // namespace continuo::engine
