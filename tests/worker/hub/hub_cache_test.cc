// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/testing/temp_folder.h"

namespace continuo::hub {
namespace {

namespace fs = std::filesystem;

class HubCacheTest : public ::testing::Test {
 protected:
  void WriteBlob(const std::string& digest, const std::string& text) const {
    ASSERT_TRUE(cache_.MakeFolders().ok());
    std::ofstream(cache_.BlobPath(digest)) << text;
  }
  static std::string Read(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  const std::string commit_ = std::string(40, 'a');
  const testing::TempFolder root_;
  const HubCache cache_{root_.path().string(), "org/name"};
};

TEST_F(HubCacheTest, SnapshotsLinkToBlobs) {
  WriteBlob("d1", "one");
  ASSERT_TRUE(cache_.Link(commit_, "sub/file.txt", "d1").ok());
  const fs::path link = root_.path() / "models--org--name/snapshots" / commit_ / "sub/file.txt";
  EXPECT_EQ(fs::read_symlink(link), "../../../blobs/d1");
  EXPECT_EQ(Read(link), "one");
  EXPECT_TRUE(cache_.HasFile(commit_, "sub/file.txt"));
  EXPECT_FALSE(cache_.HasFile(commit_, "other"));
  WriteBlob("d2", "two");
  ASSERT_TRUE(cache_.Link(commit_, "sub/file.txt", "d2").ok());
  EXPECT_EQ(Read(link), "two");
  ASSERT_TRUE(cache_.Link(commit_, "sub/file.txt", "d2").ok());
}

TEST_F(HubCacheTest, RevisionsAreRemembered) {
  EXPECT_EQ(cache_.CommitOf("main"), "");
  ASSERT_TRUE(cache_.WriteRef("refs/pr/1", commit_).ok());
  EXPECT_EQ(cache_.CommitOf("refs/pr/1"), commit_);
  EXPECT_EQ(cache_.CommitOf(commit_), commit_);
  std::ofstream(root_.path() / "models--org--name/refs/bad") << "../../../../etc";
  EXPECT_EQ(cache_.CommitOf("bad"), "");
}

TEST_F(HubCacheTest, ALockIsHeldByOneAtATime) {
  bool has_waited = false;
  auto first = cache_.LockBlob("d", [&] { has_waited = true; });
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(has_waited);
  auto second = cache_.LockBlob("d", [&] {
    has_waited = true;
    first->reset();
  });
  EXPECT_TRUE(has_waited);
  EXPECT_TRUE(second.ok());
  EXPECT_TRUE(cache_.LockBlob("other", [] { FAIL(); }).ok());
}

TEST_F(HubCacheTest, AFolderThatCannotBeWrittenIsNamed) {
  std::ofstream(root_.path() / "file") << "x";
  const HubCache cache((root_.path() / "file").string(), "org/name");
  EXPECT_NE(std::string(cache.MakeFolders().message()).find("HF_HUB_CACHE"), std::string::npos);
  EXPECT_FALSE(cache.LockBlob("d", [] {}).ok());
}

}  // namespace
}  // namespace continuo::hub
