// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/validate_request.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "services/protocol/error.h"
#include "services/protocol/limits.h"

namespace continuo::protocol {
namespace {

TEST(ValidateGenerateTest, AValueOutOfRangeIsToldInFull) {
  const auto message = [](const auto& set) {
    v1::GenerateRequest request;
    request.set_text("a");
    set(*request.mutable_sampling());
    return std::string(ValidateGenerate(request).message());
  };
  EXPECT_EQ(message([](v1::Sampling& s) { s.set_top_p(1.0000001f); }),
            "sampling.top_p: 1.0000001 is not in [0, 1]");
  EXPECT_EQ(message([](v1::Sampling& s) { s.set_temperature(-0.1f); }),
            "sampling.temperature: -0.1 is not in [0, 100]");
  EXPECT_EQ(message([](v1::Sampling& s) { s.set_repetition_penalty(2.0000002f); }),
            "sampling.repetition_penalty: 2.0000002 is not in (0, 2]");
  EXPECT_EQ(message([](v1::Sampling& s) { s.set_num_sequences(129); }),
            "sampling.num_sequences: 129 is not in [1, 128]");
}

TEST(ValidateGenerateTest, EachFieldOutOfRangeIsNamed) {
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
      {"continuation.received.deltas[0].index",
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
      {"sampling.top_p", [](Request& r) { r.mutable_sampling()->set_top_p(-0.1f); }},
      {"sampling.top_p", [](Request& r) { r.mutable_sampling()->set_top_p(kNan); }},
      {"sampling.allowed_token_ids",
       [](Request& r) {
         for (int i = 0; i <= 262144; ++i) r.mutable_sampling()->add_allowed_token_ids(1);
       }},
      {"sampling.bad_words",
       [](Request& r) {
         for (int i = 0; i <= 256; ++i) r.mutable_sampling()->add_bad_words("x");
       }},
      {"sampling.bad_words[0]",
       [](Request& r) { r.mutable_sampling()->add_bad_words(std::string(257, 'x')); }},
      {"conversation.chat_template",
       [](Request& r) { r.mutable_conversation()->set_chat_template(std::string(65537, ' ')); }},
      {"conversation.omit_generation_prompt",
       [](Request& r) {
         r.mutable_conversation()->set_omit_generation_prompt(true);
         r.mutable_conversation()->set_continue_final_message(true);
       }},
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
      {"stopping.strings[0]", [](Request& r) { r.mutable_stopping()->add_strings(""); }},
      {"stopping.strings[0]",
       [](Request& r) { r.mutable_stopping()->add_strings(std::string(257, 'x')); }},
      {"stopping.strings",
       [](Request& r) {
         for (int i = 0; i < 17; ++i) r.mutable_stopping()->add_strings("x");
       }},
      {"stopping.token_ids",
       [](Request& r) {
         for (int i = 0; i < 65; ++i) r.mutable_stopping()->add_token_ids(1);
       }},
      {"stopping.strings[1]",
       [](Request& r) {
         r.mutable_stopping()->add_strings("x");
         r.mutable_stopping()->add_strings("\xff");
       }},
      {"stopping.min_tokens",
       [](Request& r) {
         r.mutable_stopping()->set_max_tokens(4);
         r.mutable_stopping()->set_min_tokens(5);
       }},
      {"stopping.time_limit",
       [](Request& r) { r.mutable_stopping()->mutable_time_limit()->set_nanos(-1); }},
      {"sampling.logit_bias",
       [](Request& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = kNan; }},
      {"text", [](Request& r) { r.set_text("\xc3("); }},
      {"conversation.messages[0].content_parts[1]",
       [](Request& r) {
         v1::ChatMessage& message = *r.mutable_conversation()->add_messages();
         message.add_content_parts("a");
         message.add_content_parts("\xff");
       }},
      {"conversation.messages[0].content_parts",
       [](Request& r) {
         v1::ChatMessage& message = *r.mutable_conversation()->add_messages();
         message.set_content("a");
         message.add_content_parts("b");
       }},
      {"conversation.messages[1].content_parts",
       [](Request& r) {
         r.mutable_conversation()->add_messages();
         v1::ChatMessage& message = *r.mutable_conversation()->add_messages();
         for (int i = 0; i <= 16384; ++i) message.add_content_parts("b");
       }},
      {"conversation.messages[0].role",
       [](Request& r) { r.mutable_conversation()->add_messages()->set_role("\xff"); }},
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
    EXPECT_TRUE(ValidateGenerate(request).ok());
    change(request);
    const absl::Status status = ValidateGenerate(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_EQ(FieldOf(status), field) << status;
  }
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

TEST(ValidateGenerateTest, ContentOfTheModelIsLeftToTheWorker) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(~0u);
  request.mutable_stopping()->add_token_ids(~0u);
  request.mutable_stopping()->set_min_tokens(~0u);
  (*request.mutable_sampling()->mutable_logit_bias())[~0u] = 1;
  request.mutable_constraint()->set_regex("a*");
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(1023, 1);
  EXPECT_TRUE(ValidateGenerate(request).ok()) << ValidateGenerate(request);
  request.mutable_conversation()->add_tools();
  request.mutable_conversation()->add_messages()->set_reasoning("so");
  EXPECT_TRUE(ValidateGenerate(request).ok()) << ValidateGenerate(request);
}

TEST(ValidateGenerateTest, AConstraintIsBounded) {
  v1::GenerateRequest request;
  request.set_text("x");
  v1::Constraint& constraint = *request.mutable_constraint();
  const auto field = [&] { return FieldOf(ValidateGenerate(request)); };
  EXPECT_EQ(field(), "");  // perhaps of a kind that a newer release has
  constraint.set_json_object(false);
  EXPECT_EQ(field(), "constraint.json_object");
  constraint.set_json_object(true);
  EXPECT_EQ(field(), "");
  const std::string longest(kMaxConstraintBytes, 'x'), longer = longest + "x";
  constraint.set_json_schema(longer);
  EXPECT_EQ(field(), "constraint.json_schema");
  constraint.set_json_schema(longest);
  EXPECT_EQ(field(), "");
  constraint.set_regex(longer);
  EXPECT_EQ(field(), "constraint.regex");
  constraint.set_lark(longer);
  EXPECT_EQ(field(), "constraint.lark");
  v1::Choice& choice = *constraint.mutable_choice();
  EXPECT_EQ(field(), "constraint.choice.options");
  choice.add_options(longest);
  EXPECT_EQ(field(), "");
  choice.add_options("x");
  EXPECT_EQ(field(), "constraint.choice.options");
  choice.clear_options();
  for (int i = 0; i < kMaxChoiceOptions; ++i) choice.add_options("");
  EXPECT_EQ(field(), "");
  choice.add_options("");
  EXPECT_EQ(field(), "constraint.choice.options");
}

TEST(ValidateEmbedTest, AnInstructionIsBoundedAndOfPairs) {
  v1::EmbedRequest request;
  request.add_inputs()->mutable_pair()->set_query("q");
  request.set_instruction(std::string(8192, 'i'));
  EXPECT_TRUE(ValidateEmbed(request).ok()) << ValidateEmbed(request);
  request.set_instruction(std::string(8193, 'i'));
  EXPECT_EQ(FieldOf(ValidateEmbed(request)), "instruction");
  request.set_instruction("\xff");
  EXPECT_EQ(FieldOf(ValidateEmbed(request)), "instruction");
  request.set_instruction("i");
  request.mutable_inputs(0)->set_text("a");
  EXPECT_EQ(FieldOf(ValidateEmbed(request)), "instruction");
}

TEST(RejectUnknownFieldsTest, AnUnknownFieldIsNamedByItsPathButNotInAContinuation) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_conversation()->add_messages();
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(99, 1);
  EXPECT_EQ(FieldOf(RejectUnknownFields(request)), "conversation.messages[0].99");
  message.GetReflection()->MutableUnknownFields(&message)->Clear();
  v1::GenerateResponse& received = *request.mutable_continuation()->mutable_received();
  received.GetReflection()->MutableUnknownFields(&received)->AddVarint(99, 1);
  EXPECT_TRUE(RejectUnknownFields(request).ok());
}

TEST(ReadDurationTest, OnlyADurationFromZeroToTheLimitIsTaken) {
  google::protobuf::Duration duration;
  duration.set_seconds(2);
  duration.set_nanos(500'000'000);
  EXPECT_EQ(*ReadDuration("grace", duration, absl::Seconds(3)), absl::Milliseconds(2500));
  const absl::Status above = ReadDuration("grace", duration, absl::Seconds(2)).status();
  EXPECT_EQ(FieldOf(above), "grace");
  EXPECT_EQ(above.message(), "grace: 2.5s is above the limit of 2s");
  duration.set_nanos(1'000'000'000);
  EXPECT_EQ(FieldOf(ReadDuration("grace", duration).status()), "grace");
  duration.set_nanos(0);
  duration.set_seconds(-1);
  EXPECT_EQ(ReadDuration("grace", duration).status().message(), "grace: is negative");
  duration.set_seconds(kMaxDurationSeconds);
  EXPECT_TRUE(ReadDuration("grace", duration).ok());
}

TEST(ReadTimestampTest, OnlyTheYearsFrom1To9999AreTaken) {
  google::protobuf::Timestamp time;
  time.set_seconds(kMaxTimestampSeconds);
  time.set_nanos(kMaxNanos);
  EXPECT_EQ(*ReadTimestamp("t", time),
            absl::FromUnixSeconds(kMaxTimestampSeconds) + absl::Nanoseconds(kMaxNanos));
  time.set_seconds(kMaxTimestampSeconds + 1);
  EXPECT_EQ(FieldOf(ReadTimestamp("t", time).status()), "t");
  time.set_seconds(kMinTimestampSeconds);
  time.set_nanos(-1);
  EXPECT_EQ(FieldOf(ReadTimestamp("t", time).status()), "t");
}

}  // namespace
}  // namespace continuo::protocol
