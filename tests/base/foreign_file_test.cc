// SPDX-License-Identifier: Apache-2.0
#include "services/base/foreign_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/testing/temp_folder.h"

namespace continuo {
namespace {

using ::testing::HasSubstr;
using std::string_literals::operator""s;

TEST(ForeignFileTest, WhatAFileIsInsteadIsToldByName) {
  struct Case {
    std::string head, what;
  };
  std::string tar(512, '\0');
  tar.replace(0, 11, "config.json").replace(257, 5, "ustar");
  const Case cases[] = {
      {"", "is empty"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n", "Git LFS pointer"},
      {"version https://hawser.github.com/spec/v1\n", "Git LFS pointer"},
      {"# xet version 0\n", "Xet pointer"},
      {"<!DOCTYPE html>\n<html>", "HTML page"},
      {"\n  <!doctype HTML PUBLIC \"-//W3C//DTD\">", "HTML page"},
      {"<html lang=\"en\">", "HTML page"},
      {"\xEF\xBB\xBF<HTML>", "HTML page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "XML document"},
      {"PK\x03\x04\0\0\x08\x08"s, "PyTorch"},
      {"PK\x05\x06\0\0"s, "empty zip"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", "pickle"},
      {"\x80\x04\x95\x10\0\0\0\0\0\0\0"s, "pickle"},
      {"\x80\x05", "pickle"},
      {"GGUF\x03\0\0\0"s, "GGUF"},
      {"\x89HDF\r\n\x1a\n", "HDF5"},
      {"\x93NUMPY\x01", "NumPy"},
      {"\x1f\x8b\x08", "gzip"},
      {"BZh9", "bzip2"},
      {"\xfd"
       "7zXZ\0"s,
       "xz archive"},
      {"\x28\xb5\x2f\xfd\x04", "zstd"},
      {"7z\xbc\xaf\x27\x1c", "7z"},
      {"Rar!\x1a", "RAR"},
      {"\xff\xfe{\0}\0"s, "UTF-16"},
      {"\xfe\xff\0{\0}"s, "UTF-16"},
      {tar, "tar archive"},
      {std::string(16, '\0'), "zeros"},
      {std::string(512, '\0'), "zeros"},
  };
  for (const Case& one : cases) {
    EXPECT_THAT(ForeignFile(one.head), HasSubstr(one.what)) << one.head;
    EXPECT_TRUE(ForeignFile(one.head).starts_with("is ")) << one.head;
  }
}

TEST(ForeignFileTest, FilesOfAModelAreNotForeign) {
  for (const std::string& head :
       {"{}"s, "{\"architectures\": []}"s, "\xEF\xBB\xBF{}"s, " \n{"s, "Entry not found"s, "x"s,
        "\x80\x01\0\0\0\0\0\0{\"a\":"s,  // a safetensors header of 384 bytes
        "\x80\x05\0\0\0\0\0\0{"s, "\x08\0\0\0\0\0\0\0{}      "s, "\0\0\0\0\0\0\0\0"s,
        "{{- bos_token }}{% for m in messages %}"s, "<|im_start|>{{ x }}"s, "<s>"s}) {
    EXPECT_EQ(ForeignFile(head), "") << head;
  }
}

TEST(ForeignFileTest, AFileIsReadByItsPath) {
  const testing::TempFolder folder;
  const std::string path = (folder.path() / "weights").string();
  EXPECT_EQ(ForeignFileAt(path), "");
  std::ofstream(path) << "GGUF" << std::string(5000, 'x');
  EXPECT_THAT(ForeignFileAt(path), HasSubstr("GGUF"));
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_THAT(ForeignFileAt(path), HasSubstr("empty"));
  EXPECT_EQ(ForeignFileAt(folder.path().string()), "");
}

}  // namespace
}  // namespace continuo
