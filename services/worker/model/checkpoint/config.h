// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::model {

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
  enum class Type : uint8_t { kDefault, kLinear, kLlama3, kLong };
  Type type = Type::kDefault;
  double theta = 10000;
  // kLinear: frequencies are divided by it. kLlama3: those of long waves are.
  double factor = 1;
  // kLlama3 only: waves shorter than original_context / high_freq_factor stay, those longer than
  // original_context / low_freq_factor are scaled, in between is blended.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 0;
  // kLong only: what each frequency is divided by, [rotary_dim / 2] each; the second where the
  // context that is served is longer than original_context. One choice for all requests, so that
  // cached keys fit whoever reads them.
  std::vector<double> short_factors, long_factors;
  double attention_factor = 1;  // cosines and sines are multiplied by it
};

// What stands between an MLP's two products: silu(gate) · up, or gelu (its tanh form).
enum class Activation : uint8_t { kSilu, kGeluTanh };

// How files name and join the tensors of a layer.
enum class WeightNames : uint8_t {
  kLlama,    // mlp.gate_proj …, mlp.experts.0.gate_proj …, mlp.gate for the router
  kMixtral,  // block_sparse_moe.experts.0.w1 (gate), w3 (up), w2 (down), block_sparse_moe.gate
  kFused,    // self_attn.qkv_proj and mlp.gate_up_proj, one above the other
};

// Layers whose MLP is a choice among many (a mixture of experts).
struct ExpertsConfig {
  int num_experts = 0;  // 0: all MLPs are dense
  int per_token = 0;
  int intermediate_size = 0;  // of one expert
  bool normalise = false;     // the chosen experts' weights are divided by their sum
  std::vector<bool> layers;   // [num_layers]: which have experts
};

// A decoder of the Llama kind: what config.json says, checked. Sizes count elements.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", as registry.cc knows it
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;      // first elements of each head that are rotated
  int context_length = 0;  // tokens of one sequence, prompt and answer together
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool tied_embeddings = false;  // the head is the embedding
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RmsNorm of each query and key head before the rotation
  WeightNames names = WeightNames::kLlama;
  Activation activation = Activation::kSilu;
  ExpertsConfig experts;
  bool gains_less_one = false;  // norms' gains are stored less one
  // Attention's and the MLP's results pass a norm of their own before they are added.
  bool output_norms = false;
  double embedding_scale = 1;  // of the embedding, not of a tied head
  double attention_scale = 0;  // of q·k
  // Scores, logits become cap · tanh(x / cap); 0: they stay.
  float attention_softcap = 0, final_softcap = 0;
  // Attention window of each layer in tokens, itself included; 0: everything before.
  std::vector<int> windows;  // [num_layers]
  GenerationDefaults defaults;

  int kv_width() const { return num_kv_heads * head_dim; }
  bool has_experts(int layer) const {
    return experts.num_experts > 0 && experts.layers[static_cast<size_t>(layer)];
  }
};

// Largest sizes taken; whatever is beyond is refused by name.
inline constexpr int kMaxVocabSize = 1 << 22;
inline constexpr int kMaxHiddenSize = 1 << 17;
inline constexpr int kMaxIntermediateSize = 1 << 20;
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxHeads = 1024;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxContextLength = 1 << 24;
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsOfAllLayers = 1 << 16;

// From the texts of config.json and generation_config.json (empty: there is none). InvalidArgument
// names the field, its value and the limit; Unimplemented names an architecture, rope type,
// activation or quantisation that is not known. Any bytes may be passed.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json);

// The same of `dir`/config.json and, where it exists, `dir`/generation_config.json.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir);

// Weights of the whole model, biases and norms included; a tied head counts once.
int64_t NumParameters(const ModelConfig& config);

}  // namespace continuo::model
