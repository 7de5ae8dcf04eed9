// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/file_choice.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "services/worker/text/tokenizer_files/tokenizer_files.h"

namespace continuo::hub {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

HubListing Listing(const std::vector<std::string>& paths) {
  HubListing listing;
  for (const std::string& path : paths) listing.files.push_back({.path = path});
  return listing;
}

absl::StatusOr<FileChoice> Choose(const std::vector<std::string>& paths, std::string file = "") {
  return ChooseFiles(Listing(paths), {.repository = "org/name", .file = std::move(file)});
}

std::vector<std::string> PathsOf(const FileChoice& choice) {
  std::vector<std::string> paths;
  for (const HubFile& file : choice.files) paths.push_back(file.path);
  return paths;
}

std::string ErrorOf(const std::vector<std::string>& paths, std::string file = "") {
  const auto choice = Choose(paths, std::move(file));
  EXPECT_FALSE(choice.ok());
  return std::string(choice.status().message());
}

TEST(FileChoiceTest, AFolderIsWhatAWorkerReads) {
  const auto choice = Choose({"README.md", "config.json", "generation_config.json",
                              "model-00001-of-00002.safetensors",
                              "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                              "consolidated.safetensors", "original/model.safetensors",
                              "pytorch_model.bin", "tokenizer.json", "tokenizer.model",
                              "tokenizer_config.json", "chat_template.jinja", "onnx/model.onnx"});
  EXPECT_THAT(PathsOf(*choice),
              UnorderedElementsAre(
                  "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                  "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"));
  EXPECT_THAT(choice->entry, IsEmpty());
}

// A fetch that ends early leaves a snapshot that can be told from a whole one.
TEST(FileChoiceTest, TheIndexComesBeforeWeightsAndWeightsAreLast) {
  EXPECT_THAT(PathsOf(*Choose({"config.json", "model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                               "tokenizer.json"})),
              ElementsAre("config.json", "tokenizer.json", "model.safetensors.index.json",
                          "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_EQ(PathsOf(*Choose({"chat_template.jinja", "config.json", "model.safetensors",
                             "tokenizer.json"}))
                .back(),
            "model.safetensors");
}

TEST(FileChoiceTest, WithoutAnIndexNumberedPartsAreAllNeeded) {
  EXPECT_THAT(ErrorOf({"config.json", "tokenizer.json", "model-00001-of-00003.safetensors",
                       "model-00003-of-00003.safetensors"}),
              HasSubstr("there is no model-00002-of-00003.safetensors, a part of the same model"));
  EXPECT_THAT(ErrorOf({"config.json", "tokenizer.json", "model-00002-of-00002.safetensors"}),
              HasSubstr("there is no model-00001-of-00002.safetensors"));
  EXPECT_TRUE(Choose({"config.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                      "model-00002-of-00002.safetensors"})
                  .ok());
  // An index names what counts: an old part may lie beside.
  EXPECT_TRUE(Choose({"config.json", "tokenizer.json", "model-00001-of-00001.safetensors",
                      "model-00001-of-00002.safetensors", "model.safetensors.index.json"})
                  .ok());
}

TEST(FileChoiceTest, AnIndexNamesFiles) {
  const auto files = IndexedFiles(
      R"({"metadata":{},"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre("m-1.safetensors", "m-2.safetensors"));
  for (const char* bad : {"", "[]", "{}", "null", R"({"weight_map":{}})", R"({"weight_map":[]})",
                          R"({"weight_map":{"a":7}})", R"({"weight_map":{"a":"../b"}})",
                          R"({"weight_map":{"a":"b")"}) {
    const auto none = IndexedFiles(bad);
    EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(none.status().message()), HasSubstr("model.safetensors.index.json: "));
  }
}

TEST(FileChoiceTest, OneFileOfWeightsCountsBeforeParts) {
  const auto choice =
      Choose({"config.json", "model.safetensors", "model.safetensors.index.json",
              "model-00001-of-00002.safetensors", "tekken.json", "tokenizer.model"});
  EXPECT_THAT(PathsOf(*choice),
              UnorderedElementsAre("config.json", "model.safetensors", "tekken.json"));
}

TEST(FileChoiceTest, TheModulesOfAnEmbeddingModelAreTaken) {
  const std::vector<std::string> paths = {
      "1_Pooling/config.json",     "2_Dense/config.json", "2_Dense/model.safetensors",
      "2_Dense/pytorch_model.bin", "config.json",         "config_sentence_transformers.json",
      "model.safetensors",         "modules.json",        "onnx/config.json",
      "sentence_bert_config.json", "tokenizer.json",      "1_Pooling/deep/config.json",
      "onnx/model.safetensors"};
  EXPECT_THAT(PathsOf(*Choose(paths)),
              UnorderedElementsAre("1_Pooling/config.json", "2_Dense/config.json",
                                   "2_Dense/model.safetensors", "config.json",
                                   "config_sentence_transformers.json", "model.safetensors",
                                   "modules.json", "sentence_bert_config.json", "tokenizer.json"));
  EXPECT_THAT(PathsOf(*Choose(
                  {"config.json", "1_Pooling/config.json", "model.safetensors", "tokenizer.json"})),
              UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json"))
      << "without modules.json they mean nothing";
}

TEST(FileChoiceTest, OtherTokenizersAreTakenWhereThereIsNoTokenizerJson) {
  EXPECT_THAT(PathsOf(*Choose({"config.json", "model.safetensors", "tokenizer.model"})),
              UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.model"));
  EXPECT_THAT(PathsOf(*Choose({"config.json", "model.safetensors", "qwen.tiktoken"})),
              UnorderedElementsAre("config.json", "model.safetensors", "qwen.tiktoken"));
}

TEST(FileChoiceTest, EachFileThatATokenizerIsReadFromIsTaken) {
  for (const text::TokenizerFile& kind : text::TokenizerFiles()) {
    std::string name(kind.file);
    if (name[0] == '*') name.replace(0, 1, "any");
    const auto choice = Choose({"config.json", "model.safetensors", name});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_THAT(PathsOf(*choice), UnorderedElementsAre("config.json", "model.safetensors", name));
  }
  EXPECT_THAT(ErrorOf({"config.json", "model.safetensors", "a.tiktoken", "b.tiktoken"}),
              HasSubstr("hf://org/name: has several tokenizers: a.tiktoken, b.tiktoken"));
}

TEST(FileChoiceTest, AFolderWithoutATokenizerIsRefused) {
  const std::vector<std::string> paths = {"config.json", "model.safetensors", "vocab.json",
                                          "original/tokenizer.model"};
  EXPECT_EQ(Choose(paths).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ErrorOf(paths), AllOf(HasSubstr("tokenizer.json, tekken.json, tokenizer.model"),
                                    HasSubstr("*.tiktoken")));
}

TEST(FileChoiceTest, TheOnlyGgufModelIsTaken) {
  const auto choice = Choose({"README.md", "mmproj-f16.gguf", "model-Q4_0.gguf"});
  EXPECT_THAT(PathsOf(*choice), UnorderedElementsAre("model-Q4_0.gguf"));
  EXPECT_EQ(choice->entry, "model-Q4_0.gguf");
  const auto parts = Choose({"x-00002-of-00002.gguf", "x-00001-of-00002.gguf"});
  EXPECT_THAT(PathsOf(*parts),
              UnorderedElementsAre("x-00001-of-00002.gguf", "x-00002-of-00002.gguf"));
  EXPECT_EQ(parts->entry, "x-00001-of-00002.gguf");
}

TEST(FileChoiceTest, AGgufModelIsNamedByItsFileOrAWordOfIt) {
  const std::vector<std::string> paths = {"config.json",
                                          "model.safetensors",
                                          "m-Q4_0.gguf",
                                          "m-Q4_K_M.gguf",
                                          "big/m-F16-00001-of-00002.gguf",
                                          "big/m-F16-00002-of-00002.gguf"};
  EXPECT_EQ(Choose(paths, "m-Q4_0.gguf")->entry, "m-Q4_0.gguf");
  EXPECT_EQ(Choose(paths, "q4_k_m")->entry, "m-Q4_K_M.gguf");
  EXPECT_EQ(Choose(paths, "F16")->entry, "big/m-F16-00001-of-00002.gguf");
  EXPECT_EQ(Choose(paths, "big/m-F16-00002-of-00002.gguf")->entry, "big/m-F16-00001-of-00002.gguf");
  EXPECT_EQ(Choose(paths, "F16")->files.size(), 2);
  EXPECT_THAT(ErrorOf(paths, "Q4"), AllOf(HasSubstr("several"), HasSubstr("m-Q4_0.gguf")));
  EXPECT_THAT(ErrorOf(paths, "Q8_0"), AllOf(HasSubstr("no file Q8_0"), HasSubstr("m-Q4_K_M.gguf")));
  EXPECT_THAT(ErrorOf(paths, "model.safetensors"), HasSubstr("no GGUF file"));
}

TEST(FileChoiceTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(ErrorOf({"README.md", "config.json"}), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf({"a.gguf", "b.gguf"}),
              AllOf(HasSubstr("a.gguf, b.gguf"), HasSubstr("hf://org/name:FILE")));
  EXPECT_THAT(ErrorOf({"x-00001-of-00003.gguf", "x-00002-of-00003.gguf"}),
              AllOf(HasSubstr("x-00003-of-00003.gguf"), Not(HasSubstr("neither"))));
  // A count beyond reason is a name like any other.
  EXPECT_EQ(Choose({"x-00001-of-99999.gguf"})->files.size(), 1);
}

}  // namespace
}  // namespace continuo::hub
