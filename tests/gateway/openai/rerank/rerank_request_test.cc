// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_request.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/embeddings/embeddings_request.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/rerank/rerank_members.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum ScoreForm;

RerankCall Parse(std::string_view body, ScoreForm form = kRerank) {
  auto call = ParseRerank(form, body);
  EXPECT_TRUE(call.ok()) << call.status() << " of " << body;
  return call.value_or(RerankCall{});
}
absl::Status ErrorOf(std::string_view body, ScoreForm form = kRerank) {
  const absl::Status status = ParseRerank(form, body).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << " of " << body;
  return status;
}

TEST(RerankRequestTest, DocumentsAreTextsOrObjects) {
  const RerankCall call = Parse(R"({"model":"m","query":"q","documents":
      ["a",{"text":"b","title":"B"}],"top_n":1,"return_documents":true})");
  EXPECT_EQ(call.options.model(), "m");
  EXPECT_THAT(call.queries, ElementsAre("q"));
  EXPECT_THAT(call.texts, ElementsAre("a", "b"));
  EXPECT_THAT(call.documents, ElementsAre(R"({"text":"a"})", R"({"text":"b","title":"B"})"));
  EXPECT_EQ(call.top_n, 1u);
  const RerankCall plain = Parse(R"({"query":"","documents":[""]})", kRerankV2);
  EXPECT_EQ(plain.top_n, 1u);
  EXPECT_THAT(plain.documents, ElementsAre());
  EXPECT_EQ(Parse(R"({"query":"q","documents":["a","b"],"top_n":0})").top_n, 2u);
  EXPECT_EQ(Parse(R"({"query":"q","documents":["a","b"],"top_n":9})").top_n, 2u);
}

TEST(RerankRequestTest, OptionsAreRead) {
  const v1::EmbedRequest options =
      Parse(R"({"query":"q","documents":["a"],"instruction":"i","cache_salt":"s","priority":-3,
                "truncate_prompt_tokens":5,"truncation_side":"left","max_tokens_per_doc":7,
                "user":"u"})")
          .options;
  EXPECT_EQ(options.instruction(), "i");
  EXPECT_EQ(options.cache().salt(), "s");
  EXPECT_EQ(options.priority(), -3);
  EXPECT_EQ(options.truncation().max_tokens(), 5u);
  EXPECT_FALSE(options.truncation().keep_first());
  EXPECT_EQ(options.max_document_tokens(), 7u);
  const v1::EmbedRequest none = Parse(R"({"query":"q","documents":["a"]})").options;
  EXPECT_FALSE(none.has_truncation());
  EXPECT_FALSE(none.has_instruction());
  EXPECT_EQ(none.max_document_tokens(), 0u);
}

TEST(RerankRequestTest, ScoresAreOfOneQueryOrAsManyAsDocuments) {
  const RerankCall one = Parse(R"({"text_1":"q","text_2":["a","b"]})", kScore);
  EXPECT_THAT(one.queries, ElementsAre("q"));
  EXPECT_THAT(one.texts, ElementsAre("a", "b"));
  const RerankCall pairs = Parse(R"({"queries":["p","q"],"documents":["a","b"]})", kScore);
  EXPECT_THAT(pairs.queries, ElementsAre("p", "q"));
  const RerankCall single = Parse(R"({"data_1":["q"],"data_2":"a"})", kScore);
  EXPECT_THAT(single.texts, ElementsAre("a"));
  EXPECT_FALSE(single.many_documents);
  EXPECT_EQ(protocol::FieldOf(ErrorOf(R"({"text_1":["p","q"],"text_2":["a"]})", kScore)), "text_2");
  EXPECT_EQ(protocol::FieldOf(ErrorOf(R"({"text_1":["p","q"],"text_2":"a"})", kScore)), "text_2");
  EXPECT_EQ(protocol::FieldOf(ErrorOf(R"({"text_1":"p","text_2":"a","queries":"q"})", kScore)),
            "queries");
  EXPECT_EQ(protocol::FieldOf(ErrorOf(R"({"text_1":"p","documents":["a"]})", kScore)), "queries");
  EXPECT_EQ(protocol::FieldOf(ErrorOf(R"({"queries":"p"})", kScore)), "documents");
  EXPECT_THAT(Parse(R"({"text_1":{"text":"q","image":null},"text_2":"a"})", kScore).queries,
              ElementsAre("q"));
  EXPECT_EQ(
      protocol::FieldOf(ErrorOf(R"({"text_1":"q","text_2":[{"text":"a","image":"b"}]})", kScore)),
      "text_2[0].image");
}

TEST(RerankRequestTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "query"},
      {R"({"query":7,"documents":["a"]})", "query"},
      {R"({"query":"q"})", "documents"},
      {R"({"query":"q","documents":"a"})", "documents"},
      {R"({"query":"q","documents":[]})", "documents"},
      {R"({"query":"q","documents":["a",7]})", "documents[1]"},
      {R"({"query":"q","documents":[{}]})", "documents[0].text"},
      {R"({"query":"q","documents":[{"text":["a"]}]})", "documents[0].text"},
      {R"({"query":"q","documents":["a"],"top_n":-1})", "top_n"},
      {R"({"query":"q","documents":["a"],"return_documents":1})", "return_documents"},
      {R"({"query":"q","documents":["a"],"max_tokens_per_doc":0})", "max_tokens_per_doc"},
      {R"({"query":"q","documents":["a"],"truncation_side":"left"})", "truncation_side"},
      {R"({"query":"q","documents":["a"],"priority":101})", "priority"},
      {R"({"query":"q","documents":["a"],"instruction":1})", "instruction"},
      {R"({"query":"q","documents":["a"],"model":1})", "model"},
      {R"({"query":"q","documents":["a"],"rank_fields":["title"]})", "rank_fields"},
      {R"({"query":"q","documents":["a"],"max_chunks_per_doc":10})", "max_chunks_per_doc"},
      {R"({"query":"q","documents":["a"],"use_activation":false})", "use_activation"},
      {R"({"query":"q","texts":["a"]})", "texts"}};
  for (const auto& [body, field] : cases) {
    EXPECT_EQ(protocol::FieldOf(ErrorOf(body)), field) << body;
  }
  EXPECT_EQ(
      protocol::FieldOf(ErrorOf(R"({"query":"q","documents":["a"],"priority":3})", kRerankV2)),
      "priority");
  EXPECT_EQ(protocol::FieldOf(ErrorOf(R"({"query":"q","documents":["a"],"relevant_spans":{"mode":
                                    "enabled"}})",
                                      kRerankV2)),
            "relevant_spans");
  EXPECT_EQ(Parse(R"({"query":"q","documents":["a"],"priority":0,"relevant_spans":
                      {"mode":"disabled"},"rank_fields":["text"]})",
                  kRerankV2)
                .texts.size(),
            1u);
  std::string many = R"({"query":"q","documents":["a")";
  for (int i = 0; i < 10000; ++i) many += R"(,"a")";
  EXPECT_THAT(std::string(ErrorOf(many + "]}").message()), HasSubstr("10001"));
}

TEST(RerankRequestTest, PartsHaveAllPairsInOrder) {
  RerankCall call;
  call.options.set_model("m");
  call.options.set_instruction("i");
  call.queries = {"q"};
  for (int i = 0; i < 5000; ++i) call.texts.push_back(absl::StrCat(i));
  size_t next = 0;
  int parts = 0;
  while (next < 5000) {
    const v1::EmbedRequest part = TakePart(call, next);
    EXPECT_EQ(part.model(), "m");
    EXPECT_EQ(part.instruction(), "i");
    ASSERT_GT(part.inputs_size(), 0);
    EXPECT_LE(part.inputs_size(), protocol::kMaxEmbedInputs);
    for (const v1::EmbedInput& input : part.inputs()) {
      EXPECT_EQ(input.pair().query(), "q");
      EXPECT_EQ(input.pair().document(), absl::StrCat(next++));
    }
    ++parts;
  }
  EXPECT_EQ(parts, 3);
  RerankCall large;
  large.queries = {std::string(100000, 'q'), "r", std::string(200000, 's')};
  large.texts = {"a", std::string(100000, 'b'), "c"};
  EXPECT_EQ(TakePart(large, 0).inputs_size(), 1) << "parts have about kPartTokens tokens";
  EXPECT_EQ(TakePart(large, 1).inputs_size(), 1);
  EXPECT_EQ(TakePart(large, 2).inputs(0).pair().query().size(), 200000u);
}

TEST(RerankRequestTest, AWorkersErrorNamesTheBodysMember) {
  const auto name = [](const RerankCall& call, size_t first, std::string_view field) {
    const absl::Status status =
        WithRerankName(call, first, protocol::FieldError(field, "is wrong"));
    EXPECT_TRUE(std::string(status.message()).ends_with(": is wrong")) << status;
    return protocol::FieldOf(status);
  };
  const RerankCall rerank = Parse(R"({"query":"q","documents":["a"]})");
  EXPECT_EQ(name(rerank, 10, "inputs[3].pair.document"), "documents[13]");
  EXPECT_EQ(name(rerank, 10, "inputs[3].pair.query"), "query");
  EXPECT_EQ(name(rerank, 0, "inputs"), "documents");
  EXPECT_EQ(name(rerank, 0, "truncation.max_tokens"), "truncate_prompt_tokens");
  EXPECT_EQ(name(rerank, 0, "max_document_tokens"), "max_tokens_per_doc");
  EXPECT_EQ(name(rerank, 0, "instruction"), "instruction");
  const RerankCall scores = Parse(R"({"text_1":["p","q"],"text_2":["a","b"]})", kScore);
  EXPECT_EQ(name(scores, 1, "inputs[0].pair.document"), "text_2[1]");
  EXPECT_EQ(name(scores, 1, "inputs[0].pair.query"), "text_1[1]");
  EXPECT_EQ(name(Parse(R"({"text_1":"p","text_2":"a"})", kScore), 0, "inputs[0].pair.document"),
            "text_2");
}

TEST(RerankMembersTest, TheDocumentsHaveTheTable) {
  CheckDocuments("rerank", ObjectsTable(rerank::Objects()));
}

}  // namespace
}  // namespace continuo::gateway::openai
