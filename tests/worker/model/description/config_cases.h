// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/model/description/config.h"

// A small configuration, and what becomes of it with other fields.
namespace continuo::model {

using nlohmann::json;

inline json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 172},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"vocab_size", 512},
          {"max_position_embeddings", 2048}};
}

inline json With(json config, const json& changes) {
  config.update(changes);
  return config;
}

inline absl::StatusOr<ModelConfig> Parse(const json& config, const std::string& generation = "") {
  return ParseModelConfig(config.dump(), generation);
}

inline std::string Error(const json& config, const std::string& generation = "") {
  const auto parsed = Parse(config, generation);
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

}  // namespace continuo::model
