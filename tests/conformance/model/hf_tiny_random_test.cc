// SPDX-License-Identifier: Apache-2.0
// Tiny random models of every family against logits that Hugging Face computed in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/shared_data.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/plan_builder.h"

namespace continuo::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "data/models/hf_tiny_random/";
constexpr double kTolerance = 1e-4;

// A folder with the names that a model's files have.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name) {
    dir_ = fs::path(::testing::TempDir()) / ("hf_tiny_" + name + "_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~ModelFolder() { fs::remove_all(dir_); }
  void Link(const std::string& file, const std::string& as) {
    fs::create_symlink(fs::absolute(SharedPath(kFolder + file)), dir_ / as);
  }
  std::string path() const { return dir_.string(); }

 private:
  fs::path dir_;
};

struct Golden {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<std::vector<std::vector<double>>> logits;  // [sequence][row][vocab]
};

Golden ReadGolden(const std::string& model) {
  std::ifstream in(SharedPath(kFolder + model + "_logits.json"));
  const nlohmann::json json = nlohmann::json::parse(in);
  return {json["sequences"].get<std::vector<std::vector<int32_t>>>(),
          json["logits"].get<std::vector<std::vector<std::vector<double>>>>()};
}

// The largest difference, with the rows of each sequence run in chunks of `chunk` and all
// sequences in one batch.
double LargestError(ModelHarness& harness, const Golden& golden, int chunk) {
  const int vocab = harness.config().vocab_size;
  double error = 0;
  const int length = static_cast<int>(golden.sequences[0].size());
  for (int begin = 0; begin < length; begin += chunk) {
    const int n = std::min(chunk, length - begin);
    PlanBuilder builder(/*block_size=*/4, /*max_blocks=*/8);
    for (size_t s = 0; s < golden.sequences.size(); ++s) {
      const auto tokens = std::span(golden.sequences[s])
                              .subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
      builder.Add(static_cast<int>(s), begin, tokens, AllOf(tokens));
    }
    const std::vector<float> logits = harness.Run(builder.plan());
    size_t at = 0;
    for (size_t s = 0; s < golden.sequences.size(); ++s) {
      for (int row = begin; row < begin + n; ++row) {
        for (int id = 0; id < vocab; ++id) {
          const double expected =
              golden.logits[s][static_cast<size_t>(row)][static_cast<size_t>(id)];
          error = std::max(error, std::abs(static_cast<double>(logits[at++]) - expected));
        }
      }
    }
  }
  return error;
}

void ExpectLogits(const std::string& dir, const std::string& golden_name) {
  const Golden golden = ReadGolden(golden_name);
  for (const std::string& isa : UsableIsas()) {
    for (const int ranks : {1, 2, 4, 8}) {
      auto harness = ModelHarness::Make(
          dir, {.isa = isa, .tensor_parallel = ranks, .num_blocks = 24, .block_size = 4});
      ASSERT_TRUE(harness.ok()) << harness.status();
      for (const int chunk : {16, 5, 1}) {
        EXPECT_LE(LargestError(**harness, golden, chunk), kTolerance)
            << isa << ", " << ranks << " ranks, chunks of " << chunk;
      }
    }
  }
}

class HfTinyRandomTest : public ::testing::TestWithParam<std::string> {};

TEST_P(HfTinyRandomTest, LogitsMatch) {
  const std::string model = GetParam();
  CONTINUO_NEED_SHARED(kFolder + model + ".safetensors");
  ModelFolder folder(model);
  folder.Link(model + ".safetensors", "model.safetensors");
  folder.Link(model + "_config.json", "config.json");
  ExpectLogits(folder.path(), model);
}

INSTANTIATE_TEST_SUITE_P(Families, HfTinyRandomTest,
                         ::testing::Values("tiny_gemma2", "tiny_llama", "tiny_mistral",
                                           "tiny_mixtral", "tiny_phi3", "tiny_qwen2", "tiny_qwen3",
                                           "tiny_qwen3_moe", "tiny_smollm2"),
                         [](const auto& info) { return info.param; });

TEST(HfTinyRandomShardedTest, LogitsMatch) {
  CONTINUO_NEED_SHARED(std::string(kFolder) + "tiny_llama.safetensors.index.json");
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
  CONTINUO_NEED_SHARED(std::string(kFolder) + "tiny_mistral.safetensors");
  ModelFolder folder("windowless");
  folder.Link("tiny_mistral.safetensors", "model.safetensors");
  nlohmann::json config = nlohmann::json::parse(
      std::ifstream(SharedPath(kFolder + std::string("tiny_mistral_config.json"))));
  config["sliding_window"] = nullptr;
  std::ofstream(folder.path() + "/config.json") << config;
  auto harness = ModelHarness::Make(folder.path(), {.num_blocks = 24, .block_size = 4});
  ASSERT_TRUE(harness.ok()) << harness.status();
  EXPECT_GT(LargestError(**harness, ReadGolden("tiny_mistral"), 16), 1e-2);
}

}  // namespace
}  // namespace continuo::testing
