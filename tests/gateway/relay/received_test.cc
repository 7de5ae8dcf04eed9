// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/received.h"

#include <gtest/gtest.h>

namespace continuo::gateway {
namespace {

v1::GenerateResponse Response(uint64_t sequence, uint32_t index, std::vector<uint32_t> ids,
                              v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse response;
  response.set_sequence(sequence);
  v1::Delta& delta = *response.add_deltas();
  delta.set_index(index);
  delta.mutable_token_ids()->Add(ids.begin(), ids.end());
  delta.set_finish_reason(finish);
  return response;
}

TEST(ReceivedTest, MergesIdsOfEachSequenceInOrder) {
  Received received;
  ASSERT_TRUE(received.Add(Response(0, 0, {1, 2})).ok());
  ASSERT_TRUE(received.Add(Response(1, 1, {7})).ok());
  ASSERT_TRUE(received.Add(Response(2, 0, {3}, v1::FINISH_REASON_STOP)).ok());
  const v1::GenerateResponse merged = received.ToProto();
  EXPECT_EQ(merged.sequence(), 2u);
  ASSERT_EQ(merged.deltas_size(), 2);
  EXPECT_EQ(merged.deltas(0).token_ids_size(), 3);
  EXPECT_EQ(merged.deltas(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(received.num_tokens(), 4);
}

TEST(ReceivedTest, NothingOfARefusedResponseIsKept) {
  Received received;
  ASSERT_TRUE(received.Add(Response(0, 1, {9}, v1::FINISH_REASON_STOP)).ok());
  const std::string before = received.ToProto().SerializeAsString();

  v1::GenerateResponse bad = Response(1, 0, {5, 6});
  bad.MergeFrom(Response(1, 1, {7}));  // continues after its end
  EXPECT_FALSE(received.Add(bad).ok());
  EXPECT_EQ(received.ToProto().SerializeAsString(), before);

  v1::GenerateResponse twice = Response(1, 0, {5}, v1::FINISH_REASON_STOP);
  twice.MergeFrom(Response(1, 0, {6}));  // ends within the response and continues
  EXPECT_FALSE(received.Add(twice).ok());
  EXPECT_FALSE(received.Add(Response(2, 0, {5})).ok());  // a gap
  EXPECT_EQ(received.ToProto().SerializeAsString(), before);
  EXPECT_TRUE(received.Add(Response(1, 0, {5})).ok());
}

}  // namespace
}  // namespace continuo::gateway
