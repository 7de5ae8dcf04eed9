// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo {

// What generation_config.json says where a request is silent; only these fields are read.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  // End-of-sequence ids, ascending and distinct; from config.json where generation_config.json has
  // none; empty where neither has.
  std::vector<int32_t> eos_token_ids;
};

// How positions become angles (Hugging Face's rope_type).
struct RopeConfig {
  enum class Type : uint8_t { kDefault, kLinear, kLlama3 };
  Type type = Type::kDefault;
  double theta = 10000;
  // kLinear: frequencies are divided by it. kLlama3: those of long waves are.
  double factor = 1;
  // kLlama3 only: waves shorter than original_context / high_freq_factor stay, those longer than
  // original_context / low_freq_factor are scaled, in between is blended.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 0;
};

// A dense decoder of the Llama kind: what config.json says, checked. Sizes count elements.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", as registry.cc knows it
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int context_length = 0;  // tokens of one sequence, prompt and answer together
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool tied_embeddings = false;  // the head is the embedding
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RmsNorm of each query and key head before the rotation
  // Attention window of each layer in tokens, itself included; 0: everything before.
  std::vector<int> windows;  // [num_layers]
  GenerationDefaults defaults;

  int kv_width() const { return num_kv_heads * head_dim; }
};

// Largest sizes taken; whatever is beyond is refused by name.
inline constexpr int kMaxVocabSize = 1 << 22;
inline constexpr int kMaxHiddenSize = 1 << 17;
inline constexpr int kMaxIntermediateSize = 1 << 20;
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxHeads = 1024;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxContextLength = 1 << 24;

// From the texts of config.json and generation_config.json (empty: there is none). InvalidArgument
// names the field, its value and the limit; Unimplemented names an architecture, rope type,
// activation or quantisation that is not known. Any bytes may be passed.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json);

// The same of `dir`/config.json and, where it exists, `dir`/generation_config.json.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir);

// Weights of the whole model, biases and norms included; a tied head counts once.
int64_t NumParameters(const ModelConfig& config);

}  // namespace continuo
