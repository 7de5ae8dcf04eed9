// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_request.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/embeddings/embeddings_members.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EmbeddingsCall Parse(std::string_view body) {
  auto call = ParseEmbeddings(body);
  EXPECT_TRUE(call.ok()) << call.status() << " of " << body;
  return call.value_or(EmbeddingsCall{});
}
absl::Status ErrorOf(std::string_view body) {
  const absl::Status status = ParseEmbeddings(body).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << " of " << body;
  return status;
}

TEST(EmbeddingsRequestTest, InputIsOneOrMoreTextsOrIds) {
  const EmbeddingsCall text = Parse(R"({"input":"abc","model":"m"})");
  EXPECT_EQ(text.request.model(), "m");
  ASSERT_EQ(text.request.inputs_size(), 1);
  EXPECT_EQ(text.request.inputs(0).text(), "abc");
  EXPECT_FALSE(text.is_array);
  EXPECT_FALSE(text.base64);
  const EmbeddingsCall ids = Parse(R"({"input":[1,2,3]})");
  EXPECT_THAT(ids.request.inputs(0).token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(ids.is_array);
  const EmbeddingsCall texts = Parse(R"({"input":["a",""]})");
  EXPECT_EQ(texts.request.inputs_size(), 2);
  EXPECT_TRUE(texts.is_array);
  const EmbeddingsCall many = Parse(R"({"input":[[1],[2,3]]})");
  EXPECT_THAT(many.request.inputs(1).token_ids().ids(), ElementsAre(2, 3));
}

TEST(EmbeddingsRequestTest, OptionsAreRead) {
  const EmbeddingsCall call = Parse(
      R"({"input":"a","encoding_format":"base64","dimensions":64,"normalize":false,
          "prompt_name":"query","cache_salt":"s","priority":-3,"user":"u",
          "truncate_prompt_tokens":5,"truncation_side":"left"})");
  EXPECT_TRUE(call.base64);
  EXPECT_EQ(call.request.dimensions(), 64u);
  EXPECT_TRUE(call.request.has_normalize());
  EXPECT_FALSE(call.request.normalize());
  EXPECT_EQ(call.request.prompt_name(), "query");
  EXPECT_EQ(call.request.cache().salt(), "s");
  EXPECT_EQ(call.request.priority(), -3);
  EXPECT_EQ(call.request.truncation().max_tokens(), 5u);
  EXPECT_FALSE(call.request.truncation().keep_first());
  const v1::Truncation whole =
      Parse(R"({"input":"a","truncate_prompt_tokens":-1})").request.truncation();
  EXPECT_EQ(whole.max_tokens(), 0u);
  EXPECT_TRUE(whole.keep_first());
  EXPECT_FALSE(Parse(R"({"input":"a"})").request.has_truncation());
  EXPECT_FALSE(Parse(R"({"input":"a","dimensions":null})").request.has_dimensions());
}

TEST(EmbeddingsRequestTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "input"},
      {R"({"input":null})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":7})", "input"},
      {R"({"input":[[]]})", "input[0]"},
      {R"({"input":["a",7]})", "input[1]"},
      {R"({"input":[1,"a"]})", "input[1]"},
      {R"({"input":[[1,-1]]})", "input[0][1]"},
      {R"({"input":"a","model":7})", "model"},
      {R"({"input":"a","encoding_format":"int8"})", "encoding_format"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","dimensions":1.5})", "dimensions"},
      {R"({"input":"a","normalize":1})", "normalize"},
      {R"({"input":"a","priority":101})", "priority"},
      {R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
      {R"({"input":"a","truncation_side":"left"})", "truncation_side"},
      {R"({"input":"a","truncate_prompt_tokens":1,"truncation_side":"middle"})", "truncation_side"},
      {R"({"input":"a","inputs":"b"})", "inputs"},
      {R"({"input":"a","input_type":"query"})", "input_type"},
      {R"({"input":"a","truncate":true})", "truncate"},
      {R"({"input":"a","messages":[{}]})", "messages"}};
  for (const auto& [body, field] : cases)
    EXPECT_EQ(protocol::FieldOf(ErrorOf(body)), field) << body;
  std::string many = R"({"input":["a")";
  for (int i = 0; i < 2048; ++i) many += R"(,"a")";
  EXPECT_THAT(std::string(ErrorOf(many + "]}").message()), HasSubstr("2049"));
  EXPECT_TRUE(
      Parse(R"({"input":"a","truncate":false,"embed_dtype":"float32"})").request.inputs_size() ==
      1);
}

TEST(EmbeddingsRequestTest, AWorkersErrorNamesTheBodysMember) {
  const auto name = [](bool is_array, int first, std::string_view field) {
    EmbeddingsCall call;
    call.is_array = is_array;
    const absl::Status status =
        WithEmbeddingsName(call, first, protocol::FieldError(field, "is wrong"));
    EXPECT_TRUE(std::string(status.message()).ends_with(": is wrong")) << status;
    return protocol::FieldOf(status);
  };
  EXPECT_EQ(name(true, 10, "inputs[3].text"), "input[13]");
  EXPECT_EQ(name(true, 0, "inputs[3].token_ids.ids[2]"), "input[3][2]");
  EXPECT_EQ(name(false, 0, "inputs[0].text"), "input");
  EXPECT_EQ(name(true, 0, "inputs"), "input");
  EXPECT_EQ(name(true, 0, "truncation.max_tokens"), "truncate_prompt_tokens");
  EXPECT_EQ(name(true, 0, "dimensions"), "dimensions");
  EXPECT_EQ(WithEmbeddingsName({}, 0, absl::NotFoundError("m")), absl::NotFoundError("m"));
}

TEST(EmbeddingsRequestTest, ALargeRequestBecomesSeveralInOrder) {
  v1::EmbedRequest request;
  request.set_model("m");
  request.set_dimensions(7);
  for (int i = 0; i < 1000; ++i) request.add_inputs()->set_text(absl::StrCat(i));
  EXPECT_EQ(Divide(request, 16).size(), 1u);
  const std::vector<v1::EmbedRequest> parts = Divide(request, 4096);
  EXPECT_GT(parts.size(), 4u);
  int next = 0;
  for (const v1::EmbedRequest& part : parts) {
    EXPECT_EQ(part.model(), "m");
    EXPECT_EQ(part.dimensions(), 7u);
    EXPECT_LE(part.inputs_size() * (4096 * 4 + 12), 3 << 20);
    for (const v1::EmbedInput& input : part.inputs()) EXPECT_EQ(input.text(), absl::StrCat(next++));
  }
  EXPECT_EQ(next, 1000);
  v1::EmbedRequest long_texts;
  for (int i = 0; i < 3; ++i) long_texts.add_inputs()->set_text(std::string(100000, 'x'));
  EXPECT_EQ(Divide(long_texts, 16).size(), 3u);
  EXPECT_EQ(Divide({}, 16).size(), 0u);
}

TEST(EmbeddingsMembersTest, TheDocumentsHaveTheTable) {
  CheckDocuments("embeddings", ObjectsTable(embeddings::Objects()));
}

}  // namespace
}  // namespace continuo::gateway::openai
