// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_load_records.h"

#include <gtest/gtest.h>

namespace continuo::server {
namespace {

using Batch = ::smg::grpc::common::KvEventBatch;

class VllmLoadRecordsTest : public ::testing::Test {
 protected:
  VllmLoadRecordsTest() {
    load_.set_running_requests(2);
    load_.set_waiting_requests(1);
    load_.set_pending_prompt_tokens(30);
    load_.set_used_kv_blocks(25);
    load_.set_total_kv_blocks(100);
    load_.set_block_size_tokens(16);
    load_.set_max_running_requests(8);
    load_.set_decode_tokens_per_second(100);
  }
  // Advances the clock. Returns whether a record alone comes, which `batch` has then.
  bool After(VllmLoadRecords& records, absl::Duration time, Batch* batch = nullptr) {
    now_ += time;
    Batch other;
    if (batch == nullptr) batch = &other;
    batch->Clear();
    return records.MayLook(now_) &&
           records.NextAlone(load_, now_, absl::FromUnixMillis(2500), *batch);
  }
  Batch WithEvents(VllmLoadRecords& records, uint64_t number) {
    Batch batch;
    batch.set_sequence_number(number);
    records.AddTo(load_, now_, batch);
    return batch;
  }

  v1::WatchLoadResponse load_;
  absl::Duration now_ = absl::Seconds(7);
};

TEST_F(VllmLoadRecordsTest, ARecordTellsWhatGetLoadsTells) {
  VllmLoadRecords records(std::nullopt, now_);
  const Batch batch = WithEvents(records, 5);
  EXPECT_EQ(batch.sequence_number(), 5u);
  EXPECT_EQ(batch.load().running_requests(), 2u);
  EXPECT_EQ(batch.load().waiting_requests(), 1u);
  EXPECT_EQ(batch.load().waiting_uncached_tokens(), 30u);
  EXPECT_EQ(batch.load().token_usage(), 0.25);
  EXPECT_EQ(batch.load().active_token_usage(), 0.25);
  EXPECT_EQ(batch.load().gen_throughput(), 100);
  EXPECT_EQ(batch.load().max_running_requests(), 8u);
  EXPECT_EQ(batch.load().num_used_tokens(), 400);
  EXPECT_EQ(batch.load().max_total_num_tokens(), 1600);
  EXPECT_EQ(batch.load().sample(), 1u);
  EXPECT_FALSE(batch.load().load_only());
  const Batch next = WithEvents(records, 6);
  EXPECT_EQ(next.load().sample(), 2u);
  EXPECT_FALSE(next.load().has_num_used_tokens());
}

TEST_F(VllmLoadRecordsTest, AChangeIsToldAtTheNextTick) {
  VllmLoadRecords records(std::nullopt, now_);
  WithEvents(records, 5);
  load_.set_running_requests(3);
  EXPECT_FALSE(After(records, absl::Milliseconds(50)));
  Batch batch;
  ASSERT_TRUE(After(records, absl::Milliseconds(50), &batch));
  EXPECT_EQ(batch.sequence_number(), 5u) << "the last one again";
  EXPECT_EQ(batch.timestamp(), 2.5);
  EXPECT_TRUE(batch.has_dp_rank());
  EXPECT_TRUE(batch.load().load_only());
  EXPECT_EQ(batch.load().running_requests(), 3u);
  EXPECT_EQ(batch.load().sample(), 2u);
  EXPECT_TRUE(batch.load().has_num_used_tokens());
  EXPECT_FALSE(After(records, absl::Milliseconds(100)));
  load_.set_decode_tokens_per_second(103);
  EXPECT_FALSE(After(records, absl::Milliseconds(100))) << "too small a change";
  load_.set_decode_tokens_per_second(106);
  EXPECT_TRUE(After(records, absl::Milliseconds(100)));
}

TEST_F(VllmLoadRecordsTest, SilenceLastsASecondAndFiveWhereNothingChanges) {
  VllmLoadRecords records(std::nullopt, now_);
  WithEvents(records, 5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(After(records, absl::Milliseconds(900)));
    EXPECT_TRUE(After(records, absl::Milliseconds(100)));
  }
  EXPECT_FALSE(After(records, absl::Milliseconds(4900)));
  EXPECT_TRUE(After(records, absl::Milliseconds(100)));
  EXPECT_FALSE(After(records, absl::Milliseconds(4900)));
  WithEvents(records, 6);
  EXPECT_TRUE(After(records, absl::Seconds(1))) << "counted anew";
}

TEST_F(VllmLoadRecordsTest, BeforeTheFirstBatchItComesWhereItIsAskedForOrTheNumberIsKnown) {
  VllmLoadRecords unasked(std::nullopt, now_), asked(0, now_), resumed(17, now_);
  EXPECT_FALSE(After(unasked, absl::Hours(1)));
  Batch batch;
  ASSERT_TRUE(After(asked, absl::ZeroDuration(), &batch));
  EXPECT_EQ(batch.sequence_number(), 0u);
  ASSERT_TRUE(After(resumed, absl::ZeroDuration(), &batch));
  EXPECT_EQ(batch.sequence_number(), 17u);
  WithEvents(asked, 9);
  ASSERT_TRUE(After(asked, absl::Seconds(1), &batch));
  EXPECT_EQ(batch.sequence_number(), 9u);
}

}  // namespace
}  // namespace continuo::server
