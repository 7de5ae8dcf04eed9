// SPDX-License-Identifier: Apache-2.0
// Tiny random models of every family against logits that Hugging Face computed in float64.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/conformance/model/hf_goldens.h"

namespace continuo::testing {
namespace {

void ExpectLogits(const std::string& dir, const std::string& golden_name) {
  const HfGolden golden = ReadHfGolden(golden_name);
  for (const std::string& isa : UsableIsas()) {
    for (const int ranks : {1, 2, 4, 8}) {
      auto harness = ModelHarness::Make(
          dir, {.isa = isa, .tensor_parallel = ranks, .num_blocks = 24, .block_size = 4});
      ASSERT_TRUE(harness.ok()) << harness.status();
      for (const int chunk : {16, 5, 1}) {
        EXPECT_LE(LargestError(**harness, golden, chunk), kHfTolerance)
            << isa << ", " << ranks << " ranks, chunks of " << chunk;
      }
    }
  }
}

class HfTinyRandomTest : public ::testing::TestWithParam<const char*> {};

TEST_P(HfTinyRandomTest, LogitsMatch) {
  const std::string model = GetParam();
  CONTINUO_NEED_SHARED(kHfFolder + model + ".safetensors");
  ExpectLogits(ModelFolder::Of(model)->path(), model);
}

INSTANTIATE_TEST_SUITE_P(Families, HfTinyRandomTest, ::testing::ValuesIn(kHfModels),
                         [](const auto& info) { return info.param; });

TEST(HfTinyRandomShardedTest, LogitsMatch) {
  CONTINUO_NEED_SHARED(std::string(kHfFolder) + "tiny_llama.safetensors.index.json");
  ModelFolder folder("sharded");
  folder.Link("tiny_llama.safetensors.index.json", "model.safetensors.index.json");
  for (const char* shard :
       {"tiny_llama-00001-of-00002.safetensors", "tiny_llama-00002-of-00002.safetensors"}) {
    folder.Link(shard, shard);
  }
  folder.Link("tiny_llama_config.json", "config.json");
  ExpectLogits(folder.path(), "tiny_llama");
}

// The mistral sequences are longer than its window; without one the logits must differ, else the
// test above shows nothing.
TEST(HfTinyRandomMistralTest, WindowMatters) {
  CONTINUO_NEED_SHARED(std::string(kHfFolder) + "tiny_mistral.safetensors");
  ModelFolder folder("windowless");
  folder.Link("tiny_mistral.safetensors", "model.safetensors");
  nlohmann::json config = nlohmann::json::parse(
      std::ifstream(SharedPath(kHfFolder + std::string("tiny_mistral_config.json"))));
  config["sliding_window"] = nullptr;
  std::ofstream(folder.path() + "/config.json") << config;
  auto harness = ModelHarness::Make(folder.path(), {.num_blocks = 24, .block_size = 4});
  ASSERT_TRUE(harness.ok()) << harness.status();
  EXPECT_GT(LargestError(**harness, ReadHfGolden("tiny_mistral"), 16), 1e-2);
}

}  // namespace
}  // namespace continuo::testing
