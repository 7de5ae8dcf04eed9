// SPDX-License-Identifier: Apache-2.0
#include "services/base/confined_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/temp_folder.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TempFolder;

class ConfinedFolderTest : public ::testing::Test {
 protected:
  ConfinedFolderTest() {
    Write(outside_ / "secret", "secret");
    Write(root_ / "a" / "file", "inside");
    const auto opened = ConfinedFolder::Open(root_.string());
    EXPECT_TRUE(opened.ok()) << opened.status();
    folder_ = std::make_unique<const ConfinedFolder>(*opened);
  }
  static void Write(const std::filesystem::path& path, std::string_view text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  absl::StatusCode CodeOf(const std::string& path) const {
    return folder_->ReadFile(path, 100).status().code();
  }

  const TempFolder temp_;
  const std::filesystem::path root_ = std::filesystem::canonical(temp_.path()) / "root";
  const std::filesystem::path outside_ = std::filesystem::canonical(temp_.path()) / "root_beside";
  std::unique_ptr<const ConfinedFolder> folder_;
};

TEST_F(ConfinedFolderTest, FilesBelowAreRead) {
  for (const std::string path : {"a/file", "./a/../a/file", "a//file"}) {
    const auto bytes = folder_->ReadFile(path, 100);
    ASSERT_TRUE(bytes.ok()) << path << bytes.status();
    EXPECT_EQ(*bytes, "inside");
  }
  EXPECT_EQ(*folder_->ReadFile((root_ / "a" / "file").string(), 100), "inside");
  EXPECT_EQ(*folder_->Resolve("a"), (root_ / "a").string());
  EXPECT_EQ(folder_->ReadFile("a/file", 6)->size(), 6u);
  EXPECT_EQ(folder_->ReadFile("a/file", 5).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf("a"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf("a/none"), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf("a/file/more"), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(std::string("a\0b", 3)), absl::StatusCode::kInvalidArgument);
}

TEST_F(ConfinedFolderTest, ErrorsDoNotTellWhereTheFolderIs) {
  std::filesystem::create_symlink(outside_ / "secret", root_ / "a" / "link");
  Write(root_ / "b" / "file", "");
  for (const std::string path : {"a/none", "a/file", "a/file/more", "a", "a/link", "../secret"}) {
    for (const std::string& given : {path, (root_ / path).string()}) {
      const absl::Status status = folder_->ReadFile(given, 1).status();
      EXPECT_THAT(std::string(status.message()), StartsWith(path + ": "));
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(temp_.path().string())));
    }
  }
  const absl::Status many = folder_->ListFolders(1).status();
  EXPECT_THAT(std::string(many.message()), Not(HasSubstr(temp_.path().string())));
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ConfinedFolderTest, NoPathLeadsOut) {
  for (const std::string path : {"../root_beside/secret", "a/../../root_beside/secret",
                                 "/etc/passwd", "..", "/", "../root_beside/none", "/none"}) {
    EXPECT_EQ(CodeOf(path), absl::StatusCode::kPermissionDenied) << path;
    EXPECT_EQ(folder_->Stamp(path).status().code(), absl::StatusCode::kPermissionDenied) << path;
  }
  EXPECT_EQ(CodeOf((outside_ / "secret").string()), absl::StatusCode::kPermissionDenied);
}

TEST_F(ConfinedFolderTest, LinksStayBelow) {
  namespace fs = std::filesystem;
  fs::create_symlink("a", root_ / "relative");
  fs::create_symlink(root_ / "a", root_ / "absolute");
  fs::create_directory_symlink(outside_, root_ / "out");
  fs::create_symlink(outside_ / "secret", root_ / "a" / "out");
  fs::create_symlink("self", root_ / "self");
  fs::create_symlink("none", root_ / "dangling");
  EXPECT_EQ(*folder_->ReadFile("relative/file", 100), "inside");
  EXPECT_EQ(*folder_->ReadFile("absolute/file", 100), "inside");
  EXPECT_EQ(CodeOf("out/secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf("a/out"), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(folder_->ReadFile("self", 100).ok());
  EXPECT_EQ(CodeOf("dangling"), absl::StatusCode::kNotFound);
}

// Opening one that nobody writes to would wait for ever.
TEST_F(ConfinedFolderTest, PipesAreNoFiles) {
  ASSERT_EQ(mkfifo((root_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(CodeOf("pipe"), absl::StatusCode::kInvalidArgument);
}

TEST_F(ConfinedFolderTest, AStampChangesWithTheFile) {
  const std::string first = *folder_->Stamp("a/file");
  EXPECT_EQ(*folder_->Stamp("a/file"), first);
  Write(root_ / "a" / "new", "insidE");
  std::filesystem::rename(root_ / "a" / "new", root_ / "a" / "file");
  EXPECT_NE(*folder_->Stamp("a/file"), first);
}

TEST_F(ConfinedFolderTest, FoldersAreListed) {
  std::filesystem::create_directory(root_ / "c");
  std::filesystem::create_directory(root_ / "b");
  std::filesystem::create_directory_symlink("a", root_ / "d");
  Write(root_ / "file", "");
  EXPECT_THAT(*folder_->ListFolders(10), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(folder_->ListFolders(4)->size(), 4u);
  EXPECT_EQ(folder_->ListFolders(3).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ConfinedFolderTest, ItIsAFolder) {
  EXPECT_EQ(ConfinedFolder::Open((root_ / "none").string()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ConfinedFolder::Open((root_ / "a" / "file").string()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo
