// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/embedding_head.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_folder.h"

namespace continuo::embedding {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// A safetensors file of f32 tensors, each with name, shape and values.
struct NamedValues {
  std::string name, shape;
  std::vector<float> values;
};
void WriteTensors(const std::filesystem::path& path, const std::vector<NamedValues>& tensors) {
  std::string header = "{", data;
  for (const NamedValues& t : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", t.name,
                    "\":{\"dtype\":\"F32\",\"shape\":", t.shape, ",\"data_offsets\":[", begin, ",",
                    data.size(), "]}");
  }
  header += "}";
  const uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes << header << data;
}

std::shared_ptr<const EmbeddingHead> Plain(int size, bool normalises) {
  auto head = EmbeddingHead::Load("/nowhere", {.normalises = normalises}, size);
  EXPECT_TRUE(head.ok()) << head.status();
  return *std::move(head);
}

TEST(EmbeddingHeadTest, AVectorIsCutAndThenScaled) {
  const auto head = Plain(4, true);
  EXPECT_EQ(head->dimensions(), 4);
  const std::vector<float> state = {3, 4, 12, 84};
  EXPECT_THAT(head->Apply(state, 4, false), ElementsAre(3, 4, 12, 84));
  EXPECT_THAT(head->Apply(state, 2, true), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(head->Apply(state, 3, true),
              ElementsAre(FloatNear(3 / 13.f, 1e-7f), FloatNear(4 / 13.f, 1e-7f),
                          FloatNear(12 / 13.f, 1e-7f)));
  EXPECT_THAT(head->Apply(std::vector<float>(4), 4, true), ElementsAre(0, 0, 0, 0));
}

TEST(EmbeddingHeadTest, ScaledVectorsHaveLengthOne) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int size : {1, 7, 8, 9, 64, 1021}) {
    std::vector<float> state(static_cast<size_t>(size));
    for (float& value : state) value = normal(random) * 1e-3f;
    double length = 0;
    for (const float value : Plain(size, true)->Apply(state, size, true)) {
      length += static_cast<double>(value) * static_cast<double>(value);
    }
    EXPECT_NEAR(length, 1, 1e-6) << size;
  }
}

TEST(EmbeddingHeadTest, DenseModulesAreAppliedInOrder) {
  const testing::TempFolder folder;
  WriteTensors(folder.path() / "2_Dense" / "model.safetensors",
               {{"linear.weight", "[3,2]", {1, 0, 0, 1, 1, 1}}});
  WriteTensors(folder.path() / "3_Dense" / "model.safetensors",
               {{"linear.weight", "[1,3]", {0.5f, -1, 0.25f}}, {"linear.bias", "[1]", {0.125f}}});
  SentenceModules modules;
  modules.dense = {{.folder = "2_Dense",
                    .in_features = 2,
                    .out_features = 3,
                    .has_bias = false,
                    .activation = Activation::kIdentity},
                   {.folder = "3_Dense", .in_features = 3, .out_features = 1}};
  const auto head = EmbeddingHead::Load(folder.path().string(), modules, 2);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ((*head)->dimensions(), 1);
  const double sum = 0.5 * 2 - 3 + 0.25 * 5 + 0.125;
  EXPECT_THAT((*head)->Apply(std::vector<float>{2, 3}, 1, false),
              ElementsAre(FloatNear(static_cast<float>(std::tanh(sum)), 1e-7f)));
  // Other weights are another head.
  const std::string digest = (*head)->digest();
  WriteTensors(folder.path() / "3_Dense" / "model.safetensors",
               {{"linear.weight", "[1,3]", {0.5f, -1, 0.5f}}, {"linear.bias", "[1]", {0.125f}}});
  EXPECT_NE((*EmbeddingHead::Load(folder.path().string(), modules, 2))->digest(), digest);
}

TEST(EmbeddingHeadTest, FilesThatDoNotFitAreNamed) {
  const testing::TempFolder folder;
  SentenceModules modules = {.dense = {{.folder = "2_Dense", .in_features = 2, .out_features = 1}}};
  const auto error = [&](int state_size = 2) {
    const auto head = EmbeddingHead::Load(folder.path().string(), modules, state_size);
    EXPECT_FALSE(head.ok());
    return std::string(head.status().message());
  };
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
  const auto path = folder.path() / "2_Dense" / "model.safetensors";
  WriteTensors(path, {{"linear.weight", "[1,2]", {1, 2}}});
  EXPECT_THAT(error(), HasSubstr("linear.bias"));
  WriteTensors(path, {{"linear.weight", "[2,1]", {1, 2}}, {"linear.bias", "[1]", {1}}});
  EXPECT_THAT(error(), HasSubstr("linear.weight is not as"));
  WriteTensors(path, {{"linear.weight", "[1,2]", {1, 2}},
                      {"linear.bias", "[1]", {1}},
                      {"residual.weight", "[1]", {1}}});
  EXPECT_THAT(error(), HasSubstr("other tensors"));
  EXPECT_THAT(error(3), HasSubstr("in_features is 2, the vector has 3"));
  modules = {.dimension = 4};
  EXPECT_THAT(error(3), HasSubstr("the pooling has 4 dimensions, the model 3"));
}

}  // namespace
}  // namespace continuo::embedding
