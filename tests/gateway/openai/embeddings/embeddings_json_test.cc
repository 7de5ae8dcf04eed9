// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_json.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

v1::EmbedResponse ResponseOf(const std::vector<std::vector<float>>& vectors, uint32_t tokens) {
  v1::EmbedResponse response;
  for (const std::vector<float>& vector : vectors) {
    response.add_embeddings()->mutable_values()->Assign(vector.begin(), vector.end());
  }
  response.mutable_usage()->set_prompt_tokens(tokens);
  return response;
}

TEST(EmbeddingsJsonTest, IsOpenAisList) {
  EXPECT_EQ(EmbeddingsJson({ResponseOf({{1, 0.1f}, {-2.5f, 3e-8f}}, 5), ResponseOf({{4, 4}}, 2)},
                           "a \"b\"", false),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,0.1]},)"
            R"({"object":"embedding","index":1,"embedding":[-2.5,3e-08]},)"
            R"({"object":"embedding","index":2,"embedding":[4,4]}],)"
            R"("model":"a \"b\"","usage":{"prompt_tokens":7,"total_tokens":7}})");
}

TEST(EmbeddingsJsonTest, EveryFloatComesBackToTheBit) {
  std::mt19937 random(1);
  std::vector<float> values = {std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest(),
                               std::numeric_limits<float>::denorm_min(), -0.0f};
  while (values.size() < 20000) {
    const auto bits = static_cast<uint32_t>(random());
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isfinite(value)) values.push_back(value);
  }
  const std::vector<v1::EmbedResponse> parts = {ResponseOf({values}, 1)};
  const std::string text = EmbeddingsJson(parts, "m", false);
  EXPECT_LE(text.size(), EmbeddingsJsonBytes(1, values.size(), false));
  const Json json = Json::parse(text);
  const Json& list = json["data"][0]["embedding"];
  ASSERT_EQ(list.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(list[i].get<double>());
    EXPECT_EQ(std::memcmp(&value, &values[i], sizeof(value)), 0) << values[i];
  }
  const std::string packed = EmbeddingsJson(parts, "m", true);
  EXPECT_LE(packed.size(), EmbeddingsJsonBytes(1, values.size(), true));
  std::string bytes;
  ASSERT_TRUE(
      absl::Base64Unescape(Json::parse(packed)["data"][0]["embedding"].get<std::string>(), &bytes));
  ASSERT_EQ(bytes.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0) << "little-endian float32";
}

}  // namespace
}  // namespace continuo::gateway::openai
