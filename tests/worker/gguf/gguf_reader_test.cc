// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_reader.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>

#include "tests/testing/gguf_writer.h"

namespace continuo::gguf {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

absl::StatusOr<Contents> Parse(const std::string& file) {
  return ParseGguf("x.gguf", {reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

std::string ErrorOf(const std::string& file) { return std::string(Parse(file).status().message()); }

GgufWriter Valid() {
  GgufWriter writer;
  writer.Key("general.architecture", std::string("llama"))
      .Key("whole", uint32_t{7})
      .Key("negative", -7)
      .Key("decimal", 1e-5f)
      .Key("flag", true)
      .Key("texts", std::vector<std::string>{"a", ""})
      .Key("numbers", std::vector<float>{0.5f, -2.0f})
      .Tensor("a", {4, 2}, 0, std::string(32, 'a'))
      .Tensor("b", {32}, 8, std::string(34, 'b'));
  return writer;
}

TEST(GgufReaderTest, ValuesAndTensorsAreThoseOfTheFile) {
  const std::string file = Valid().Bytes();
  const auto contents = Parse(file);
  ASSERT_TRUE(contents.ok()) << contents.status();
  const auto& metadata = contents->metadata;
  ASSERT_EQ(metadata.size(), 7u);
  EXPECT_EQ(metadata[0].first, "general.architecture");
  EXPECT_EQ(std::get<std::string_view>(metadata[0].second), "llama");
  EXPECT_EQ(std::get<int64_t>(metadata[1].second), 7);
  EXPECT_EQ(std::get<int64_t>(metadata[2].second), -7);
  EXPECT_EQ(std::get<double>(metadata[3].second), 1e-5);  // not the float's own digits
  EXPECT_TRUE(std::get<bool>(metadata[4].second));
  EXPECT_THAT(std::get<std::vector<std::string_view>>(metadata[5].second), ElementsAre("a", ""));
  EXPECT_THAT(std::get<std::vector<double>>(metadata[6].second), ElementsAre(0.5, -2));
  ASSERT_EQ(contents->tensors.size(), 2u);
  const Tensor &a = contents->tensors[0], &b = contents->tensors[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_THAT(a.shape, ElementsAre(2, 4));
  EXPECT_EQ(a.bytes.size(), 32u);
  EXPECT_EQ(a.bytes[31], 'a');
  EXPECT_EQ(b.type->name, "Q8_0");
  EXPECT_EQ(b.bytes.size(), 34u);
  EXPECT_EQ(b.bytes[0], 'b');
}

TEST(GgufReaderTest, AFileThatEndsAnywhereIsRefused) {
  const std::string file = Valid().Bytes();
  for (size_t size = 0; size < file.size(); ++size) {
    const auto contents = Parse(file.substr(0, size));
    EXPECT_EQ(contents.status().code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(std::string(contents.status().message()), HasSubstr("x.gguf: ")) << size;
  }
}

TEST(GgufReaderTest, OtherFilesAreNamed) {
  EXPECT_THAT(ErrorOf("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("Git LFS"));
  EXPECT_THAT(ErrorOf("something else"), HasSubstr("is no GGUF file"));
  EXPECT_THAT(ErrorOf(Valid().Bytes(1)), HasSubstr("is of GGUF version 1; 2 and 3 are read"));
  EXPECT_THAT(ErrorOf(Valid().Bytes(0x03000000)), HasSubstr("is big-endian"));
}

TEST(GgufReaderTest, WhatDoesNotFitIsRefused) {
  const std::string row(64, 'x');
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  struct Case {
    GgufWriter writer;
    const char* error;
  };
  const Case cases[] = {
      {GgufWriter().Key("k", 1).Key("k", 2), "has the key \"k\" twice"},
      {GgufWriter().RawKey("k", 77, ""), "value of type 77, which is not known"},
      {GgufWriter().RawKey("k", 8, std::string(8, '\xff')), "within its header"},
      {GgufWriter().RawKey("k", 9, std::string("\x09\0\0\0", 4) + std::string(8, '\0')),
       "an array of arrays"},
      {GgufWriter().RawKey("k", 9, std::string("\x04\0\0\0", 4) + std::string(8, '\x7f')),
       "elements, more than"},
      {GgufWriter().Key(std::string(2000, 'k'), 1), "the name of a key has 2000 bytes"},
      {GgufWriter().Key("general.alignment", uint32_t{48}), "must be a power of two"},
      {GgufWriter().Key("general.alignment", uint32_t{0}), "must be a power of two"},
      {GgufWriter().Tensor("t", {}, 0, row), "has 0 dimensions"},
      {GgufWriter().Tensor("t", {1, 1, 1, 1, 1}, 0, row), "has 5 dimensions"},
      {GgufWriter().Tensor("t", {0, 4}, 0, row), "has a dimension of 0"},
      {GgufWriter().Tensor("t", {huge, huge}, 0, row), "has a dimension of"},
      {GgufWriter().Tensor("t", {1u << 31, 1u << 31}, 0, row), "has a dimension of"},
      {GgufWriter().Tensor("t", {4}, 4, row), "is of type 4, which is not known"},
      {GgufWriter().Tensor("t", {33}, 8, row), "rows of 33 elements; Q8_0 has blocks of 32"},
      {GgufWriter().Tensor("t", {4}, 0, row, 5), "is at 5, which is no multiple of 32"},
      {GgufWriter().Tensor("t", {1000}, 0, row), "would end beyond the file's"},
      {GgufWriter().Tensor("t", {4}, 0, row, int64_t{1} << 62), "would end beyond the file's"},
      {GgufWriter().Tensor("t", {4}, 0, row).Tensor("u", {4}, 0, row, 0), "overlaps another one"},
      {GgufWriter().Tensor("t", {4}, 0, row).Tensor("t", {4}, 0, row), "the tensor \"t\" twice"},
  };
  for (const Case& c : cases) EXPECT_THAT(ErrorOf(c.writer.Bytes()), HasSubstr(c.error));
}

TEST(GgufReaderTest, AlignmentIsThatOfTheFile) {
  std::string file =
      GgufWriter().Key("general.alignment", uint32_t{128}).Tensor("t", {4}, 0, "").Bytes();
  ASSERT_EQ(file.size(), 96u);  // the header's end, at a multiple of 32
  file.resize(128);
  file += "0123456789abcdef";
  const auto contents = Parse(file);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->tensors[0].bytes[0], '0');
  EXPECT_EQ(contents->tensors[0].bytes.size(), 16u);
}

}  // namespace
}  // namespace continuo::gguf
