// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

TEST(CheckGenerateTest, EachFieldOutOfRangeIsNamed) {
  using Request = v1::GenerateRequest;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(Request&)>>> cases = {
      {"request_id", [](Request& r) { r.set_request_id(std::string(129, 'x')); }},
      {"request_id", [](Request& r) { r.set_request_id("line\nbreak"); }},
      {"model", [](Request& r) { r.set_model(std::string(257, 'x')); }},
      {"continuation.received.accepted.model",
       [](Request& r) {
         r.mutable_continuation()->mutable_received()->mutable_accepted()->set_model(
             std::string(257, 'x'));
       }},
      {"continuation.received.deltas",
       [](Request& r) {
         r.mutable_continuation()->mutable_received()->add_deltas()->set_index(128);
       }},
      {"prompt", [](Request& r) { r.clear_prompt(); }},
      {"conversation.messages",
       [](Request& r) {
         for (int i = 0; i <= 16384; ++i) r.mutable_conversation()->add_messages();
       }},
      {"conversation.tools",
       [](Request& r) {
         for (int i = 0; i <= 1024; ++i) r.mutable_conversation()->add_tools();
       }},
      {"conversation.template_arguments",
       [](Request& r) {
         r.mutable_conversation()->set_template_arguments(std::string(65537, ' '));
       }},
      {"priority", [](Request& r) { r.set_priority(101); }},
      {"sampling.temperature", [](Request& r) { r.mutable_sampling()->set_temperature(kNan); }},
      {"sampling.temperature", [](Request& r) { r.mutable_sampling()->set_temperature(-0.1f); }},
      {"sampling.top_p", [](Request& r) { r.mutable_sampling()->set_top_p(0); }},
      {"sampling.top_p", [](Request& r) { r.mutable_sampling()->set_top_p(kNan); }},
      {"sampling.min_p", [](Request& r) { r.mutable_sampling()->set_min_p(1.1f); }},
      {"sampling.num_sequences", [](Request& r) { r.mutable_sampling()->set_num_sequences(0); }},
      {"sampling.num_sequences", [](Request& r) { r.mutable_sampling()->set_num_sequences(129); }},
      {"sampling.repetition_penalty",
       [](Request& r) { r.mutable_sampling()->set_repetition_penalty(0); }},
      {"sampling.presence_penalty",
       [](Request& r) { r.mutable_sampling()->set_presence_penalty(3); }},
      {"sampling.frequency_penalty",
       [](Request& r) { r.mutable_sampling()->set_frequency_penalty(-3); }},
      {"sampling.logit_bias",
       [](Request& r) {
         for (uint32_t i = 0; i < 1025; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
       }},
      {"stopping.strings", [](Request& r) { r.mutable_stopping()->add_strings(""); }},
      {"stopping.strings",
       [](Request& r) { r.mutable_stopping()->add_strings(std::string(257, 'x')); }},
      {"stopping.strings",
       [](Request& r) {
         for (int i = 0; i < 17; ++i) r.mutable_stopping()->add_strings("x");
       }},
      {"stopping.token_ids",
       [](Request& r) {
         for (int i = 0; i < 65; ++i) r.mutable_stopping()->add_token_ids(1);
       }},
      {"output.logprobs", [](Request& r) { r.mutable_output()->set_logprobs(21); }},
      {"output.prompt_logprobs", [](Request& r) { r.mutable_output()->set_prompt_logprobs(21); }},
      {"output.progress",
       [](Request& r) {
         r.mutable_output()->set_collect(true);
         r.mutable_output()->set_progress(true);
       }},
  };
  for (const auto& [field, change] : cases) {
    Request request;
    request.set_text("x");
    EXPECT_TRUE(CheckGenerate(request).ok());
    change(request);
    const absl::Status status = CheckGenerate(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_EQ(protocol::FieldOf(status), field) << status;
  }
}

TEST(EstimatePromptTokensTest, IdsAreCountedAndTextIsFourBytesAToken) {
  v1::GenerateRequest request;
  EXPECT_EQ(EstimatePromptTokens(request), 0);
  request.set_text(std::string(400, 'x'));
  EXPECT_EQ(EstimatePromptTokens(request), 101);
  for (int i = 0; i < 7; ++i) request.mutable_token_ids()->add_ids(1);
  EXPECT_EQ(EstimatePromptTokens(request), 7);
  request.mutable_conversation()->add_messages()->set_content(std::string(4000, 'x'));
  EXPECT_EQ(EstimatePromptTokens(request), 1001);
}

TEST(IsForwardableTest, OnlyPrintableAsciiOfBoundedLengthIsSentOn) {
  EXPECT_TRUE(IsForwardable("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(IsForwardable(""));
  EXPECT_FALSE(
      IsForwardable("a\x01"
                    "b"));
  EXPECT_FALSE(IsForwardable("caf\xc3\xa9"));
  EXPECT_FALSE(IsForwardable("a\nb"));
  EXPECT_TRUE(IsForwardable(std::string(1024, 'x')));
  EXPECT_FALSE(IsForwardable(std::string(1025, 'x')));
}

}  // namespace
}  // namespace continuo::gateway
