// SPDX-License-Identifier: Apache-2.0
#include "services/base/watched_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "tests/testing/temp_folder.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WatchedFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }

  const testing::TempFolder temp_;
  const std::string path_ = absl::StrCat(temp_.path().string(), "/file");
};

TEST_F(WatchedFileTest, WhatIsNoSmallFileIsNotRead) {
  const auto why = [](const std::string& path) {
    return std::string(ReadWholeFile(path, 8).status().message());
  };
  EXPECT_THAT(why(path_), HasSubstr("is not a file that can be read"));
  EXPECT_THAT(why(temp_.path()), HasSubstr("is not a file that can be read"));
  ASSERT_EQ(mkfifo((path_ + ".pipe").c_str(), 0600), 0);
  EXPECT_THAT(why(path_ + ".pipe"), HasSubstr("is not a file that can be read"));
  Write("123456789");
  EXPECT_THAT(why(path_), HasSubstr("has 9 bytes, the limit is 8"));
  Write(
      std::string("1234\0"
                  "678",
                  8));
  EXPECT_EQ(*ReadWholeFile(path_, 8), std::string("1234\0"
                                                  "678",
                                                  8));
}

TEST_F(WatchedFileTest, EachChangeIsToldOnce) {
  Write("one");
  std::vector<std::string> told;
  WatchedFile file(path_, 100, absl::InfiniteDuration(), "one",
                   [&](const absl::StatusOr<std::string>& text) {
                     told.push_back(text.ok() ? *text : std::string(text.status().message()));
                   });
  file.Look();
  Write("two");
  file.Look();
  file.Look();
  std::filesystem::remove(path_);
  file.Look();
  file.Look();
  Write("two");
  file.Look();
  EXPECT_THAT(told, ElementsAre("two", HasSubstr("is not a file"), "two"));
}

TEST_F(WatchedFileTest, TheThreadLooksByItself) {
  Write("one");
  absl::BlockingCounter changed(1);
  const WatchedFile file(
      path_, 100, absl::Milliseconds(1), "one",
      [&](const absl::StatusOr<std::string>& /*text*/) { changed.DecrementCount(); });
  Write("two");
  changed.Wait();
}

}  // namespace
}  // namespace continuo
