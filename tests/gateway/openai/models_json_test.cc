// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/models_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

TEST(ModelsJsonTest, ModelsAreListedInTheFormOfOpenAi) {
  v1::Model model;
  model.set_name("a/b");
  model.set_max_context_tokens(9);
  const Json list = Json::parse(ModelsJson(ModelsForm::kOpenAi, {model}, 3));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0], Json::parse(ModelJson(ModelsForm::kOpenAi, model, 3)));
  EXPECT_EQ(list["data"][0], Json::parse(R"({"id":"a/b","object":"model","created":3,
                                             "owned_by":"continuo","max_model_len":9})"));
  model.set_undescribed(true);
  EXPECT_EQ(Json::parse(ModelJson(ModelsForm::kOpenAi, model, 3)),
            Json::parse(R"({"id":"a/b","object":"model","created":3,"owned_by":"continuo",
                            "max_model_len":null,"undescribed":true})"));
}

TEST(ModelsJsonTest, AnAdapterNamesItsModel) {
  v1::Model model;
  model.set_name("poet");
  model.set_parent("a/b");
  EXPECT_EQ(Json::parse(ModelJson(ModelsForm::kOpenAi, model, 3))["parent"], "a/b");
}

TEST(ModelsJsonTest, ModelsAreListedInTheFormOfAnthropic) {
  v1::Model first, second;
  first.set_name("a/b");
  first.set_max_context_tokens(9);
  second.set_name("c");
  second.set_undescribed(true);
  EXPECT_EQ(Json::parse(ModelsJson(ModelsForm::kAnthropic, {first, second}, 86400)),
            Json::parse(R"({"data":[
              {"type":"model","id":"a/b","display_name":"a/b","created_at":"1970-01-02T00:00:00+00:00",
               "max_input_tokens":9,"max_tokens":9},
              {"type":"model","id":"c","display_name":"c","created_at":"1970-01-02T00:00:00+00:00"}],
              "has_more":false,"first_id":"a/b","last_id":"c"})"));
  EXPECT_EQ(Json::parse(ModelsJson(ModelsForm::kAnthropic, {}, 0)),
            Json::parse(R"({"data":[],"has_more":false,"first_id":null,"last_id":null})"));
}

}  // namespace
}  // namespace continuo::gateway::openai
