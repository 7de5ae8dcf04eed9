// SPDX-License-Identifier: Apache-2.0
#include "services/worker/profile/worker_profile.h"

#include <gmock/gmock.h>

namespace continuo::profile {
namespace {

using ::testing::HasSubstr;

TEST(WorkerProfileTest, AFileSetsWhatItNames) {
  const auto profile = ParseProfile(R"({
    "name": "two cores",
    "step_seconds": {"fixed": 0.002, "per_token": 0.001, "per_attended_token": 1e-7,
                     "per_decode_attended_token": 3e-6,
                     "per_sample": 0.0005, "per_sample_over_4": 0.001, "per_sample_over_64": 0.01},
    "kv_blocks": 256, "block_size": 8, "max_batch_tokens": 512, "max_prefill_chunk": 128,
    "max_running": 16, "max_queued_tokens": 4096, "target_step_seconds": 0.1,
    "max_context_tokens": 1024, "asynchronous": true})");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->name, "two cores");
  EXPECT_EQ(profile->engine.num_blocks, 256);
  EXPECT_EQ(profile->engine.block_size, 8);
  EXPECT_EQ(profile->engine.max_batch_tokens, 512);
  EXPECT_EQ(profile->engine.max_prefill_chunk, 128);
  EXPECT_EQ(profile->engine.max_running, 16);
  EXPECT_EQ(profile->engine.max_queued_tokens, 4096);
  EXPECT_EQ(profile->engine.target_step, absl::Milliseconds(100));
  EXPECT_EQ(profile->max_context_tokens, 1024);
  EXPECT_TRUE(profile->is_asynchronous);
  // 10 tokens, each of which attends to 100 others and to those before it, and one sample.
  const engine::StepLoad load = engine::StepLoad().WithSequence(100, 10, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(profile->step.Of(load)), 0.002 + 0.01 + 1055e-7 + 0.0005, 1e-9);
  // A decode behind 100 others.
  const engine::StepLoad decode = engine::StepLoad().WithSequence(100, 1, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(profile->step.Of(decode)),
              0.002 + 0.001 + 101 * 3.1e-6 + 0.0005, 1e-9);
  // 66 samples are 62 beyond the first knee and two beyond the last.
  EXPECT_NEAR(absl::ToDoubleSeconds(profile->step.Of({.samples = 66})),
              0.002 + 66 * 0.0005 + 62 * 0.001 + 2 * 0.01, 1e-9);
}

TEST(WorkerProfileTest, AFileThatIsWrittenReadsTheSame) {
  WorkerProfile profile = ExampleProfile();
  profile.name = "a \"name\" \xff";
  profile.step.per_sample_over = {1e-5, 0, 3e-5};
  profile.step.per_decode_attended_token = 7e-9;
  profile.engine.max_running = 77;
  profile.max_context_tokens = 999;
  const std::string json = FormatProfile(profile);
  const auto read = ParseProfile(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(FormatProfile(*read), json);
  EXPECT_EQ(read->step.per_attended_token, profile.step.per_attended_token);
  EXPECT_EQ(read->step.per_sample_over, profile.step.per_sample_over);
  EXPECT_EQ(read->step.per_decode_attended_token, profile.step.per_decode_attended_token);
  EXPECT_EQ(read->engine.max_running, 77);
  EXPECT_EQ(read->max_context_tokens, 999);
  EXPECT_TRUE(read->is_asynchronous);
}

TEST(WorkerProfileTest, WhatIsBeyondTheRangesOfAFileIsWrittenAsTheirEnds) {
  WorkerProfile profile = ExampleProfile();
  profile.step.per_sample = 2000;
  profile.engine.num_blocks = (1 << 26) + 1;
  profile.engine.block_size = 2048;
  profile.engine.max_batch_tokens = profile.engine.max_prefill_chunk = (1 << 24) + 1;
  profile.engine.max_running = (1 << 20) + 1;
  profile.engine.max_queued_tokens = (int64_t{1} << 40) + 1;
  profile.engine.target_step = absl::InfiniteDuration();
  profile.max_context_tokens = 0;
  auto read = ParseProfile(FormatProfile(profile));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step.per_sample, 1000);
  EXPECT_EQ(read->engine.num_blocks, 1 << 26);
  EXPECT_EQ(read->engine.block_size, 1024);
  EXPECT_EQ(read->engine.max_batch_tokens, 1 << 24);
  EXPECT_EQ(read->engine.max_prefill_chunk, 1 << 24);
  EXPECT_EQ(read->engine.max_running, 1 << 20);
  EXPECT_EQ(read->engine.max_queued_tokens, int64_t{1} << 40);
  EXPECT_EQ(read->engine.target_step, absl::Seconds(1000));
  EXPECT_EQ(read->max_context_tokens, 1);
  profile.max_context_tokens = (1 << 24) + 1;
  read = ParseProfile(FormatProfile(profile));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->max_context_tokens, 1 << 24);
}

TEST(WorkerProfileTest, WhatIsLeftOutIsTheWorkersDefault) {
  const auto profile = ParseProfile(R"({"step_seconds": {"fixed": 1}, "kv_blocks": 9})");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const engine::EngineOptions defaults;
  EXPECT_EQ(profile->engine.max_batch_tokens, defaults.max_batch_tokens);
  EXPECT_EQ(profile->engine.max_running, defaults.max_running);
  EXPECT_EQ(profile->engine.target_step, defaults.target_step);
  EXPECT_FALSE(profile->is_asynchronous);
}

TEST(WorkerProfileTest, ErrorsNameTheMember) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "no JSON object"},
      {"[]", "no JSON object"},
      {R"({"kv_blocks": 9})", "\"step_seconds\" must be an object"},
      {R"({"step_seconds": 1, "kv_blocks": 9})", "\"step_seconds\" must be an object"},
      {R"({"step_seconds": {"fixed": -1}, "kv_blocks": 9})", "\"step_seconds.fixed\" must be"},
      {R"({"step_seconds": {"fixed": "1"}, "kv_blocks": 9})", "\"step_seconds.fixed\" must be"},
      {R"({"step_seconds": {"fixes": 1}, "kv_blocks": 9})", "\"step_seconds.fixes\" is no known"},
      {R"({"step_seconds": {"per_sample": 1}, "kv_blocks": 9})", "must not both be 0"},
      {R"({"step_seconds": {"fixed": 1}})", "\"kv_blocks\" must be"},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 0})", "\"kv_blocks\" must be"},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 1e9})", "\"kv_blocks\" must be"},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 99999999999999999999})", "\"kv_blocks\""},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 9, "block_size": 1.5})", "\"block_size\""},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 9, "asynchronous": 1})", "\"asynchronous\""},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 9, "name": 1})", "\"name\" must be a string"},
      {R"({"step_seconds": {"fixed": 1}, "kv_blocks": 9, "speed": 1})", "\"speed\" is no known"},
  };
  for (const auto& [json, error] : kCases) {
    const auto profile = ParseProfile(json);
    ASSERT_FALSE(profile.ok()) << json;
    EXPECT_TRUE(absl::IsInvalidArgument(profile.status())) << json;
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr(error)) << json;
  }
}

TEST(WorkerProfileTest, TheWorkOfAPlanTellsDecodesApart) {
  model::StepPlan plan;
  // A decode behind 20 tokens, and 4 tokens of a prompt behind 8.
  plan.query_begin = {0, 1, 5};
  plan.kv_len = {21, 12};
  plan.sequence_ids = {1, 2};
  plan.sample_rows = {0};
  const engine::StepLoad load = LoadOf(plan);
  EXPECT_EQ(load.tokens, 5);
  EXPECT_EQ(load.attention, 21 + (9 + 10 + 11 + 12));
  EXPECT_EQ(load.decode_attention, 21);
  EXPECT_EQ(load.samples, 1);
}

}  // namespace
}  // namespace continuo::profile
