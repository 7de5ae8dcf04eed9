// SPDX-License-Identifier: Apache-2.0
// Tests sequences that obey a constraint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/testing/oracle_drafter.h"
#include "tests/testing/scripted_constraint.h"
#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kEnd = 49;  // the stop id of these tests

Request Constrained(int salt, int max_tokens, const Script& script) {
  Request request = RequestOf(Tokens(5, salt), max_tokens);
  request.stop_ids = {kEnd};
  Constrain(request, script);
  return request;
}

void ExpectAlone(Harness& h, RequestId id, int index = 0) {
  ASSERT_TRUE(h.status().ok()) << h.status();
  ASSERT_TRUE(h.received(id).ended.has_value());
  EXPECT_TRUE(h.received(id).ended->ok()) << *h.received(id).ended;
  EXPECT_EQ(h.received(id).answers[static_cast<size_t>(index)], h.Expected(id, index));
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

// The constraint has accepted what was delivered, but for the stop id.
void ExpectInStep(const Request& request, std::vector<int32_t> answer, int index = 0) {
  if (!answer.empty() && std::ranges::binary_search(request.stop_ids, answer.back())) {
    answer.pop_back();
  }
  EXPECT_EQ(ConstraintOf(request, index).accepted(), answer);
}

TEST(ConstraintsTest, AnAnswerObeysItsConstraintAndItsNeighbourIsAsAlone) {
  Harness h;
  const Request request = Constrained(1, 60, Balanced(3, 4, 3));
  const RequestId id = h.Add(request), neighbour = h.Add(RequestOf(Tokens(5, 2), 30));
  h.RunToEnd();
  ExpectAlone(h, id);
  ExpectAlone(h, neighbour);
  int depth = 0;
  std::vector<int32_t> answer = h.received(id).answers[0];
  ASSERT_GT(answer.size(), 2u);
  ExpectInStep(request, answer);
  if (answer.back() == kEnd) {
    EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
    answer.pop_back();
  }
  for (const int32_t token : answer) {
    ASSERT_TRUE(token == 3 || token == 4) << token;
    depth += token == 3 ? 1 : -1;
    EXPECT_TRUE(depth >= 0 && depth <= 3);
  }
}

TEST(ConstraintsTest, WhatMustEndEndsWithoutAnEndToken) {
  for (const bool ignores_end : {false, true}) {
    for (const int min_tokens : {0, 4, 20}) {
      Harness h;
      Request request = Constrained(1, 60, Multiples(7, 4));
      if (ignores_end) request.stop_ids.clear();
      request.min_tokens = min_tokens;
      const RequestId id = h.Add(request);
      h.RunToEnd();
      ExpectAlone(h, id);
      EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
      EXPECT_THAT(h.received(id).answers[0], SizeIs(4));
      for (const int32_t token : h.received(id).answers[0]) EXPECT_EQ(token % 7, 0);
      ExpectInStep(request, h.received(id).answers[0]);
    }
  }
}

}  // namespace
}  // namespace continuo::engine
