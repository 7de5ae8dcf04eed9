// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::model {

// Defaults of sampling from generation_config.json, for fields that a request does not set.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  // The end-of-sequence ids that config.json (its text_config too) and generation_config.json name,
  // ascending and distinct.
  std::vector<int32_t> eos_token_ids;
};

// RoPE: how positions become angles (Hugging Face's rope_type).
struct RopeConfig {
  enum class Type : uint8_t { kDefault, kLinear, kLlama3, kLong };
  Type type = Type::kDefault;
  double theta = 10000;
  // Divisor of all frequencies with kLinear, of those of long waves with kLlama3.
  double factor = 1;
  // kLlama3 only. Waves shorter than original_context / high_freq_factor stay as they are, those
  // longer than original_context / low_freq_factor are scaled, and those in between are blended.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 0;
  // kLong only: divisors of the frequencies, [rotary_dim / 2] each. The long ones apply if the
  // served context is longer than original_context. All requests use the same ones, so that they
  // can share cached keys.
  std::vector<double> short_factors, long_factors;
  double attention_factor = 1;  // factor of cosines and sines
};

// The MLP's activation function: silu(gate) · up, or gelu (its tanh form).
enum class Activation : uint8_t { kSilu, kGeluTanh };

// The names of a layer's tensors in the files, and which of them are joined.
enum class WeightNames : uint8_t {
  kLlama,    // mlp.gate_proj …, mlp.experts.0.gate_proj …, mlp.gate for the router
  kMixtral,  // block_sparse_moe.experts.0.w1 (gate), w3 (up), w2 (down), block_sparse_moe.gate
  kFused,    // self_attn.qkv_proj and mlp.gate_up_proj: matrices stacked as rows
};

// Layers whose MLP is a choice among many (a mixture of experts).
struct ExpertsConfig {
  int num_experts = 0;  // 0: all MLPs are dense
  int per_token = 0;
  int intermediate_size = 0;  // of one expert
  bool normalise = false;     // the chosen experts' weights are divided by their sum
  std::vector<bool> layers;   // [num_layers]: which have experts
};

// The checked contents of config.json, for decoders of the Llama kind. Sizes count elements.
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
  bool gains_less_one = false;  // the files store norms' gains minus one
  // The results of attention and MLP pass a norm of their own before the residual addition.
  bool output_norms = false;
  double embedding_scale = 1;  // of the embedding, not of a tied head
  double attention_scale = 0;  // of q·k
  // Soft caps of attention scores and logits: x becomes cap · tanh(x / cap); 0: no cap.
  float attention_softcap = 0, final_softcap = 0;
  // Attention window of each layer, in tokens, the query's own included; 0: the whole context.
  std::vector<int> windows;  // [num_layers]
  GenerationDefaults defaults;
  // For the log: values of the files that the model does not use as they are, such as defaults that
  // were clamped and ids that were left out.
  std::vector<std::string> warnings;

  int kv_width() const { return num_kv_heads * head_dim; }
  bool has_experts(int layer) const {
    return experts.num_experts > 0 && experts.layers[static_cast<size_t>(layer)];
  }
};

// Largest sizes accepted; errors name the field that is beyond.
inline constexpr int kMaxVocabSize = 1 << 22;
inline constexpr int kMaxHiddenSize = 1 << 17;
inline constexpr int kMaxIntermediateSize = 1 << 20;
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxHeads = 1024;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxContextLength = 1 << 24;
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsOfAllLayers = 1 << 16;

// Parses the texts of config.json and generation_config.json (empty: there is none).
// InvalidArgument names the field, its value and the limit; Unimplemented names an architecture,
// rope type, activation or quantisation that is not known. Defaults of sampling beyond their limits
// are warnings. Any bytes may be passed.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json);

// Does the same for the files of a folder, where generation_config.json may be absent, or for the
// metadata of a GGUF file. NotFound says what is there instead of a folder with config.json.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path);

// Number of weights of the whole model, biases and norms included; a tied head counts once.
int64_t NumParameters(const ModelConfig& config);

}  // namespace continuo::model
