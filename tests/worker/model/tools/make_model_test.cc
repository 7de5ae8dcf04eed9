// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/tools/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using ::testing::HasSubstr;
using testing::TinyModel;

TEST(MakeModelTest, BytesArePinnedForEachType) {
  // The generator is integer arithmetic and one rounding, so any machine gives these bytes.
  const auto digest = [](const char* dtype) {
    return ToHex(DigestOf(TinyModel({.seed = 42, .dtype = dtype}).Read("model.safetensors")));
  };
  EXPECT_EQ(digest("fp32"), "b20775f01b8c6df4c6f6152c8e7e9c1a");
  EXPECT_EQ(digest("bf16"), "90c47e3e325ff5af99a8e34e6aed7a8c");
  EXPECT_EQ(digest("fp16"), "67a752cc44aa16e8ea0c822cb0cd02c7");
}

TEST(MakeModelTest, TheSeedChangesTheWeights) {
  EXPECT_EQ(TinyModel({.seed = 1}).Read("model.safetensors"),
            TinyModel({.seed = 1}).Read("model.safetensors"));
  EXPECT_NE(TinyModel({.seed = 1}).Read("model.safetensors"),
            TinyModel({.seed = 2}).Read("model.safetensors"));
}

TEST(MakeModelTest, TokenizerCoversTheVocabulary) {
  const nlohmann::json tokenizer = nlohmann::json::parse(ByteLevelTokenizerJson(300, {5, 299}));
  const nlohmann::json& vocab = tokenizer["model"]["vocab"];
  EXPECT_EQ(vocab.size(), 300u);
  std::vector<bool> seen(300);
  for (const auto& id : vocab) seen[id.get<size_t>()] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 300);
  EXPECT_EQ(tokenizer["added_tokens"][0]["id"], 5);
  EXPECT_EQ(vocab["<|special_5|>"], 5);
  EXPECT_EQ(vocab["a"], 'a' + 1);  // the special token took an id below
  EXPECT_EQ(vocab["\u0120w298"], 298);
}

TEST(MakeModelTest, ATokenizerIsCopiedWhereOneIsGiven) {
  const TinyModel from, to;
  from.Write("tokenizer.json", "{}");
  from.Write("generation_config.json", "{\"top_k\":3}");
  const RandomModelOptions options = {.config_json = to.Read("config.json"),
                                      .out_dir = to.dir(),
                                      .dtype = "fp32",
                                      .tokenizer_dir = from.dir()};
  ASSERT_TRUE(WriteRandomModel(options).ok());
  EXPECT_EQ(to.Read("tokenizer.json"), "{}");
  EXPECT_EQ(to.Read("generation_config.json"), "{\"top_k\":3}");
  std::filesystem::remove(from.dir() + "/tokenizer.json");
  EXPECT_EQ(WriteRandomModel(options).code(), absl::StatusCode::kNotFound);
}

TEST(MakeModelTest, BadOptionsAreRefused) {
  const TinyModel model;
  RandomModelOptions options = {.config_json = model.Read("config.json"), .out_dir = model.dir()};
  options.dtype = "int8";
  EXPECT_THAT(std::string(WriteRandomModel(options).message()), HasSubstr("int8"));
  options.dtype = "fp16";
  options.shard_bytes = 0;
  EXPECT_THAT(std::string(WriteRandomModel(options).message()), HasSubstr("shard_bytes"));
  options.shard_bytes = 1000;
  options.out_dir = model.dir() + "/config.json/folder";
  EXPECT_EQ(WriteRandomModel(options).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ConfigOfShape("gpt-2").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::model
