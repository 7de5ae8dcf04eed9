// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/bundle/tokenizer_bundle.h"

#include <gmock/gmock.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/gguf_writer.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/text/bundle/unzip.h"

namespace continuo::text {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Makes the bundle on this thread.
TokenizerBundler::Result Get(TokenizerBundler& bundler) {
  TokenizerBundler::Result result = absl::UnknownError("not there");
  bundler.Get([](const std::function<void()>& work) { work(); },
              [&](const TokenizerBundler::Result& bundle) { result = bundle; });
  return result;
}

class TokenizerBundleTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder() / name).parent_path());
    std::ofstream(folder() / name, std::ios::binary) << bytes;
  }
  fs::path folder() const { return temp_.path() / "model"; }
  absl::Status Failure() {
    TokenizerBundler bundler(folder().string());
    const auto bundle = Get(bundler);
    EXPECT_EQ(bundle.status().code(), absl::StatusCode::kFailedPrecondition);
    return bundle.status();
  }
  static std::vector<std::string> NamesIn(TokenizerBundler& bundler) {
    const auto bundle = Get(bundler);
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    std::vector<std::string> names;
    if (!bundle.ok()) return names;
    for (const auto& [name, bytes] : testing::Unzip((*bundle)->zip)) names.push_back(name);
    return names;
  }

  const testing::TempFolder temp_;
};

TEST_F(TokenizerBundleTest, AFolderGivesWhatTextDependsOnAndNothingElse) {
  Write("tokenizer.json", "{}");
  Write("tokenizer_config.json", "{\"a\": 1}");
  Write("chat_template.jinja", "{{ x }}");
  Write("config.json", "{\"c\": 1}");
  Write("generation_config.json", "{\"g\": 1}");
  for (const char* other : {"model.safetensors", "tokenizer.model", "secret.txt", "README.md",
                            "pytorch_model.bin", "other/vocab.json", "merges.txt.bak"}) {
    Write(other, "no");
  }
  TokenizerBundler bundler(folder().string());
  const auto bundle = Get(bundler);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_THAT(testing::Unzip((*bundle)->zip),
              ElementsAre(Pair("tokenizer.json", "{}"), Pair("tokenizer_config.json", "{\"a\": 1}"),
                          Pair("chat_template.jinja", "{{ x }}"), Pair("config.json", "{\"c\": 1}"),
                          Pair("generation_config.json", "{\"g\": 1}")));
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>((*bundle)->zip.data()), (*bundle)->zip.size(),
         digest);
  EXPECT_EQ((*bundle)->sha256, absl::BytesToHexString(std::string(
                                   reinterpret_cast<const char*>(digest), sizeof(digest))));
}

TEST_F(TokenizerBundleTest, ItIsMadeOnce) {
  Write("tokenizer.json", "{}");
  TokenizerBundler bundler(folder().string());
  std::atomic<int> num_posts = 0;
  std::array<TokenizerBundler::Result, 4> bundles;
  std::vector<std::thread> threads;
  for (auto& bundle : bundles) {
    threads.emplace_back([&] {
      bundler.Get(
          [&](const std::function<void()>& work) {
            ++num_posts;
            work();
          },
          [to = &bundle](const TokenizerBundler::Result& made) { *to = made; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_posts, 1);
  for (const auto& bundle : bundles) {
    ASSERT_TRUE(bundle.ok()) << bundle.status();
    EXPECT_EQ(*bundle, *bundles[0]);
  }
  TokenizerBundler other(folder().string());
  EXPECT_EQ((*Get(other))->sha256, (*bundles[0])->sha256);
}

// They take no threads of those who wait for other things.
TEST_F(TokenizerBundleTest, WhoWaitsForItTakesNoThread) {
  Write("tokenizer.json", "{}");
  TokenizerBundler bundler(folder().string());
  std::vector<std::function<void()>> posted;
  std::vector<TokenizerBundler::Result> bundles;
  for (int i = 0; i < 3; ++i) {
    bundler.Get([&](std::function<void()> work) { posted.push_back(std::move(work)); },
                [&](const TokenizerBundler::Result& bundle) { bundles.push_back(bundle); });
  }
  EXPECT_EQ(bundles.size(), 0u);
  ASSERT_EQ(posted.size(), 1u);
  posted[0]();
  ASSERT_EQ(bundles.size(), 3u);
  for (const auto& bundle : bundles) EXPECT_TRUE(bundle.ok()) << bundle.status();
}

// Nothing is read for it, now or for those who ask later.
TEST_F(TokenizerBundleTest, AnErrorIsFoundOnce) {
  Write("tokenizer.json", "{}");
  Write("vocab.json", "{}");
  TokenizerBundler bundler(folder().string());
  fs::resize_file(folder() / "vocab.json", TokenizerBundler::kMaxBytes);
  EXPECT_THAT(Get(bundler).status().message(), HasSubstr("vocab.json was changed"));
  bundler.Get([](const std::function<void()>&) { ADD_FAILURE() << "it is looked for again"; },
              [](const TokenizerBundler::Result& again) {
                EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
              });
}

TEST_F(TokenizerBundleTest, OtherTokenizersKeepTheirNames) {
  Write("qwen.tiktoken", "IQ== 0\n");
  Write("tokenizer_config.json", "{}");
  TokenizerBundler bundler(folder().string());
  EXPECT_THAT(NamesIn(bundler), ElementsAre("qwen.tiktoken", "tokenizer_config.json"));
}

TEST_F(TokenizerBundleTest, AFolderWithoutATokenizerHasNoBundle) {
  Write("config.json", "{}");
  EXPECT_THAT(Failure().message(), HasSubstr("has no tokenizer"));
  fs::remove_all(folder());
  EXPECT_THAT(Failure().message(), HasSubstr("No such file"));
}

TEST_F(TokenizerBundleTest, FilesThatWereChangedAreRefused) {
  Write("tokenizer.json", "{}");
  Write("merges.txt", "a b");
  TokenizerBundler bundler(folder().string());
  Write("merges.txt", "a b\nc d");
  const absl::Status status = Get(bundler).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("merges.txt was changed after the model was loaded"));
  fs::remove(folder() / "merges.txt");
  EXPECT_FALSE(Get(bundler).ok());
}

TEST_F(TokenizerBundleTest, LinksLeadNowhereElse) {
  Write("tokenizer.json", "{}");
  std::ofstream(temp_.path() / "secret") << "secret";
  fs::create_symlink(temp_.path() / "secret", folder() / "merges.txt");
  EXPECT_THAT(Failure().message(), AllOf(HasSubstr("merges.txt"), HasSubstr("leads out of")));
  // A link to another of the folder's files is good.
  fs::remove(folder() / "merges.txt");
  Write("data/merges", "a b");
  fs::create_symlink("data/merges", folder() / "merges.txt");
  TokenizerBundler bundler(folder().string());
  EXPECT_THAT(NamesIn(bundler), ElementsAre("tokenizer.json", "merges.txt"));
}

TEST_F(TokenizerBundleTest, AHubsCacheKeepsItsFilesElsewhere) {
  const fs::path cache = temp_.path() / "models--org--name";
  const fs::path snapshot = cache / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  std::ofstream(cache / "blobs" / "d1") << "{}";
  fs::create_symlink("../../blobs/d1", snapshot / "tokenizer.json");
  TokenizerBundler bundler(snapshot.string());
  EXPECT_THAT(NamesIn(bundler), ElementsAre("tokenizer.json"));
  std::ofstream(temp_.path() / "secret") << "secret";
  fs::create_symlink("../../../secret", snapshot / "vocab.json");
  TokenizerBundler outside(snapshot.string());
  EXPECT_FALSE(Get(outside).ok());
}

TEST_F(TokenizerBundleTest, WhatIsNoFileIsRefused) {
  Write("tokenizer.json", "{}");
  ASSERT_EQ(mkfifo((folder() / "vocab.json").c_str(), 0600), 0);
  EXPECT_THAT(Failure().message(), HasSubstr("not a file"));
  fs::remove(folder() / "vocab.json");
  fs::create_directory(folder() / "vocab.json");
  EXPECT_THAT(Failure().message(), HasSubstr("not a file"));
}

TEST_F(TokenizerBundleTest, FilesThatAreTooLargeAreRefused) {
  Write("tokenizer.json", "{}");
  Write("vocab.json", "{}");
  fs::resize_file(folder() / "vocab.json", TokenizerBundler::kMaxBytes);
  EXPECT_THAT(Failure().message(), HasSubstr("vocab.json: has 134217728 bytes"));
}

TEST_F(TokenizerBundleTest, AGgufFileGivesTheFilesThatHuggingFaceWouldHave) {
  using Texts = std::vector<std::string>;
  Write("x.gguf", testing::GgufWriter()
                      .Key("tokenizer.ggml.model", std::string("gpt2"))
                      .Key("tokenizer.ggml.pre", std::string("llama-bpe"))
                      .Key("tokenizer.ggml.tokens", Texts{"<s>", "a", "b", "ab"})
                      .Key("tokenizer.ggml.token_type", std::vector<int>{3, 1, 1, 1})
                      .Key("tokenizer.ggml.merges", Texts{"a b"})
                      .Key("tokenizer.chat_template", std::string("{{ messages[0].content }}"))
                      .Bytes());
  TokenizerBundler bundler((folder() / "x.gguf").string());
  const auto bundle = Get(bundler);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  fs::create_directory(temp_.path() / "again");
  for (const auto& [name, bytes] : testing::Unzip((*bundle)->zip)) {
    std::ofstream(temp_.path() / "again" / name, std::ios::binary) << bytes;
  }
  const auto original = TextModel::Open((folder() / "x.gguf").string());
  const auto again = TextModel::Open((temp_.path() / "again").string());
  ASSERT_TRUE(original.ok()) << original.status();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*original)->tokenizer_digest(), (*again)->tokenizer_digest());
  EXPECT_EQ((*original)->template_digest(), (*again)->template_digest());
}

}  // namespace
}  // namespace continuo::text
