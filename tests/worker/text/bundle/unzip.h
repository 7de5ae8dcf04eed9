// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <minizip/unzip.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/temp_folder.h"

namespace continuo::testing {

// Returns names and bytes of an archive's entries, whose checksums are right.
inline std::vector<std::pair<std::string, std::string>> Unzip(const std::string& zip) {
  const TempFolder folder;
  const std::string path = folder.path().string() + "/archive.zip";
  std::ofstream(path, std::ios::binary) << zip;
  std::vector<std::pair<std::string, std::string>> entries;
  const unzFile file = unzOpen64(path.c_str());
  EXPECT_NE(file, nullptr);
  if (file == nullptr) return entries;
  for (int code = unzGoToFirstFile(file); code == UNZ_OK; code = unzGoToNextFile(file)) {
    unz_file_info64 info;
    char name[256];
    EXPECT_EQ(unzGetCurrentFileInfo64(file, &info, name, sizeof(name), nullptr, 0, nullptr, 0),
              UNZ_OK);
    std::string bytes(info.uncompressed_size, '\0');
    EXPECT_EQ(unzOpenCurrentFile(file), UNZ_OK);
    EXPECT_EQ(unzReadCurrentFile(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    EXPECT_EQ(unzCloseCurrentFile(file), UNZ_OK) << "the checksum";
    entries.emplace_back(name, std::move(bytes));
  }
  unzClose(file);
  return entries;
}

}  // namespace continuo::testing
