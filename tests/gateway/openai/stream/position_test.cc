// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/position.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {
namespace {

v1::GenerateResponse SomeBatch() {
  v1::GenerateResponse batch;
  for (int i = 0; i < 3; ++i) batch.add_prompt_tokens()->set_token_id(i);
  for (int i = 0; i < 2; ++i) batch.add_prompt_logprobs()->set_token_id(i);
  v1::Delta& delta = *batch.add_deltas();
  delta.set_index(4);
  for (int i = 0; i < 5; ++i) delta.add_token_ids(10 + i);
  for (int i = 0; i < 5; ++i) delta.add_logprobs()->set_token_id(10 + i);
  delta.set_reasoning("why");
  delta.set_text("because");
  for (int i = 0; i < 2; ++i) {
    v1::ToolCall& call = *delta.add_tool_calls();
    call.set_index(i);
    call.set_id(absl::StrCat("call", i));
    call.set_name("f");
    call.set_arguments("{\"a\":1}");
  }
  delta.set_finish_reason(v1::FINISH_REASON_STOP);
  delta.set_stop_sequence("s");
  return batch;
}

Amount RandomPart(const Amount& whole, std::mt19937& random) {
  Amount part;
  for (size_t i = 0; i < part.of.size(); ++i) part.of[i] = random() % (whole.of[i] + 1);
  return part;
}

TEST(PositionTest, PartsMakeTheWholeHoweverTheyWereCut) {
  std::mt19937 random(1);
  const v1::GenerateResponse whole = SomeBatch();
  const Amount amount = AmountOf(whole);
  EXPECT_EQ(amount.of[Amount::kCalls], 2u);
  EXPECT_EQ(amount.of[Amount::kArguments], 14u);
  DeliveredHash at_once;
  at_once.Add(whole);
  for (int round = 0; round < 200; ++round) {
    v1::GenerateResponse rest = whole, joined;
    DeliveredHash in_parts;
    Amount sum;
    for (int i = 0; i < 3; ++i) {
      Amount part = i < 2 ? RandomPart(AmountOf(rest), random) : AmountOf(rest);
      // Arguments come behind the begin of their call.
      const uint64_t calls = sum.of[Amount::kCalls] + part.of[Amount::kCalls];
      if (sum.of[Amount::kArguments] + part.of[Amount::kArguments] > 7 * calls) {
        part.of[Amount::kArguments] = 0;
      }
      if (sum.of[Amount::kArguments] + part.of[Amount::kArguments] < 7 && calls == 2 && i < 2) {
        part.of[Amount::kCalls] = 0;
        part.of[Amount::kArguments] = 0;
      }
      v1::GenerateResponse first = TakeFirst(part, &rest);
      EXPECT_EQ(AmountOf(first), part);
      sum += part;
      in_parts.Add(first);
      Append(std::move(first), &joined);
    }
    EXPECT_EQ(sum, amount);
    EXPECT_EQ(in_parts.value(), at_once.value());
    EXPECT_EQ(joined.SerializeAsString(), whole.SerializeAsString());
    EXPECT_TRUE(AmountOf(rest).is_zero());
  }
}

TEST(PositionTest, WhatCountsForNothingStays) {
  v1::GenerateResponse batch;
  batch.mutable_accepted()->set_model("m");
  batch.mutable_summary();
  const v1::GenerateResponse before = batch;
  EXPECT_TRUE(AmountOf(batch).is_zero());
  EXPECT_EQ(TakeFirst(AmountOf(SomeBatch()), &batch).ByteSizeLong(), 0u);
  EXPECT_EQ(batch.SerializeAsString(), before.SerializeAsString());
}

TEST(PositionTest, EachKindHasAHashOfItsOwn) {
  const auto text = [](const char* t) {
    v1::GenerateResponse batch;
    batch.add_deltas()->set_text(t);
    DeliveredHash value;
    value.Add(batch);
    return value.value();
  };
  v1::GenerateResponse thought;
  thought.add_deltas()->set_reasoning("a");
  DeliveredHash of_thought;
  of_thought.Add(thought);
  EXPECT_NE(of_thought.value(), text("a"));
  EXPECT_NE(text("a"), text("b"));
  EXPECT_NE(text("ab"), text("ba"));
}

TEST(PositionTest, PiecesOfACallAreJoined) {
  v1::Delta delta;
  for (const char* const piece : {"{", "\"a\"", ":1}"}) {
    v1::ToolCall& call = *delta.add_tool_calls();
    if (delta.tool_calls_size() == 1) call.set_id("id");
    call.set_arguments(piece);
  }
  delta.add_tool_calls()->set_index(1);
  JoinPieces(&delta);
  ASSERT_EQ(delta.tool_calls_size(), 2);
  EXPECT_EQ(delta.tool_calls(0).arguments(), "{\"a\":1}");
}

}  // namespace
}  // namespace continuo::gateway::openai
