// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/shared_data.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/run/plan_builder.h"

// Tiny random models of every family, with logits that Hugging Face computed in float64. A golden
// NAME is three files of kHfFolder below CONTINUO_SHARED:
//   NAME_config.json   the model's config.json; few kilobytes of weights do, such as two layers
//                      with a hidden size of 8 and a vocabulary of 11
//   NAME.safetensors   its weights in fp32, from save_pretrained of transformers' own class
//   NAME_logits.json   {"sequences": [[id, …] …], "logits": [sequence][row][vocabulary]}, from the
//                      same model after .double(); three sequences of 16 ids
namespace continuo::testing {

inline constexpr char kHfFolder[] = "data/models/hf_tiny_random/";
inline constexpr double kHfTolerance = 1e-4;

inline constexpr const char* kHfModels[] = {"tiny_gemma2",  "tiny_llama",     "tiny_mistral",
                                            "tiny_mixtral", "tiny_phi3",      "tiny_qwen2",
                                            "tiny_qwen3",   "tiny_qwen3_moe", "tiny_smollm2"};

// A folder with the names that a model's files have.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name) {
    dir_ = std::filesystem::path(::testing::TempDir()) /
           ("hf_tiny_" + name + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~ModelFolder() { std::filesystem::remove_all(dir_); }
  // Returns the folder of one of kHfModels.
  static std::unique_ptr<ModelFolder> Of(const std::string& model) {
    auto folder = std::make_unique<ModelFolder>(model);
    folder->Link(model + ".safetensors", "model.safetensors");
    folder->Link(model + "_config.json", "config.json");
    return folder;
  }
  void Link(const std::string& file, const std::string& as) {
    std::filesystem::create_symlink(std::filesystem::absolute(SharedPath(kHfFolder + file)),
                                    dir_ / as);
  }
  std::string path() const { return dir_.string(); }

 private:
  std::filesystem::path dir_;
};

struct HfGolden {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<std::vector<std::vector<double>>> logits;  // [sequence][row][vocab]
};

inline HfGolden ReadHfGolden(const std::string& model) {
  std::ifstream in(SharedPath(kHfFolder + model + "_logits.json"));
  const nlohmann::json json = nlohmann::json::parse(in);
  return {json["sequences"].get<std::vector<std::vector<int32_t>>>(),
          json["logits"].get<std::vector<std::vector<std::vector<double>>>>()};
}

// Returns the largest difference, with the rows of each sequence run in chunks of `chunk` and all
// sequences in one batch.
inline double LargestError(ModelHarness& harness, const HfGolden& golden, int chunk) {
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

}  // namespace continuo::testing
