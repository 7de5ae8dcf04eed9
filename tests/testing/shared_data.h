// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace continuo::testing {

// Returns the path of a file or folder of the shared test data ($CONTINUO_SHARED, which ctest
// sets).
inline std::string SharedPath(std::string_view relative) {
  const char* root = std::getenv("CONTINUO_SHARED");
  return (std::filesystem::path(root != nullptr ? root : "../shared") / relative).string();
}

inline bool SharedExists(std::string_view relative) {
  return std::filesystem::exists(SharedPath(relative));
}

// Returns a path inside the project's source tree: $CONTINUO_SOURCE, else the working directory,
// which is the tree's root under ctest.
inline std::string SourcePath(std::string_view relative) {
  const char* root = std::getenv("CONTINUO_SOURCE");
  return (std::filesystem::path(root != nullptr ? root : ".") / relative).string();
}

// Returns the path of a program built with the tests: $CONTINUO_BIN, else the folder bin beside the
// test's own.
inline std::string BinaryPath(std::string_view name) {
  const char* root = std::getenv("CONTINUO_BIN");
  const std::filesystem::path bin =
      root != nullptr
          ? std::filesystem::path(root)
          : std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
  return (bin / name).string();
}

}  // namespace continuo::testing

// Ends the current test as skipped, naming what is missing. `scripts/test.sh` fails in CI when a
// conformance test was skipped.
#define CONTINUO_NEED_SHARED(relative)              \
  if (!::continuo::testing::SharedExists(relative)) \
  GTEST_SKIP() << "shared data not found: " << ::continuo::testing::SharedPath(relative)
