// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/worker/server/session/convert.h"
#include "tests/testing/text_files.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  const char* name;
  std::function<void(v1::GenerateRequest&)> change;
  const char* field;    // that the error names
  const char* message;  // part of it: the limit
};

const Case kRefused[] = {
    {"no prompt", [](auto& r) { r.clear_text(); }, "prompt", "text"},
    {"empty text", [](auto& r) { r.set_text(""); }, "text", "no token"},
    {"no ids", [](auto& r) { r.mutable_token_ids(); }, "token_ids", "no token"},
    {"id outside", [](auto& r) { r.mutable_token_ids()->add_ids(272); }, "token_ids.ids[0]", "272"},
    {"huge id", [](auto& r) { r.mutable_token_ids()->add_ids(~0u); }, "token_ids.ids[0]", "272"},
    {"over-long", [](auto& r) { r.set_text(std::string(129, 'a')); }, "text", "129"},
    {"text", [](auto& r) { r.set_text("\xC3("); }, "text", "UTF-8"},
    {"request id", [](auto& r) { r.set_request_id(std::string(129, 'a')); }, "request_id", "128"},
    {"control", [](auto& r) { r.set_request_id("a\nb"); }, "request_id", "printable"},
    {"not ascii", [](auto& r) { r.set_request_id("\xC3\xA9"); }, "request_id", "ASCII"},
    {"cold", [](auto& r) { r.mutable_sampling()->set_temperature(-1); }, "sampling.temperature",
     "100"},
    {"NaN", [](auto& r) { r.mutable_sampling()->set_temperature(kNaN); }, "sampling.temperature",
     "100"},
    {"inf", [](auto& r) { r.mutable_sampling()->set_temperature(kInf); }, "sampling.temperature",
     "100"},
    {"top_p", [](auto& r) { r.mutable_sampling()->set_top_p(1.1f); }, "sampling.top_p", "[0, 1]"},
    {"top_p NaN", [](auto& r) { r.mutable_sampling()->set_top_p(kNaN); }, "sampling.top_p", "1"},
    {"min_p", [](auto& r) { r.mutable_sampling()->set_min_p(1.01f); }, "sampling.min_p", "1"},
    {"allowed",
     [](auto& r) {
       r.mutable_sampling()->add_allowed_token_ids(5);
       r.mutable_sampling()->add_allowed_token_ids(272);
     },
     "sampling.allowed_token_ids[1]", "272"},
    {"bad word", [](auto& r) { r.mutable_sampling()->add_bad_words(""); }, "sampling.bad_words[0]",
     "1 to 256"},
    {"template",
     [](auto& r) {
       r.mutable_conversation()->add_messages()->set_role("user");
       r.mutable_conversation()->set_chat_template("x");
     },
     "conversation.chat_template", "--allow_request_chat_template"},
    {"n 0", [](auto& r) { r.mutable_sampling()->set_num_sequences(0); }, "sampling.num_sequences",
     "128"},
    {"n 129", [](auto& r) { r.mutable_sampling()->set_num_sequences(129); },
     "sampling.num_sequences", "128"},
    {"repetition", [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); },
     "sampling.repetition_penalty", "(0, 2]"},
    {"presence", [](auto& r) { r.mutable_sampling()->set_presence_penalty(2.1f); },
     "sampling.presence_penalty", "2"},
    {"frequency", [](auto& r) { r.mutable_sampling()->set_frequency_penalty(-kInf); },
     "sampling.frequency_penalty", "2"},
    {"bias id", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[272] = 1; },
     "sampling.logit_bias", "272"},
    {"bias", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = kNaN; },
     "sampling.logit_bias", "100"},
    {"biases",
     [](auto& r) {
       for (int i = 0; i < 1025; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
     },
     "sampling.logit_bias", "1024"},
    {"min over max", [](auto& r) { r.mutable_stopping()->set_min_tokens(5); },
     "stopping.min_tokens", "4"},
    {"min over context",
     [](auto& r) {
       r.mutable_stopping()->clear_max_tokens();
       r.mutable_stopping()->set_min_tokens(127);
     },
     "stopping.min_tokens", "126"},
    {"stops",
     [](auto& r) {
       for (int i = 0; i < 17; ++i) r.mutable_stopping()->add_strings("x");
     },
     "stopping.strings", "16"},
    {"empty stop", [](auto& r) { r.mutable_stopping()->add_strings(""); }, "stopping.strings[0]",
     "1 to 256"},
    {"long stop", [](auto& r) { r.mutable_stopping()->add_strings(std::string(257, 'x')); },
     "stopping.strings[0]", "256"},
    {"bad stop", [](auto& r) { r.mutable_stopping()->add_strings("\xFF"); }, "stopping.strings[0]",
     "UTF-8"},
    {"stop ids",
     [](auto& r) {
       for (int i = 0; i < 65; ++i) r.mutable_stopping()->add_token_ids(1);
     },
     "stopping.token_ids", "64"},
    {"stop id", [](auto& r) { r.mutable_stopping()->add_token_ids(272); }, "stopping.token_ids[0]",
     "272"},
    {"negative limit", [](auto& r) { r.mutable_stopping()->mutable_time_limit()->set_nanos(-1); },
     "stopping.time_limit", "negative"},
    {"bad limit", [](auto& r) { r.mutable_stopping()->mutable_time_limit()->set_nanos(1 << 30); },
     "stopping.time_limit", "nanos"},
    {"long limit",
     [](auto& r) { r.mutable_stopping()->mutable_time_limit()->set_seconds(INT64_MAX); },
     "stopping.time_limit", "seconds"},
    {"constraint", [](auto& r) { r.mutable_constraint(); }, "constraint", "none of its kinds"},
    {"json object", [](auto& r) { r.mutable_constraint()->set_json_object(false); },
     "constraint.json_object", "is false"},
    {"no options", [](auto& r) { r.mutable_constraint()->mutable_choice(); },
     "constraint.choice.options", "is empty"},
    {"logprobs", [](auto& r) { r.mutable_output()->set_logprobs(21); }, "output.logprobs", "20"},
    {"prompt logprobs", [](auto& r) { r.mutable_output()->set_prompt_logprobs(~0u); },
     "output.prompt_logprobs", "20"},
    {"progress",
     [](auto& r) {
       r.mutable_output()->set_progress(true);
       r.mutable_output()->set_collect(true);
     },
     "output.progress", "output.collect"},
    {"suffix of ids",
     [](auto& r) {
       r.mutable_token_ids()->add_ids(1);
       r.set_suffix("x");
     },
     "suffix", "text"},
    {"bad suffix",
     [](auto& r) {
       r.set_text("a");
       r.set_suffix("\xFF");
     },
     "suffix", "UTF-8"},
    {"suffix without tokens",
     [](auto& r) {
       r.set_text("a");
       r.set_suffix("b");
     },
     "suffix", "fill-in-the-middle"},
    {"priority", [](auto& r) { r.set_priority(-101); }, "priority", "[-100, 100]"},
    {"tools", [](auto& r) { r.mutable_conversation()->add_tools(); }, "conversation.tools",
     "no known format"},
    {"tool choice",
     [](auto& r) {
       r.mutable_conversation()->mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
     },
     "conversation.tool_choice", "there are no tools"},
    {"tool choice by name",
     [](auto& r) { r.mutable_conversation()->mutable_tool_choice()->set_name("f"); },
     "conversation.tool_choice.name", "needs MODE_REQUIRED"},
    {"tool calls", [](auto& r) { r.mutable_conversation()->add_messages()->add_tool_calls(); },
     "conversation.messages[0].tool_calls[0].name", "empty"},
    {"received index",
     [](auto& r) {
       r.mutable_continuation()->mutable_received()->add_deltas()->set_index(
           protocol::kMaxSequences);
     },
     "continuation.received.deltas[0].index", "128"},
    {"received model",
     [](auto& r) {
       r.mutable_continuation()->mutable_received()->mutable_accepted()->set_model(
           std::string(protocol::kMaxModelNameBytes + 1, 'a'));
     },
     "continuation.received.accepted.model", "256"},
    {"messages",
     [](auto& r) {
       for (int i = 0; i <= protocol::kMaxMessages; ++i) r.mutable_conversation()->add_messages();
     },
     "conversation.messages", "16384"},
    {"arguments",
     [](auto& r) {
       r.mutable_conversation()->set_template_arguments(
           std::string(protocol::kMaxTemplateArgumentsBytes + 1, ' '));
     },
     "conversation.template_arguments", "65536"},
    {"role", [](auto& r) { r.mutable_conversation()->add_messages()->set_role("\xFF"); },
     "conversation.messages[0].role", "UTF-8"},
    {"unknown role", [](auto& r) { r.mutable_conversation()->add_messages()->set_role("pirate"); },
     "conversation", "pirate"},
    {"unknown field",
     [](auto& r) { r.GetReflection()->MutableUnknownFields(&r)->AddVarint(1023, 1); }, "1023",
     "number"},
    {"unknown field below",
     [](auto& r) {
       auto& s = *r.mutable_sampling();
       s.GetReflection()->MutableUnknownFields(&s)->AddVarint(99, 1);
     },
     "sampling.99", "number"},
    {"continuation without accepted",
     [](auto& r) { r.mutable_continuation()->mutable_received()->add_deltas(); },
     "continuation.received.accepted", "missing"},
};

class ValidateTest : public ::testing::Test {
 protected:
  ValidateTest()
      : text_(testing::OpenTestModel("byte_level")), model_(testing::MakeServedModel(text_.get())) {
    good_.set_text("ab");
    good_.mutable_stopping()->set_max_tokens(4);
  }
  absl::StatusOr<Generation> Prepare(const v1::GenerateRequest& request) {
    const CallInfo call = {.now = absl::UnixEpoch(), .random = testing::CountingRandom()};
    return PrepareGeneration(request, call, model_, SaltKey(call.random));
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  v1::GenerateRequest good_;
};

TEST_F(ValidateTest, AGoodRequestIsTaken) { EXPECT_TRUE(Prepare(good_).ok()); }

TEST_F(ValidateTest, EachBadFieldIsRefusedByNameWithItsLimit) {
  for (const Case& c : kRefused) {
    v1::GenerateRequest request = good_;
    c.change(request);
    const absl::Status status = Prepare(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name << ": " << status;
    EXPECT_EQ(protocol::FieldOf(status), c.field) << c.name << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.message)) << c.name << ": " << status;
  }
}

TEST_F(ValidateTest, LimitsThemselvesAreTaken) {
  v1::Sampling& s = *good_.mutable_sampling();
  s.set_temperature(100);
  s.set_top_k(~0u);
  s.set_top_p(1);
  s.set_min_p(1);
  s.set_num_sequences(128);
  s.set_repetition_penalty(2);
  s.set_presence_penalty(-2);
  s.set_frequency_penalty(2);
  for (int i = 0; i < 271; ++i) (*s.mutable_logit_bias())[i] = i % 2 == 0 ? -100 : 100;
  good_.mutable_stopping()->set_min_tokens(4);
  for (int i = 0; i < 16; ++i) good_.mutable_stopping()->add_strings(std::string(256, 'x'));
  for (int i = 0; i < 64; ++i) good_.mutable_stopping()->add_token_ids(271);
  good_.mutable_stopping()->mutable_time_limit()->set_seconds(315'576'000'000);
  good_.mutable_output()->set_logprobs(20);
  good_.mutable_output()->set_prompt_logprobs(20);
  good_.set_priority(100);
  good_.set_request_id(std::string(128, '~'));
  EXPECT_TRUE(Prepare(good_).ok()) << Prepare(good_).status();
}

TEST_F(ValidateTest, UnknownFieldsOfAContinuationAreIgnored) {
  auto& received = *good_.mutable_continuation()->mutable_received();
  received.GetReflection()->MutableUnknownFields(&received)->AddVarint(1023, 1);
  EXPECT_TRUE(Prepare(good_).ok());
}

TEST_F(ValidateTest, AnotherModelIsNotFound) {
  good_.set_model("other");
  EXPECT_EQ(Prepare(good_).status().code(), absl::StatusCode::kNotFound);
  good_.set_model("bytes");
  EXPECT_TRUE(Prepare(good_).ok());
}

TEST_F(ValidateTest, AnOverLongPromptSaysWhyInItsReason) {
  good_.set_text(std::string(500, 'a'));
  const absl::Status status = Prepare(good_).status();
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonContextTooLong);
  // litellm, LangChain and others look for these words.
  EXPECT_EQ(status.message(),
            "text: This model's maximum context length is 128 tokens. However, your prompt has 500 "
            "tokens. Please reduce the length of the prompt.");
}

TEST_F(ValidateTest, TextThatCannotFitIsRefusedByItsBytes) {
  const size_t most = 128 * text_->max_token_bytes();
  good_.set_text(std::string(most + 1, 'a'));
  const absl::Status status = Prepare(good_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonContextTooLong);
  EXPECT_EQ(protocol::FieldOf(status), "text");
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(most + 1, " bytes"))) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("at most ", most))) << status;
  good_.set_text(std::string(most, 'a'));  // one that perhaps fits is counted in tokens
  EXPECT_TRUE(
      absl::StrContains(Prepare(good_).status().message(), "maximum context length is 128 tokens"));
}

// WordPiece drops white space and accents, and has one token for a word that it does not know.
TEST_F(ValidateTest, TextWhoseBytesATokenizerDropsIsCountedInTokens) {
  const auto words = testing::OpenText({.tokenizer_json = R"({
      "version": "1.0", "added_tokens": [],
      "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                     "strip_accents": null, "lowercase": true},
      "pre_tokenizer": {"type": "BertPreTokenizer"},
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1}}})"});
  ASSERT_TRUE(words.ok()) << words.status();
  model_ = testing::MakeServedModel(words->get());
  const size_t most = 128 * (*words)->max_token_bytes();
  ASSERT_LT(most, protocol::kMaxTokenizeBytes / 2);
  for (const std::string& text :
       {"a" + std::string(most, ' ') + "a", "a " + std::string(most, 'b')}) {
    good_.set_text(text);
    const auto generation = Prepare(good_);
    ASSERT_TRUE(generation.ok()) << generation.status();
    EXPECT_EQ(generation->request.prompt.size(), 2u);
  }
  good_.set_text("a" + std::string(protocol::kMaxTokenizeBytes, ' '));
  const absl::Status status = Prepare(good_).status();
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonContextTooLong);
  EXPECT_TRUE(
      absl::StrContains(status.message(), absl::StrCat("at most ", protocol::kMaxTokenizeBytes)))
      << status;
}

TEST_F(ValidateTest, APromptAsLongAsTheContextIsTaken) {
  good_.set_text(std::string(128, 'a'));
  const auto generation = Prepare(good_);
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->request.max_tokens, 0);
}

TEST_F(ValidateTest, AConversationNeedsATemplate) {
  const auto plain = testing::OpenTestModel("byte_fallback");
  model_ = testing::MakeServedModel(plain.get());
  good_.mutable_conversation()->add_messages()->set_role("user");
  const absl::Status status = Prepare(good_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "no chat template"));
}

TEST_F(ValidateTest, CollectIsRefusedWhereTheAnswerCouldPassItsLimit) {
  model_.max_context_tokens = 1 << 20;
  good_.mutable_output()->set_collect(true);
  good_.mutable_stopping()->set_max_tokens(10000);
  EXPECT_TRUE(Prepare(good_).ok()) << Prepare(good_).status();
  for (const auto& change : std::vector<std::function<void(v1::GenerateRequest&)>>{
           [](auto& r) { r.mutable_stopping()->clear_max_tokens(); },
           [](auto& r) { r.mutable_sampling()->set_num_sequences(128); },
           [](auto& r) { r.mutable_output()->set_logprobs(20); },
           [](auto& r) {
             r.mutable_output()->set_prompt_tokens(true);
             r.set_text(std::string(300000, 'a'));
           },
           [](auto& r) {
             r.mutable_output()->set_prompt_logprobs(20);
             r.set_text(std::string(10000, 'a'));
           }}) {
    v1::GenerateRequest request = good_;
    change(request);
    const absl::Status status = Prepare(request).status();
    EXPECT_EQ(protocol::FieldOf(status), "output.collect") << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "3145728")) << status;
  }
}

TEST_F(ValidateTest, EveryFieldOfARequestIsCheckedOrHasNoLimit) {
  // A new field is added to one of these lists after its check is written.
  const std::set<std::string> known = {"request_id",
                                       "model",
                                       "text",
                                       "token_ids",
                                       "conversation",
                                       "sampling",
                                       "stopping",
                                       "constraint",
                                       "output",
                                       "cache",
                                       "priority",
                                       "continuation",
                                       "exact_only",
                                       "suffix",
                                       "truncation",
                                       "sampling.allowed_token_ids",
                                       "sampling.bad_words",
                                       "sampling.temperature",
                                       "sampling.top_k",
                                       "sampling.top_p",
                                       "sampling.min_p",
                                       "sampling.seed",
                                       "sampling.num_sequences",
                                       "sampling.repetition_penalty",
                                       "sampling.presence_penalty",
                                       "sampling.frequency_penalty",
                                       "sampling.logit_bias",
                                       "stopping.max_tokens",
                                       "stopping.min_tokens",
                                       "stopping.strings",
                                       "stopping.token_ids",
                                       "stopping.include_stop",
                                       "stopping.ignore_eos",
                                       "stopping.time_limit",
                                       "output.logprobs",
                                       "output.prompt_logprobs",
                                       "output.collect",
                                       "output.progress",
                                       "output.prompt_tokens",
                                       "cache.salt",
                                       "cache.bypass"};
  std::set<std::string> found;
  const auto* type = v1::GenerateRequest::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    found.insert(absl::StrCat(field->name()));
    for (const char* part : {"sampling", "stopping", "output", "cache"}) {
      if (field->name() != part) continue;
      for (int k = 0; k < field->message_type()->field_count(); ++k) {
        found.insert(absl::StrCat(field->name(), ".", field->message_type()->field(k)->name()));
      }
    }
  }
  EXPECT_EQ(found, known);
}

TEST_F(ValidateTest, ATemplateOfTheRequestIsRenderedWhereTheWorkerAllowsIt) {
  model_.allow_request_chat_template = true;
  v1::Conversation& conversation = *good_.mutable_conversation();
  conversation.add_messages()->set_content("hi");
  conversation.mutable_messages(0)->set_role("user");
  conversation.set_chat_template("<{{ messages[0].content }}{{ add_generation_prompt }}>");
  const auto text_of = [this] {
    const auto generation = Prepare(good_);
    EXPECT_TRUE(generation.ok()) << generation.status();
    return generation.ok() ? text_->Decode(generation->request.prompt, true).value() : "";
  };
  EXPECT_EQ(text_of(), "<hiTrue>");
  conversation.set_omit_generation_prompt(true);
  EXPECT_EQ(text_of(), "<hiFalse>");
  conversation.set_chat_template("{% for %}");
  EXPECT_EQ(protocol::FieldOf(Prepare(good_).status()), "conversation.chat_template");
  conversation.clear_chat_template();
  conversation.set_template_arguments("[]");
  const absl::Status status = Prepare(good_).status();
  EXPECT_EQ(protocol::FieldOf(status), "conversation.template_arguments");
  EXPECT_TRUE(absl::StrContains(status.message(), "is not a JSON object")) << status;
}

}  // namespace
}  // namespace continuo::server
