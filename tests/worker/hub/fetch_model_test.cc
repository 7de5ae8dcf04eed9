// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/fetch_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/worker/hub/hub_cache.h"
#include "tests/testing/temp_folder.h"

namespace continuo::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kIndex[] =
    R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})";

// A snapshot as a fetch of it by commit, or another program, may have left it.
class FindInCacheTest : public ::testing::Test {
 protected:
  FindInCacheTest() {
    Put("config.json", "{}");
    Put("tokenizer.json", "{}");
  }
  void Put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(cache_.MakeFolders().ok());
    const std::string digest = absl::StrCat("d", num_blobs_++);
    std::ofstream(cache_.BlobPath(digest)) << text;
    ASSERT_TRUE(cache_.Link(commit_, path, digest).ok());
  }
  absl::StatusOr<std::string> FindModel(const std::string& file = "") const {
    return FindInCache({.repository = "org/name", .revision = commit_, .file = file},
                       {.cache = root_.path().string()});
  }
  bool IsMissing() const {
    const auto found = FindModel();
    return absl::IsNotFound(found.status()) &&
           std::string(found.status().message()).find("is not in ") != std::string::npos;
  }

  const std::string commit_ = std::string(40, 'a');
  const testing::TempFolder root_;
  const HubCache cache_{root_.path().string(), "org/name"};
  int num_blobs_ = 0;
};

TEST_F(FindInCacheTest, APartOfTheWeightsIsNoModel) {
  EXPECT_TRUE(IsMissing());
  Put("model.safetensors.index.json", kIndex);
  EXPECT_TRUE(IsMissing());
  Put("model-00002-of-00002.safetensors", "w");
  EXPECT_TRUE(IsMissing());
  Put("model-00001-of-00002.safetensors", "w");
  const auto found = FindModel();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, cache_.SnapshotPath(commit_));
}

TEST_F(FindInCacheTest, WithoutAnIndexNumbersTell) {
  Put("model-00001-of-00002.safetensors", "w");
  EXPECT_TRUE(IsMissing());
  Put("model-00002-of-00002.safetensors", "w");
  EXPECT_TRUE(FindModel().ok()) << FindModel().status();
}

TEST_F(FindInCacheTest, AnIndexThatIsBrokenTellsNothing) {
  Put("model-00001-of-00001.safetensors", "w");
  Put("model.safetensors.index.json", R"({"weight_map":{"a":"model-0)");
  EXPECT_TRUE(IsMissing());
}

TEST_F(FindInCacheTest, OneFileOfWeightsIsAModelWhateverTheIndexSays) {
  Put("model.safetensors", "w");
  Put("model.safetensors.index.json", kIndex);
  EXPECT_TRUE(FindModel().ok()) << FindModel().status();
}

TEST_F(FindInCacheTest, ALinkWhoseBlobIsGoneIsNoFileAndHidesNone) {
  Put("model-00001-of-00002.safetensors", "w");
  Put("model-00002-of-00002.safetensors", "w");
  for (const char* name : {"a.txt", "m.txt", "z.txt"}) {
    fs::create_symlink("../../blobs/gone", fs::path(cache_.SnapshotPath(commit_)) / name);
  }
  EXPECT_TRUE(FindModel().ok()) << FindModel().status();
  fs::remove(fs::path(cache_.SnapshotPath(commit_)) / "model-00001-of-00002.safetensors");
  fs::create_symlink("../../blobs/gone",
                     fs::path(cache_.SnapshotPath(commit_)) / "model-00001-of-00002.safetensors");
  EXPECT_TRUE(IsMissing());
}

TEST_F(FindInCacheTest, GgufPartsAreAllNeeded) {
  Put("m-00001-of-00002.gguf", "w");
  EXPECT_TRUE(absl::IsNotFound(FindModel("m-00001-of-00002.gguf").status()));
  Put("m-00002-of-00002.gguf", "w");
  const auto found = FindModel("m-00001-of-00002.gguf");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, HasSubstr("/m-00001-of-00002.gguf"));
}

}  // namespace
}  // namespace continuo::hub
