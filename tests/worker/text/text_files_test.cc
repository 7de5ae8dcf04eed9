// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

namespace fs = std::filesystem;
using std::string_literals::operator""s;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A copy of a tokenizer that loads.
class TextFilesTest : public ::testing::Test {
 protected:
  TextFilesTest() { Restore(); }

  void Restore() {
    for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove_all(entry);
    const fs::path from = testing::SourcePath("tests/worker/text/testdata/byte_level");
    for (const auto& entry : fs::directory_iterator(from)) {
      fs::copy_file(entry.path(), folder_.path() / entry.path().filename());
    }
  }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_.path() / name, std::ios::binary | std::ios::trunc) << bytes;
  }
  absl::Status Open() const { return TextModel::Open(folder_.path().string()).status(); }
  std::string Error() const { return std::string(Open().message()); }

  const testing::TempFolder folder_;
};

TEST_F(TextFilesTest, WhatLiesInPlaceOfAFileIsNamed) {
  ASSERT_TRUE(Open().ok()) << Open();
  struct Foreign {
    std::string bytes, what;
  };
  const std::vector<Foreign> foreign = {
      {"", "is empty"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n", "git lfs pull"},
      {"\n<!DOCTYPE html>\n<title>Sign in</title>", "HTML page"},
      {"<html></html>", "HTML page"},
      {"<?xml version=\"1.0\"?><Error/>", "XML"},
      {"PK\x03\x04\0\0\0\0"s, "zip archive"},
      {"\x80\x04\x95\x05\0\0\0\0\0\0\0}\x94."s, "pickle"},
      {"\x1f\x8b\x08\0\0\0\0\0\0\x03"s, "gzip"},
      {std::string(100, '\0'), "zeros"},
      {"\xff\xfe{\0}\0"s, "UTF-16"},
  };
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "chat_template.json"}) {
    Restore();
    for (const Foreign& one : foreign) {
      Write(name, one.bytes);
      EXPECT_EQ(Open().code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(Error(), AllOf(HasSubstr("/"s + name + ": is "), HasSubstr(one.what)));
    }
  }
}

TEST_F(TextFilesTest, WhatIsNoJsonIsToldByLine) {
  struct Case {
    std::string text, what;
  };
  const std::vector<Case> cases = {
      {"{\n\"eos_token\": NaN}", "line 2, column 14: NaN"},
      {"{\n\"model_max_length\": Infinity}", "line 2, column 21: Infinity"},
      {"{\"a\": 1,\n\"a\": 2}", "line 2, column 3: field \"a\" is there twice, first in line 1"},
      {"{\n\"a\": 1,\n}", "line 3, column 1: not JSON"},
      {"{\n", "line 2, column 1: not JSON"},
      {"{} {}", "line 1, column 4: not JSON"}};
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json"}) {
    Restore();
    for (const Case& one : cases) {
      Write(name, one.text);
      EXPECT_THAT(Error(), AllOf(HasSubstr("/"s + name + ": "), HasSubstr(one.what)));
    }
  }
  Restore();
  for (const char* text : {"{\n\"version\": NaN}", "{\n\"version\": }", "{\n,}"}) {
    Write("tokenizer.json", text);
    EXPECT_THAT(Error(), AllOf(HasSubstr("tokenizer.json: not JSON"), HasSubstr("line 2")));
  }
}

// A model without a template answers no conversations, which nobody would connect with a typing
// error.
TEST_F(TextFilesTest, AChatTemplateOfAnotherTypeIsNamed) {
  for (const std::string file : {"tokenizer_config.json", "chat_template.json"}) {
    Restore();
    for (const std::string value :
         {"5", "{\"default\":\"x\"}", "[\"x\"]", "[{\"name\":\"default\"}]", "true",
          "[{\"name\":1,\"template\":\"x\"}]"}) {
      Write(file, absl::StrCat("{\"chat_template\":", value, "}"));
      EXPECT_THAT(Error(), AllOf(HasSubstr(file + ": chat_template is " + value),
                                 HasSubstr("must be a text, or a list")));
    }
    for (const std::string value : {"null", "\"x\"", "[]"}) {
      Write(file, absl::StrCat("{\"chat_template\":", value, "}"));
      EXPECT_TRUE(TextModel::Open(folder_.path().string()).ok()) << value;
    }
  }
}

TEST_F(TextFilesTest, AByteOrderMarkIsSkipped) {
  const std::string digest = TextModel::Open(folder_.path().string()).value()->tokenizer_digest();
  Write("special_tokens_map.json", "\xEF\xBB\xBF{}");
  Write("chat_template.json", "\xEF\xBB\xBF{\"chat_template\": \"x\"}");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    const std::string path = (folder_.path() / name).string();
    Write(name, "\xEF\xBB\xBF" + (fs::exists(path) ? testing::ReadFile(path) : "{}"));
  }
  const auto model = TextModel::Open(folder_.path().string());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tokenizer_digest(), digest);
}

TEST_F(TextFilesTest, AVocabularyMayNameATokenTwice) {
  Write("tokenizer.json", R"({"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel",
      "vocab": {"a": 0, "a": 1}, "unk_token": "a"}})");
  EXPECT_TRUE(Open().ok()) << Open();
}

TEST_F(TextFilesTest, AFolderWithoutATokenizerIsToldWhatToDo) {
  fs::remove(folder_.path() / "tokenizer.json");
  EXPECT_EQ(Open().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(), HasSubstr("has no tokenizer.json"));
  for (const char* other : {"vocab.txt", "vocab.json"}) {
    Write(other, "x");
    EXPECT_EQ(Open().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Error(), AllOf(HasSubstr("has no tokenizer.json, but "s + other),
                               HasSubstr("save_pretrained(\"" + folder_.path().string())));
  }
}

TEST_F(TextFilesTest, AnyOtherTokenizersFileIsReadAndNamed) {
  fs::remove(folder_.path() / "tokenizer.json");
  for (const char* other : {"qwen.tiktoken", "tiktoken.model", "sentencepiece.bpe.model",
                            "spiece.model", "tokenizer.model", "tekken.json"}) {
    Write(other, "x");
    EXPECT_EQ(Open().code(), absl::StatusCode::kInvalidArgument) << Open();
    EXPECT_THAT(Error(), HasSubstr(": "s + other + ": "));
    Write(other, "");
    EXPECT_THAT(Error(), HasSubstr("/"s + other + ": is empty"));
    fs::remove(folder_.path() / other);
  }
}

TEST_F(TextFilesTest, ALinkThatLeadsNowhereIsNamed) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    Restore();
    fs::remove(folder_.path() / name);
    fs::create_symlink("../blobs/4d7a", folder_.path() / name);
    EXPECT_EQ(Open().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Error(), AllOf(HasSubstr(name), HasSubstr("symbolic link to ../blobs/4d7a")));
  }
}

}  // namespace
}  // namespace continuo::text
