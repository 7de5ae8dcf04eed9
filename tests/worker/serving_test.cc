// SPDX-License-Identifier: Apache-2.0
#include "services/worker/serving.h"

#include <vector>

#include "gtest/gtest.h"
#include "services/worker/plan_load.h"
#include "services/worker/text/text_model.h"
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

}  // namespace
}  // namespace continuo::worker
