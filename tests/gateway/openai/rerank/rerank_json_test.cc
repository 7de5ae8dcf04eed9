// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

// Two responses that have these scores together.
std::vector<v1::EmbedResponse> ResponsesOf(const std::vector<float>& scores) {
  std::vector<v1::EmbedResponse> responses(2);
  for (size_t i = 0; i < scores.size(); ++i) {
    v1::Embedding& embedding = *responses[i > 1 ? 1 : 0].add_embeddings();
    embedding.add_values(scores[i]);
    const auto p = static_cast<double>(scores[i]);
    embedding.set_logit(std::log(p) - std::log1p(-p));
  }
  responses[0].mutable_usage()->set_prompt_tokens(5);
  responses[1].mutable_usage()->set_prompt_tokens(7);
  return responses;
}

RerankCall CallOf(ScoreForm form, size_t top_n) { return {.form = form, .top_n = top_n}; }

TEST(RerankJsonTest, TheBestDocumentsComeFirst) {
  RerankCall call = CallOf(ScoreForm::kRerank, 3);
  call.documents = {R"({"text":"a"})", R"({"text":"b"})", R"({"text":"c","n":1})",
                    R"({"text":"d"})"};
  const std::string json = RerankJson(call, ResponsesOf({0.25f, 0.1f, 0.75f, 0.25f}), "id", "m", 9);
  EXPECT_EQ(Json::parse(json), Json::parse(R"({"id":"id","model":"m","results":[
      {"index":2,"relevance_score":0.75,"document":{"text":"c","n":1}},
      {"index":0,"relevance_score":0.25,"document":{"text":"a"}},
      {"index":3,"relevance_score":0.25,"document":{"text":"d"}}],
      "meta":{"api_version":{"version":"1"},"tokens":{"input_tokens":12,"output_tokens":0}},
      "usage":{"prompt_tokens":12,"total_tokens":12}})"));
  EXPECT_LE(json.size(), RerankJsonBytes(call));
}

// From a logit of about 17.4 on a score is 1 as a float.
TEST(RerankJsonTest, EqualScoresAreOrderedByTheirLogits) {
  std::vector<v1::EmbedResponse> responses = ResponsesOf({1, 1, 0, 1});
  const double logits[] = {18, 25, -200, 25};
  for (int i = 0; i < 4; ++i) {
    responses[i > 1 ? 1 : 0].mutable_embeddings(i % 2)->set_logit(logits[i]);
  }
  const Json answer =
      Json::parse(RerankJson(CallOf(ScoreForm::kRerank, 4), responses, "i", "m", 0));
  std::vector<int> order;
  for (const Json& result : answer["results"]) order.push_back(result["index"]);
  EXPECT_EQ(order, (std::vector<int>{1, 3, 0, 2}));
  EXPECT_EQ(answer["results"][0]["relevance_score"], 1);
}

TEST(RerankJsonTest, AScoreWithoutALogitIsOrderedByItself) {
  std::vector<v1::EmbedResponse> responses = ResponsesOf({0.25f, 1, 0.5f, 0});
  for (int i = 0; i < 4; ++i) {
    if (i != 2) responses[i > 1 ? 1 : 0].mutable_embeddings(i % 2)->clear_logit();
  }
  const Json answer =
      Json::parse(RerankJson(CallOf(ScoreForm::kRerank, 4), responses, "i", "m", 0));
  std::vector<int> order;
  for (const Json& result : answer["results"]) order.push_back(result["index"]);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 0, 3}));
}

TEST(RerankJsonTest, NumbersReadAsTheSameFloat) {
  const float third = 1.0f / 3;
  const Json answer = Json::parse(
      RerankJson(CallOf(ScoreForm::kRerankV2, 2), ResponsesOf({third, 1e-30f}), "i", "m", 0));
  EXPECT_EQ(answer["results"][0]["relevance_score"].get<float>(), third);
  EXPECT_EQ(answer["results"][1]["relevance_score"].get<float>(), 1e-30f);
  EXPECT_EQ(answer["meta"]["api_version"]["version"], "2");
  EXPECT_FALSE(answer["results"][0].contains("document"));
}

TEST(RerankJsonTest, ScoresComeInTheOrderOfPairs) {
  const RerankCall call = CallOf(ScoreForm::kScore, 3);
  const std::string json = RerankJson(call, ResponsesOf({0.25f, 1, 0.5f}), "s", "m", 9);
  EXPECT_EQ(Json::parse(json), Json::parse(R"({"id":"s","object":"list","created":9,"model":"m",
      "data":[{"index":0,"object":"score","score":0.25},{"index":1,"object":"score","score":1},
              {"index":2,"object":"score","score":0.5}],
      "usage":{"prompt_tokens":12,"total_tokens":12}})"));
  EXPECT_LE(json.size(), RerankJsonBytes(call));
}

TEST(RerankJsonTest, WhatIsNoNumberComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Json answer = Json::parse(
      RerankJson(CallOf(ScoreForm::kRerank, 4), ResponsesOf({nan, 0.5f, nan, 0}), "i", "m", 0));
  std::vector<int> order;
  for (const Json& result : answer["results"]) order.push_back(result["index"]);
  EXPECT_EQ(order, (std::vector<int>{1, 3, 0, 2}));
  EXPECT_TRUE(answer["results"][3]["relevance_score"].is_null());
}

}  // namespace
}  // namespace continuo::gateway::openai
