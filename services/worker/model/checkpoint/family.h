// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/worker/model/checkpoint/config.h"
#include "services/worker/model/checkpoint/json_file.h"

namespace continuo::model {

// The rule that says which layers attend to a window only.
enum class WindowRule : uint8_t {
  kNone,
  kAll,          // all, where sliding_window is set
  kSwitched,     // all, where use_sliding_window is on
  kByLayer,      // where that is on: layer_types, or those from max_window_layers on
  kAlternating,  // layer_types, or every other one, the first included
};

// The differences between the architectures, with Hugging Face's defaults for absent fields.
struct Family {
  std::string_view architecture;
  std::string_view model_type;
  int context_length;
  WindowRule window_rule = WindowRule::kNone;
  int sliding_window = 0;  // where the field is absent; 0: none
  bool always_qkv_bias = false;
  bool takes_attention_bias = false;  // reads attention_bias, for q, k, v and output
  bool takes_mlp_bias = false;
  bool qk_norm = false;
  int head_dim = 0;  // where the field is absent; 0: hidden_size / num_attention_heads
  bool tied_embeddings = false;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  bool partial_rotary = false;  // reads partial_rotary_factor
  WeightNames names = WeightNames::kLlama;
  bool is_gemma = false;  // gelu, gains less one, norms of outputs, caps, scaled embedding
  // Name of the field with the number of experts; null: the family has no experts.
  const char* num_experts_field = nullptr;
};

// All families that are known, in the order of the tables that list them.
std::span<const Family> Families();

// Returns the family that "architectures" names, or plainly means (LlamaModel), or else the one of
// "model_type". Unimplemented names the unknown one and lists all known families.
absl::StatusOr<const Family*> FindFamily(JsonObject& json);

// These fill in `windows` and `experts` of a configuration whose sizes are known. Errors come
// through json.status().
void ParseWindows(const Family& family, JsonObject& json, ModelConfig& config);
void ParseExperts(const Family& family, JsonObject& json, ModelConfig& config);

}  // namespace continuo::model
