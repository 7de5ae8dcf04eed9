// SPDX-License-Identifier: Apache-2.0
#include "services/worker/serving.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/worker/plan_load.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"

namespace continuo::worker {
namespace {

using testing::TinyModel;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(DescribeModelTest, WhatDependsOnTheLoadHasNoFingerprint) {
  const TinyModel tiny;
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  WorkerConfig config;
  config.load.source.dir = tiny.dir();
  auto loaded = model::LoadModel(*PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(DescribeModel(config, *loaded, text->get()).fingerprint.empty());
  loaded->is_exact = false;
  const server::ServedModel served = DescribeModel(config, *loaded, text->get());
  EXPECT_TRUE(served.fingerprint.empty());
  EXPECT_FALSE(served.tokenizer_fingerprint.empty());
}

// The tokenizer may be replaced while the weights are loaded.
TEST(DescribeModelTest, TheTokenizersFilesAreThoseOfTheStart) {
  const TinyModel tiny;
  const auto bundler = std::make_shared<text::TokenizerBundler>(tiny.dir());
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  WorkerConfig config;
  config.load.source.dir = tiny.dir();
  const auto loaded = model::LoadModel(*PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  tiny.Write("tokenizer.json", tiny.Read("tokenizer.json") + "\n");
  const server::ServedModel served = DescribeModel(config, *loaded, text->get(), {}, bundler);
  absl::Status status;
  served.bundler->Get(
      [](const std::function<void()>& work) { work(); },
      [&](const text::TokenizerBundler::Result& bundle) { status = bundle.status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DescribeModel(config, *loaded, text->get()).bundler, nullptr);
}

TEST(DescribeModelTest, TheFingerprintDependsOnTextAndContextButNotOnBatchLimits) {
  const TinyModel tiny;
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto describe = [&](WorkerConfig config) {
    config.load.source.dir = tiny.dir();
    config.load.device.isa = "scalar";
    auto plan = PlanLoad(config, kGiB);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto loaded = model::LoadModel(*plan);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return DescribeModel(config, *loaded, text->get());
  };
  const server::ServedModel base = describe({});
  EXPECT_EQ(base.fingerprint.size(), 32u);
  EXPECT_EQ(base.tokenizer_fingerprint, (*text)->tokenizer_digest());
  EXPECT_EQ(base.eos_ids, std::vector<int32_t>{300});
  EXPECT_EQ(base.max_context_tokens, 256);
  EXPECT_EQ(describe({.load = {.kv = {.block_size = 8}, .max_batch_tokens = 64}}).fingerprint,
            base.fingerprint);
  EXPECT_EQ(describe({.load = {.device = {.num_threads = 2}, .tensor_parallel = 2}}).fingerprint,
            base.fingerprint);
  EXPECT_NE(describe({.load = {.source = {.max_context_tokens = 128}}}).fingerprint,
            base.fingerprint);
  EXPECT_NE(describe({.load = {.precision = {.kv_dtype = "bf16"}}}).fingerprint, base.fingerprint);
  EXPECT_NE(describe({.load = {.precision = {.kv_dtype = "int8"}}}).fingerprint, base.fingerprint);
}

// A tiny model whose files name ends as the arguments say; id 300 is <|special_300|>, 299 a word.
server::ServedModel DescribeWith(const std::string& eos_in_config, const std::string& generation,
                                 const std::string& tokenizer_config) {
  const TinyModel tiny;
  nlohmann::json config = nlohmann::json::parse(tiny.Read("config.json"));
  config["eos_token_id"] = nlohmann::json::parse(eos_in_config);
  tiny.Write("config.json", config.dump());
  if (!generation.empty()) tiny.Write("generation_config.json", generation);
  tiny.Write("tokenizer_config.json", tokenizer_config);
  const auto text = text::TextModel::Open(tiny.dir());
  EXPECT_TRUE(text.ok()) << text.status();
  WorkerConfig worker;
  worker.load.source.dir = tiny.dir();
  worker.load.device.isa = "scalar";
  const auto loaded = model::LoadModel(*PlanLoad(worker, kGiB));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  server::ServedModel served = DescribeModel(worker, *loaded, text->get());
  // Shown while the text lives.
  served.name = ShowTokens(served.eos_ids, **text);
  served.text = nullptr;
  return served;
}

TEST(DescribeModelTest, AnswersEndWithWhatAnyFileNames) {
  constexpr char kCloses[] =
      R"({"chat_template": "{% for m in messages %}{{m.content}}<|special_300|>\n{% endfor %}"})";
  struct Case {
    const char *config, *generation, *tokenizer_config, *shown;
  };
  for (const Case& one : {
           Case{"300", "", "{}", "300 <|special_300|>"},
           Case{"null", R"({"eos_token_id": 300})", "{}", "300 <|special_300|>"},
           Case{"null", "", R"({"eos_token": "<|special_300|>"})", "300 <|special_300|>"},
           Case{"null", "", R"({"eos_token": {"content": "<|special_300|>"}})",
                "300 <|special_300|>"},
           Case{"null", "", kCloses, "300 <|special_300|>"},
           Case{"[65, 299]", R"({"eos_token_id": [66, 65]})", kCloses,
                "65 A, 66 B, 299 w299, 300 <|special_300|>"},
           Case{"null", "{}", "{}", ""},
           Case{"9999", "{}", R"({"eos_token": "<|unheard|>"})", ""},
       }) {
    EXPECT_EQ(DescribeWith(one.config, one.generation, one.tokenizer_config).name, one.shown)
        << one.config << one.generation << one.tokenizer_config;
  }
}

TEST(DescribeModelTest, TheFingerprintHasTheEndsWhereverTheyAreNamed) {
  const std::string one = DescribeWith("300", "", "{}").fingerprint;
  EXPECT_EQ(DescribeWith("null", R"({"eos_token_id": 300})", "{}").fingerprint, one);
  EXPECT_EQ(DescribeWith("[300, 300]", R"({"eos_token_id": 300})", "{}").fingerprint, one);
  EXPECT_NE(DescribeWith("null", "", "{}").fingerprint, one);
  EXPECT_NE(DescribeWith("[299, 300]", "", "{}").fingerprint, one);
  EXPECT_NE(DescribeWith("300", R"({"eos_token_id": 299})", "{}").fingerprint, one);
}

TEST(DescribeAdaptersTest, EachIsAModelOfItsOwn) {
  const TinyModel tiny;
  const testing::TempFolder folder;
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  WorkerConfig config;
  config.model_name = "base";
  config.load.source.dir = tiny.dir();
  for (const char* name : {"a", "b", "same"}) {
    config.load.adapters.push_back({name, (folder.path() / name).string()});
    testing::WriteTinyAdapter(tiny.dir(), config.load.adapters.back().dir,
                              {.seed = std::string(name) == "b" ? 2u : 1u});
  }
  const auto loaded = model::LoadModel(*PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  server::ServedModel base = DescribeModel(config, *loaded, text->get());
  const std::vector<server::ServedModel> adapters = DescribeAdapters(base, loaded->adapters);
  ASSERT_EQ(adapters.size(), 3u);
  for (const server::ServedModel& adapter : adapters) {
    EXPECT_EQ(adapter.parent, "base");
    EXPECT_EQ(adapter.tokenizer_fingerprint, base.tokenizer_fingerprint);
    EXPECT_EQ(adapter.fingerprint.size(), 32u);
    EXPECT_NE(adapter.fingerprint, base.fingerprint);
  }
  EXPECT_EQ(adapters[1].name, "b");
  EXPECT_NE(adapters[0].adapter, adapters[1].adapter);
  // The files count, not the name.
  EXPECT_NE(adapters[0].fingerprint, adapters[1].fingerprint);
  EXPECT_EQ(adapters[0].fingerprint, adapters[2].fingerprint);
  EXPECT_EQ(adapters[0].adapter_digest, adapters[2].adapter_digest);
  base.fingerprint.clear();
  EXPECT_EQ(DescribeAdapters(base, loaded->adapters)[0].fingerprint, "");
}

}  // namespace
}  // namespace continuo::worker
