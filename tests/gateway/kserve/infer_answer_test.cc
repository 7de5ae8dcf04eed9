// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace continuo::gateway::kserve {
namespace {

using ::testing::ElementsAre;

v1::GenerateResponse Delta(const std::string& text, std::vector<uint32_t> ids,
                           v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED,
                           uint32_t index = 0) {
  v1::GenerateResponse response;
  v1::Delta* const delta = response.add_deltas();
  delta->set_index(index);
  delta->set_text(text);
  delta->mutable_token_ids()->Assign(ids.begin(), ids.end());
  delta->set_finish_reason(reason);
  return response;
}

TEST(InferAnswerTest, OneResponseHasEverySequence) {
  InferCall call;
  call.id = "a";
  call.has_num_input_tokens = call.has_num_output_tokens = true;
  call.echo = "Q: ";
  InferAnswer answer(call);
  v1::GenerateResponse all = Delta("one", {1, 2}, v1::FINISH_REASON_STOP);
  all.MergeFrom(Delta("two", {3}, v1::FINISH_REASON_LENGTH, 1));
  all.mutable_accepted()->set_model("m");
  all.mutable_summary()->mutable_usage()->set_prompt_tokens(11);
  const auto told = answer.Add(all);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->model_name(), "m");
  EXPECT_EQ(told->model_version(), "1");
  EXPECT_EQ(told->id(), "a");
  EXPECT_TRUE(told->parameters().empty());
  ASSERT_EQ(told->outputs_size(), 4);
  EXPECT_EQ(told->outputs(0).name(), "text_output");
  EXPECT_EQ(told->outputs(0).datatype(), "BYTES");
  EXPECT_THAT(told->outputs(0).shape(), ElementsAre(2));
  EXPECT_THAT(told->outputs(0).contents().bytes_contents(), ElementsAre("Q: one", "Q: two"));
  EXPECT_THAT(told->outputs(1).contents().bytes_contents(), ElementsAre("stop", "length"));
  EXPECT_THAT(told->outputs(2).contents().uint_contents(), ElementsAre(11u));
  EXPECT_THAT(told->outputs(3).contents().uint_contents(), ElementsAre(3u));
  EXPECT_FALSE(answer.End().has_value());
}

TEST(InferAnswerTest, AStreamTellsWhatIsNew) {
  InferCall call;
  call.stream = call.wants_final = true;
  call.echo = "Q: ";
  InferAnswer answer(call);
  EXPECT_FALSE(answer.Add(Delta("", {1})).has_value());  // held back
  const auto first = answer.Add(Delta("on", {2}));
  ASSERT_TRUE(first.has_value());
  EXPECT_THAT(first->outputs(0).contents().bytes_contents(), ElementsAre("Q: on"));
  EXPECT_THAT(first->outputs(1).contents().bytes_contents(), ElementsAre(""));
  EXPECT_FALSE(first->parameters().at("triton_final_response").bool_param());
  const auto last = answer.Add(Delta("", {}, v1::FINISH_REASON_STOP));
  ASSERT_TRUE(last.has_value());
  EXPECT_THAT(last->outputs(0).contents().bytes_contents(), ElementsAre(""));
  EXPECT_THAT(last->outputs(1).contents().bytes_contents(), ElementsAre("stop"));
  const auto end = answer.End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->outputs_size(), 0);
  EXPECT_TRUE(end->parameters().at("triton_final_response").bool_param());
}

TEST(InferAnswerTest, RawOutputsForRawInputs) {
  InferCall call;
  call.is_raw = call.has_num_output_tokens = true;
  call.has_finish_reason = false;
  InferAnswer answer(call);
  const auto told = answer.Add(Delta("abc", {1, 2, 3}));
  ASSERT_TRUE(told.has_value());
  EXPECT_THAT(told->raw_output_contents(),
              ElementsAre(std::string("\3\0\0\0abc", 7), std::string("\3\0\0\0", 4)));
  EXPECT_FALSE(told->outputs(0).has_contents());
}

}  // namespace
}  // namespace continuo::gateway::kserve
