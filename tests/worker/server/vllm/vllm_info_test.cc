// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace continuo::server {
namespace {

using ::testing::ElementsAre;

TEST(VllmInfoTest, AModelIsDescribed) {
  ServedModel model;
  model.name = "m";
  model.architecture = "llama";
  model.max_context_tokens = 128;
  model.vocab_size = 300;
  model.eos_ids = {2, 5};
  EXPECT_EQ(VllmModelInfo(model, "").default_sampling_params_json(), "");
  model.defaults.top_k = 20;
  model.defaults.temperature = 0.5f;
  const auto info = VllmModelInfo(model, "/models/m");
  EXPECT_EQ(info.served_model_name(), "m");
  EXPECT_EQ(info.tokenizer_path(), "/models/m");
  EXPECT_TRUE(info.is_generation());
  EXPECT_EQ(info.max_context_length(), 128u);
  EXPECT_EQ(info.vocab_size(), 300u);
  EXPECT_THAT(info.eos_token_ids(), ElementsAre(2, 5));
  EXPECT_EQ(info.default_sampling_params_json(), R"({"temperature":0.5,"top_k":20})");
}

TEST(VllmInfoTest, TheLoadIsOneRanks) {
  v1::WatchLoadResponse load;
  load.set_running_requests(3);
  load.set_waiting_requests(2);
  load.set_used_kv_blocks(25);
  load.set_total_kv_blocks(100);
  load.set_block_size_tokens(16);
  load.set_max_running_requests(12);
  load.set_pending_prompt_tokens(uint64_t{1} << 40);
  load.set_decode_tokens_per_second(50);
  const auto loads = VllmLoads(load, absl::FromUnixSeconds(0), "1.2.3");
  EXPECT_EQ(loads.timestamp(), "1970-01-01T00:00:00+00:00");
  EXPECT_EQ(loads.version(), "1.2.3");
  ASSERT_EQ(loads.loads_size(), 1);
  const auto& rank = loads.loads(0);
  EXPECT_EQ(rank.num_total_reqs(), 5);
  EXPECT_EQ(rank.num_used_tokens(), 400);
  EXPECT_EQ(rank.max_total_num_tokens(), 1600);
  EXPECT_EQ(rank.token_usage(), 0.25);
  EXPECT_EQ(rank.utilization(), 0.25);
  EXPECT_EQ(rank.gen_throughput(), 50);
  EXPECT_EQ(rank.num_waiting_uncached_tokens(), 0x7fffffff) << "as many as the field can have";
  EXPECT_EQ(VllmServerInfo(load, absl::Seconds(7)).uptime_seconds(), 7);
  EXPECT_EQ(VllmLoads({}, absl::Now(), "").loads(0).token_usage(), 0) << "while it loads";
}

}  // namespace
}  // namespace continuo::server
