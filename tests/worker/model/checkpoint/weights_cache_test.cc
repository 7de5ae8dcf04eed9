// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weights_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "services/worker/model/checkpoint/weights.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using ::testing::HasSubstr;
using testing::TinyModel;

constexpr auto kLoop = [](int n, absl::FunctionRef<void(int)> body) {
  for (int i = 0; i < n; ++i) body(i);
};

// A folder that does not exist yet, and is deleted at the end.
class Folder {
 public:
  const std::string& path() const { return path_; }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    if (!std::filesystem::exists(path_)) return files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      files.push_back(entry.path().string());
    }
    return files;
  }

 private:
  const testing::TempFolder temp_;
  const std::string path_ = temp_.path() / "a" / "b";
};

std::vector<uint8_t> Bytes(size_t n) {
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}

void Overwrite(const std::string& path, int64_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
  file.put(value);
}

TEST(WeightsCacheTest, GivesBackWhatWasWrittenForTheKeyAndSource) {
  const Folder folder;
  const WeightsCache cache(folder.path(), {1, 2});
  const std::vector<uint8_t> bytes = Bytes((size_t{33} << 20) + 5);  // three chunks
  std::vector<uint8_t> found(bytes.size());
  EXPECT_TRUE(absl::IsNotFound(cache.Read("k", std::span(found), kLoop)));
  ASSERT_TRUE(cache.Write("k", bytes, kLoop).ok());
  EXPECT_TRUE(cache.Read("k", std::span(found), kLoop).ok());
  EXPECT_EQ(found, bytes);
  EXPECT_EQ(folder.Files(), std::vector<std::string>{cache.PathOf("k")}) << "nothing else is left";
  EXPECT_TRUE(absl::IsNotFound(cache.Read("other", std::span(found), kLoop)));
  EXPECT_TRUE(
      absl::IsNotFound(WeightsCache(folder.path(), {1, 3}).Read("k", std::span(found), kLoop)));
}

TEST(WeightsCacheTest, AFileThatIsNotWholeCountsAsNone) {
  const Folder folder;
  const WeightsCache cache(folder.path(), {1, 2});
  const std::vector<uint8_t> bytes = Bytes((size_t{17} << 20) + 1);
  std::vector<uint8_t> found(bytes.size());
  const auto read = [&] { return cache.Read("k", std::span(found), kLoop); };
  const std::string path = cache.PathOf("k");
  // The offsets are in each part: magic, key, size, digests, padding, first chunk, last byte.
  for (const int64_t at : {0, 16, 35, 40, 60, 100, 4096, 5000000, -1}) {
    ASSERT_TRUE(cache.Write("k", bytes, kLoop).ok());
    ASSERT_TRUE(read().ok());
    Overwrite(path, at, '\x5e');
    EXPECT_TRUE(absl::IsDataLoss(read())) << at;
  }
  for (const uintmax_t size : {uintmax_t{0}, uintmax_t{10}, uintmax_t{4096}, uintmax_t{5000},
                               uintmax_t{4096} + bytes.size() - 1,
                               uintmax_t{4096} + bytes.size() + 1, uintmax_t{1} << 40}) {
    ASSERT_TRUE(cache.Write("k", bytes, kLoop).ok());
    std::filesystem::resize_file(path, size);
    EXPECT_TRUE(absl::IsDataLoss(read())) << size;
  }
  // The file of other weights has this name.
  ASSERT_TRUE(cache.Write("other", bytes, kLoop).ok());
  std::filesystem::rename(cache.PathOf("other"), path);
  EXPECT_TRUE(absl::IsDataLoss(read()));
  // A folder has this name.
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_FALSE(read().ok());
  EXPECT_FALSE(cache.Write("k", bytes, kLoop).ok());
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_FALSE(read().ok());
}

TEST(WeightsCacheTest, WhereNothingCanBeWrittenTheReasonIsTold) {
  const WeightsCache cache("/proc/no/such/folder", {1, 2});
  const std::vector<uint8_t> bytes = Bytes(10);
  EXPECT_THAT(std::string(cache.Write("k", bytes, kLoop).message()),
              HasSubstr("/proc/no/such/folder"));
}

// A rank's weights, their bytes, and where they come from.
struct Loaded {
  std::string bytes;
  bool from_cache;
  absl::Status status;
};

Loaded Load(const TinyModel& model, const WeightsCache* cache,
            kernels::WeightType type = kernels::WeightType::kInt8, int ranks = 1, int rank = 0) {
  const ModelConfig config = *ReadModelConfig(model.dir());
  const Checkpoint checkpoint = *Checkpoint::Open(model.dir());
  const auto device = *kernels::MakeDevice({.num_threads = 2, .isa = "scalar"});
  const auto weights =
      *Weights::Load(config, MakeShard(config, rank, ranks), checkpoint, type, *device, cache);
  const void* first = weights->model().embedding.data.data;  // the first of all
  return {std::string(static_cast<const char*>(first), static_cast<size_t>(weights->bytes())),
          weights->is_from_cache(), weights->cache_status()};
}

TEST(CachedWeightsTest, TheSecondStartReadsWhatTheFirstHasPacked) {
  const Folder folder;
  const TinyModel model({.family = "qwen3_moe"});
  const WeightsCache cache(folder.path(), {1, 2});
  size_t num_files = 0;
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    for (const int ranks : {1, 2}) {
      const Loaded packed = Load(model, nullptr, type, ranks, ranks - 1);
      const Loaded first = Load(model, &cache, type, ranks, ranks - 1);
      const Loaded second = Load(model, &cache, type, ranks, ranks - 1);
      EXPECT_FALSE(first.from_cache);
      EXPECT_TRUE(second.from_cache);
      EXPECT_EQ(first.bytes, packed.bytes);
      EXPECT_EQ(second.bytes, packed.bytes);
      EXPECT_TRUE(second.status.ok()) << second.status;
      EXPECT_EQ(folder.Files().size(), ++num_files) << "a file for each format and part";
    }
  }
}

TEST(CachedWeightsTest, WhatIsNotPackedIsNotWritten) {
  const Folder folder;
  const TinyModel model;
  const WeightsCache cache(folder.path(), {1, 2});
  EXPECT_FALSE(Load(model, &cache, kernels::WeightType::kF32).from_cache);
  EXPECT_TRUE(folder.Files().empty());
}

TEST(CachedWeightsTest, ADamagedFileIsReplaced) {
  const Folder folder;
  const TinyModel model;
  const WeightsCache cache(folder.path(), {1, 2});
  const std::string packed = Load(model, &cache).bytes;
  ASSERT_EQ(folder.Files().size(), 1u);
  Overwrite(folder.Files()[0], -1, '\x5e');
  const Loaded again = Load(model, &cache);
  EXPECT_FALSE(again.from_cache);
  EXPECT_EQ(again.bytes, packed);
  EXPECT_THAT(std::string(again.status.message()), HasSubstr("damaged"));
  EXPECT_TRUE(Load(model, &cache).from_cache);
}

TEST(CachedWeightsTest, ACacheThatCannotBeWrittenChangesNothing) {
  const TinyModel model;
  const WeightsCache cache("/proc/no/such/folder", {1, 2});
  const Loaded loaded = Load(model, &cache);
  EXPECT_EQ(loaded.bytes, Load(model, nullptr).bytes);
  EXPECT_FALSE(loaded.status.ok());
}

}  // namespace
}  // namespace continuo::model
