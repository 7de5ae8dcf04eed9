// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyModel;

std::vector<uint8_t> File(const std::string& header, size_t data_bytes, int64_t length = -1) {
  const uint64_t said = length < 0 ? header.size() : static_cast<uint64_t>(length);
  std::vector<uint8_t> file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<uint8_t>(said >> (8 * i)));
  file.insert(file.end(), header.begin(), header.end());
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<uint8_t>(i));
  return file;
}

std::string Error(const std::vector<uint8_t>& file) {
  const auto parsed = ParseSafetensors("f", file);
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

std::string Tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}}";
}

TEST(SafetensorsTest, TensorsAreViewsOfTheFile) {
  const auto file = File(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},
          "b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},
          "scalar":{"dtype":"I64","shape":[],"data_offsets":[14,22]},
          "none":{"dtype":"F32","shape":[0,5],"data_offsets":[22,22]}})",
      22);
  const auto tensors = ParseSafetensors("f", file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  const StoredTensor& b = (*tensors)[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_THAT(b.shape, ElementsAre(3));
  EXPECT_THAT(b.bytes, ElementsAre(8, 9, 10, 11, 12, 13));
  EXPECT_EQ(b.bytes.data() + 14, file.data() + file.size());
}

TEST(SafetensorsTest, HostileHeadersAreRefusedByName) {
  EXPECT_THAT(Error({1, 2, 3}), HasSubstr("3 bytes"));
  EXPECT_THAT(Error(File("{}", 0, 3)), AllOf(HasSubstr("3 bytes"), HasSubstr("only 2")));
  EXPECT_THAT(Error(File("{}", 0, int64_t{1} << 62)), HasSubstr("at most 33554432"));
  EXPECT_THAT(Error(File("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error(File("{", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(Error(File(std::string(1 << 20, '['), 0)), HasSubstr("deeper"));
  EXPECT_THAT(Error(File(R"({"t":7})", 0)), AllOf(HasSubstr("\"t\""), HasSubstr("object")));
  EXPECT_THAT(Error(File(R"({"t":{"shape":[],"data_offsets":[0,4]}})", 4)), HasSubstr("dtype"));
  EXPECT_THAT(Error(File(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4)), HasSubstr("shape"));
  EXPECT_THAT(Error(File(R"({"t":{"dtype":"F32","shape":[1]}})", 4)), HasSubstr("data_offsets"));
  EXPECT_THAT(Error(File(Tensor("Q4", "[1]", "[0,4]"), 4)), HasSubstr("\"Q4\""));
  EXPECT_THAT(Error(File(Tensor("F32", "[-1]", "[0,4]"), 4)), HasSubstr("[-1]"));
  EXPECT_THAT(Error(File(Tensor("F32", "[1.5]", "[0,4]"), 4)), HasSubstr("shape"));
  EXPECT_THAT(Error(File(Tensor("F32", "[4294967296,4294967296]", "[0,4]"), 4)),
              HasSubstr("impossible shape"));
  EXPECT_THAT(Error(File(Tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4)),
              HasSubstr("9 dimensions"));
  EXPECT_THAT(Error(File(Tensor("F32", "[1]", "[4,0]"), 4)), HasSubstr("data_offsets"));
  EXPECT_THAT(Error(File(Tensor("F32", "[1]", "[0]"), 4)), HasSubstr("data_offsets"));
  EXPECT_THAT(Error(File(Tensor("F32", "[1]", "[0,18446744073709551615]"), 4)),
              HasSubstr("data_offsets"));
  EXPECT_THAT(Error(File(Tensor("F32", "[2]", "[0,8]"), 4)),
              AllOf(HasSubstr("ends at byte 8"), HasSubstr("truncated")));
  EXPECT_THAT(Error(File(Tensor("F32", "[2]", "[0,4]"), 4)), HasSubstr("need 8"));
  EXPECT_THAT(Error(File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                             "b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                         6)),
              AllOf(HasSubstr("\"a\""), HasSubstr("\"b\""), HasSubstr("overlap")));
  EXPECT_THAT(Error(File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                             "a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         8)),
              HasSubstr("twice"));
}

TEST(SafetensorsTest, DamagedFilesNeverEndTheProcess) {
  const std::vector<uint8_t> whole =
      File(R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
           R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})",
           14);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> file = whole;
    for (uint32_t n = random() % 4; n > 0; --n) {
      file[random() % file.size()] = static_cast<uint8_t>(random());
    }
    file.resize(file.size() - random() % 3);
    const auto tensors = ParseSafetensors("f", file);
    if (!tensors.ok()) continue;
    for (const StoredTensor& tensor : *tensors) {
      if (tensor.bytes.empty()) continue;
      ASSERT_GE(tensor.bytes.data(), file.data());
      ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
    }
  }
}

TEST(SafetensorsTest, AnIndexDoesNotLeadOutOfItsFolder) {
  for (const char* shard :
       {"../model.safetensors", "/etc/model.safetensors", "a/b.safetensors", "..", "",
        ".hidden.safetensors", "model.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"}) {
    const auto index =
        ParseSafetensorsIndex(std::string(R"({"weight_map":{"w":")") + shard + "\"}}");
    ASSERT_FALSE(index.ok()) << shard;
    EXPECT_THAT(std::string(index.status().message()), HasSubstr("plain name"));
  }
  EXPECT_FALSE(ParseSafetensorsIndex(R"({"weight_map":{"w":7}})").ok());
  EXPECT_FALSE(ParseSafetensorsIndex(R"({"weight_map":[]})").ok());
  EXPECT_FALSE(ParseSafetensorsIndex(R"({})").ok());
  EXPECT_EQ(ParseSafetensorsIndex(R"({"weight_map":{"w":"s.safetensors"}})")->at("w"),
            "s.safetensors");
}

TEST(CheckpointTest, ShardsAreOneModel) {
  const TinyModel single, sharded({.shard_bytes = 20000});
  ASSERT_FALSE(fs::exists(sharded.dir() + "/model.safetensors"));
  const auto one = Checkpoint::Open(single.dir()), many = Checkpoint::Open(sharded.dir());
  ASSERT_TRUE(one.ok() && many.ok()) << many.status();
  const auto file = MappedFile::Open(single.dir() + "/model.safetensors");
  const auto index = ParseSafetensorsIndex(sharded.Read("model.safetensors.index.json"));
  ASSERT_TRUE(file.ok() && index.ok());
  EXPECT_EQ(ParseSafetensors("f", (*file)->bytes())->size(), index->size());
  for (const auto& [name, shard] : *index) {
    EXPECT_TRUE(one->Find(name) != nullptr && many->Find(name) != nullptr) << name;
  }
  const StoredTensor* a = one->Find("model.norm.weight");
  const StoredTensor* b = many->Find("model.norm.weight");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(std::vector(a->bytes.begin(), a->bytes.end()),
            std::vector(b->bytes.begin(), b->bytes.end()));
  EXPECT_EQ(one->Find("model.norm"), nullptr);
}

TEST(CheckpointTest, MissingFilesAreNamed) {
  const TinyModel sharded({.shard_bytes = 20000});
  for (const auto& entry : fs::directory_iterator(sharded.dir())) {
    if (entry.path().filename().string().find("-00002-") != std::string::npos) {
      fs::remove(entry.path());
    }
  }
  const auto opened = Checkpoint::Open(sharded.dir());
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("model-00002-"));
  fs::remove(sharded.dir() + "/model.safetensors.index.json");
  EXPECT_EQ(Checkpoint::Open(sharded.dir()).status().code(), absl::StatusCode::kNotFound);
}

TEST(CheckpointTest, ATensorThatItsShardLacksIsNamed) {
  const TinyModel model({.shard_bytes = 20000});
  std::string index = model.Read("model.safetensors.index.json");
  index.replace(index.find("\"model.norm.weight\""), 19, "\"model.norm.weighs\"");
  model.Write("model.safetensors.index.json", index);
  EXPECT_THAT(std::string(Checkpoint::Open(model.dir()).status().message()),
              HasSubstr("model.norm.weighs"));
}

TEST(CheckpointTest, OddFilesAreRefused) {
  const TinyModel model;
  model.Write("model.safetensors", "");
  EXPECT_EQ(Checkpoint::Open(model.dir()).status().code(), absl::StatusCode::kInvalidArgument);
  fs::remove(model.dir() + "/model.safetensors");
  fs::create_directory(model.dir() + "/model.safetensors");
  EXPECT_EQ(Checkpoint::Open(model.dir()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::model
