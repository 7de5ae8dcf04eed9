// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/step_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/gateway/openai/steps/steps.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using Json = nlohmann::json;

TEST(StepJsonTest, AStepTellsItsSequences) {
  v1::Step step = StepOf(3);
  v1::StepSequence& ended = *step.add_sequences();
  ended.set_request_id(MadeId(0xabc) + "-1");
  ended.set_index(2);
  ended.set_preempted(true);
  ended.set_finish_reason(v1::FINISH_REASON_STOP);
  EXPECT_EQ(Json::parse(StepJson(step, StepIds())), Json::parse(R"({
    "number": 3, "start": 1700000000.25, "seconds": 0.02, "waiting": 2, "kv_blocks_used": 7,
    "sequences": [
      {"id": "00000000", "prompt_tokens": 10, "cached_tokens": 13, "new_tokens": 1,
       "generated_tokens": 3},
      {"id": "00000abc-1", "index": 2, "prompt_tokens": 0, "cached_tokens": 0, "new_tokens": 0,
       "generated_tokens": 0, "preempted": true, "finish": "stop"}]})"));
}

TEST(StepJsonTest, IdsOfOthersDiscloseNothing) {
  const StepIds ids, others;
  for (const std::string id : {"alice@example.org", "req-", "req-0123", "", "\"},{", "req-z",
                               "req-0123456789abcdef0123456789abcdef-secret",
                               "req-0123456789abcdef0123456789abcdefsecret"}) {
    EXPECT_THAT(ids.Short(id), MatchesRegex("[0-9a-f]{8}")) << id;
    EXPECT_EQ(ids.Short(id), ids.Short(id));
    EXPECT_NE(ids.Short(id), others.Short(id)) << id;
  }
  EXPECT_NE(ids.Short("a"), ids.Short("b"));
  // An id of random bits is told in part, so that its owner finds it and nobody else has it.
  EXPECT_EQ(ids.Short("req-0123456789abcdef0123456789abcdef"), "01234567");
  EXPECT_EQ(ids.Short("req-0123456789abcdef0123456789abcdef-12"), "01234567-12");
}

TEST(StepJsonTest, AReasonThatIsNotKnownIsANumber) {
  v1::Step step = StepOf(1);
  step.mutable_sequences(0)->set_finish_reason(static_cast<v1::FinishReason>(1000));
  EXPECT_EQ(Json::parse(StepJson(step, StepIds()))["sequences"][0]["finish"], "1000");
}

TEST(StepJsonTest, AWorkerIsToldWithoutItsAddress) {
  const std::string json = WatchedWorkerJson({.address = "10.0.0.1:50051",
                                              .worker = "w\"0",
                                              .model = "m",
                                              .total_kv_blocks = 100,
                                              .block_size_tokens = 16,
                                              .max_running_requests = 8});
  EXPECT_THAT(json, Not(HasSubstr("10.0.0.1")));
  EXPECT_EQ(Json::parse(json), Json::parse(R"({"worker": "w\"0", "model": "m", "max_running": 8,
                                               "kv_blocks_total": 100, "block_size_tokens": 16})"));
}

}  // namespace
}  // namespace continuo::gateway::openai
