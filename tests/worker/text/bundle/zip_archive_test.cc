// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/bundle/zip_archive.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/worker/text/bundle/unzip.h"

namespace continuo::text {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ZipArchiveTest, EntriesComeBackInTheirOrder) {
  std::string random;
  std::mt19937 bits(5);
  while (random.size() < 300'000) random.push_back(static_cast<char>(bits()));
  const std::vector<ZipEntry> entries = {
      {"b.json", std::string(1'000'000, 'x')}, {"a", ""}, {"z", random}};
  const auto zip = MakeZip(entries);
  ASSERT_TRUE(zip.ok()) << zip.status();
  EXPECT_LT(zip->size(), 310'000u) << "it is compressed";
  EXPECT_THAT(testing::Unzip(*zip),
              ElementsAre(Pair("b.json", entries[0].bytes), Pair("a", ""), Pair("z", random)));
}

TEST(ZipArchiveTest, EqualEntriesGiveEqualBytes) {
  const std::vector<ZipEntry> entries = {{"a", "1"}, {"b", "22"}};
  const auto first = MakeZip(entries);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *MakeZip(entries));
  // Date and time of a local header.
  EXPECT_EQ(first->substr(10, 4), std::string("\0\0\x21\0", 4));
}

}  // namespace
}  // namespace continuo::text
