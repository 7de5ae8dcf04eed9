// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/run/plan_builder.h"

// Tiny models of every family, with logits that transformers computed (make_goldens.py, which says
// what a file of families/ holds). Weights follow from their tensor's name.
namespace continuo::testing {

inline constexpr double kFamilyTolerance = 1e-4;

// The names of the files of families/, in order.
inline constexpr const char* kFamilyGoldens[] = {
    "cohere2",
    "deepseek_v2",
    "deepseek_v2_lite",
    "deepseek_v3",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "exaone4_full",
    "gemma",
    "gemma3",
    "gemma3_images",
    "gemma4",
    "gemma4_images",
    "gemma4_keys",
    "gemma4_moe",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt_oss",
    "granite",
    "granitemoe",
    "granitemoeshared",
    "hunyuan",
    "internlm2",
    "internlm3",
    "lfm2",
    "lfm2_bias",
    "lfm2_moe",
    "granite_hybrid",
    "granite_hybrid_dense",
    "nemotron_h",
    "nemotron_h_moe",
    "nemotron_h_latent",
    "mamba2",
    "llama4",
    "llama4_images",
    "llama_yarn",
    "minicpm",
    "ministral",
    "ministral3",
    "mistral3_images",
    "olmo2",
    "olmo3",
    "olmoe",
    "phi4",
    "qwen2_moe",
    "qwen2_yarn",
    "qwen3_5",
    "qwen3_5_images",
    "qwen3_5_moe",
    "qwen3_next",
    "qwen3_yarn",
    "seed_oss",
    "smollm3",
    "smollm3_windows",
    "starcoder2",
};

inline nlohmann::json ReadFamilyGolden(const std::string& name) {
  std::ifstream in(SourcePath("tests/conformance/model/families/" + name + ".json"));
  return nlohmann::json::parse(in);
}

// Element i of a tensor, as `weights` of make_goldens.py has it.
inline float WeightOf(uint64_t key, uint64_t i, double offset, double amplitude) {
  uint64_t x = i * 0x9E3779B97F4A7C15u + key;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x = x ^ (x >> 31);
  return static_cast<float>(offset + amplitude * (static_cast<double>(x >> 40) * 0x1p-23 - 1));
}

// The bytes of model.safetensors in fp32.
inline std::string SafetensorsOf(const nlohmann::json& golden) {
  nlohmann::ordered_json header;
  std::string data;
  for (const auto& [name, tensor] : golden["tensors"].items()) {
    uint64_t key = 0xcbf29ce484222325u, n = 1;
    for (const char c : name) key = (key ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    for (const auto& size : tensor[0]) n *= size.get<uint64_t>();
    const size_t begin = data.size();
    data.resize(begin + n * sizeof(float));
    for (uint64_t i = 0; i < n; ++i) {
      const float value = WeightOf(key, i, tensor[1], tensor[2]);
      std::memcpy(data.data() + begin + i * sizeof(value), &value, sizeof(value));
    }
    header[name] = {{"dtype", "F32"}, {"shape", tensor[0]}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(text.size() >> (8 * i)));
  return file + text + data;
}

// Writes the files of a model with another config.json than the golden's own.
inline void WriteFamilyModel(const nlohmann::json& golden, const nlohmann::json& config,
                             const std::string& dir) {
  std::ofstream(dir + "/config.json") << config;
  std::ofstream(dir + "/model.safetensors", std::ios::binary) << SafetensorsOf(golden);
}

// Returns the largest difference of the golden's rows, all sequences in one batch, their rows in
// chunks of `chunk`, with an adapter of the harness or without.
inline double FamilyError(ModelHarness& harness, const nlohmann::json& golden, int chunk,
                          int32_t adapter = model::kNoAdapter) {
  std::vector<std::vector<int32_t>> sequences;
  for (const auto& one : golden["sequences"]) {
    sequences.push_back(one["ids"].get<std::vector<int32_t>>());
  }
  const auto vocab = static_cast<size_t>(harness.config().vocab_size);
  double error = 0;
  size_t compared = 0, longest = 0;
  for (const auto& tokens : sequences) longest = std::max(longest, tokens.size());
  for (size_t begin = 0; begin < longest; begin += static_cast<size_t>(chunk)) {
    PlanBuilder builder(/*block_size=*/4, /*max_blocks=*/8);
    std::vector<std::pair<size_t, size_t>> rows;  // sequence and row of each sample
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (begin >= sequences[s].size()) continue;
      const size_t n = std::min(static_cast<size_t>(chunk), sequences[s].size() - begin);
      const auto tokens = std::span(sequences[s]).subspan(begin, n);
      builder.Add(static_cast<int>(s), static_cast<int>(begin), tokens, AllOf(tokens));
      if (harness.config().num_state_layers() > 0) {
        builder.KeepState(begin == 0 ? -1 : static_cast<int>(s), static_cast<int>(s));
      }
      if (adapter != model::kNoAdapter) builder.Adapt(adapter);
      for (size_t row = begin; row < begin + n; ++row) rows.emplace_back(s, row);
    }
    const std::vector<float> logits = harness.Run(builder.plan());
    CONTINUO_CHECK(logits.size() == rows.size() * vocab);
    for (size_t sample = 0; sample < rows.size(); ++sample) {
      const auto& [s, row] = rows[sample];
      const nlohmann::json& kept = golden["sequences"][s]["rows"];
      for (size_t i = 0; i < kept.size(); ++i) {
        if (kept[i] != row) continue;
        ++compared;
        for (size_t id = 0; id < vocab; ++id) {
          const double expected = golden["logits"][s][i][id];
          error = std::max(error,
                           std::abs(static_cast<double>(logits[sample * vocab + id]) - expected));
        }
      }
    }
  }
  size_t all = 0;
  for (const auto& one : golden["sequences"]) all += one["rows"].size();
  CONTINUO_CHECK(compared == all && all > 0);
  return error;
}

}  // namespace continuo::testing
