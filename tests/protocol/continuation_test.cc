// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace continuo::protocol {
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

TEST(ReceivedResponsesTest, MergesIdsOfEachSequenceInOrder) {
  ReceivedResponses received;
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

TEST(ReceivedResponsesTest, NothingOfARejectedResponseIsKept) {
  ReceivedResponses received;
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

TEST(ReceivedResponsesTest, GoesOnAfterTheClientsOwnContinuation) {
  v1::GenerateResponse brought = Response(7, 0, {1, 2});
  brought.mutable_accepted()->set_seed(5);
  ReceivedResponses received;
  received.Begin(brought);
  EXPECT_EQ(received.num_tokens(), 2);
  ASSERT_TRUE(received.Add(Response(8, 0, {3})).ok());
  EXPECT_FALSE(received.Add(Response(10, 0, {4})).ok());
  const v1::GenerateResponse merged = received.ToProto();
  EXPECT_EQ(merged.sequence(), 8u);
  EXPECT_EQ(merged.accepted().seed(), 5u);
  EXPECT_EQ(merged.deltas(0).token_ids_size(), 3);
}

TEST(ReceivedResponsesTest, AContinuationWithoutAcceptedIsNone) {
  ReceivedResponses received;
  received.Begin(Response(7, 0, {1}));
  EXPECT_TRUE(received.nothing());
  EXPECT_EQ(received.ToProto().ByteSizeLong(), 0u);
}

TEST(ReceivedResponsesTest, MergeKeepsWhatAContinuationNeeds) {
  ReceivedResponses merged;
  v1::GenerateResponse response;
  response.set_sequence(4);
  response.mutable_accepted()->set_fingerprint("F");
  response.add_prompt_logprobs()->set_token_id(3);
  v1::Delta& delta = *response.add_deltas();
  delta.set_index(1);
  delta.set_text("text");
  delta.add_token_ids(5);
  delta.add_logprobs()->set_token_id(5);
  merged.Merge(response);
  response.Clear();
  response.set_sequence(5);
  response.mutable_accepted()->set_inexact(true);
  response.add_deltas()->set_index(0);
  v1::Delta& last = *response.add_deltas();
  last.set_index(1);
  last.add_token_ids(6);
  last.set_finish_reason(v1::FINISH_REASON_STOP);
  merged.Merge(response);
  const v1::GenerateResponse received = merged.ToProto();
  EXPECT_EQ(received.sequence(), 5);
  EXPECT_EQ(received.accepted().fingerprint(), "F");
  EXPECT_TRUE(received.accepted().inexact());
  EXPECT_EQ(received.prompt_logprobs_size(), 1);
  ASSERT_EQ(received.deltas_size(), 2);
  EXPECT_EQ(received.deltas(0).text(), "");
  EXPECT_EQ(received.deltas(0).logprobs_size(), 0);
  EXPECT_THAT(received.deltas(0).token_ids(), ::testing::ElementsAre(5, 6));
  EXPECT_EQ(received.deltas(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_FALSE(received.has_summary());
}

}  // namespace
}  // namespace continuo::protocol
