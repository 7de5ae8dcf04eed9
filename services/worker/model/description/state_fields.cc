// SPDX-License-Identifier: Apache-2.0
// ParseStates: which layers have a recurrent state in place of keys and values, and its sizes.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"

namespace continuo::model {
namespace {

// The name of layers with a state in layer_types.
std::string_view NameOf(StateKind kind) {
  return kind == StateKind::kConv ? "conv" : "linear_attention";
}

// Reads layer_types, or the older fields that say the same: a list of the layers with attention, or
// their period.
std::vector<bool> ReadLayers(const Family& family, JsonObject& json, size_t num_layers) {
  std::vector<bool> has_state(num_layers);
  const nlohmann::json& list = json.Raw("full_attn_idxs");
  const int64_t period = json.Int("full_attention_interval", 1, kMaxLayers, 4);
  const nlohmann::json& types = json.Raw("layer_types");
  if (types.is_null() && family.states == StateKind::kConv) {
    if (list.is_null()) return has_state;
    has_state.assign(num_layers, true);
    if (!list.is_array()) json.Fail("full_attn_idxs", "it must be a list of layers");
    for (const nlohmann::json& layer : list) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= num_layers) {
        json.Fail("full_attn_idxs", absl::StrCat("it must be a list of layers below ", num_layers));
        return has_state;
      }
      has_state[layer.get<size_t>()] = false;
    }
    return has_state;
  }
  if (types.is_null()) {
    for (size_t i = 0; i < num_layers; ++i) {
      has_state[i] = static_cast<int64_t>(i + 1) % period != 0;
    }
    return has_state;
  }
  if (!types.is_array() || types.size() != num_layers) {
    json.Fail("layer_types",
              absl::StrCat("it must have one entry for each of ", num_layers, " layers"));
    return has_state;
  }
  for (size_t i = 0; i < num_layers; ++i) {
    has_state[i] = types[i] == NameOf(family.states);
    if (!has_state[i] && types[i] != "full_attention") {
      json.Fail("layer_types",
                absl::StrCat("known are full_attention and ", std::string(NameOf(family.states))));
    }
  }
  return has_state;
}

// Files of LFM2 without experts state the width of an MLP before it is cut to two thirds,
// multiplied and rounded up (transformers, modeling_lfm2, Lfm2MLP).
void AdjustInner(JsonObject& json, ModelConfig& config) {
  const bool adjusts = json.Bool("block_auto_adjust_ff_dim", true);
  const int64_t unit = json.Int("block_multiple_of", 1, kMaxIntermediateSize, 256);
  const double factor = json.Number("block_ffn_dim_multiplier", 1e-3, 1e3, 1);
  if (!adjusts) return;
  int64_t inner = 2 * int64_t{config.intermediate_size} / 3;
  inner = static_cast<int64_t>(factor * static_cast<double>(inner));
  inner = (inner + unit - 1) / unit * unit;
  if (inner < 1 || inner > kMaxIntermediateSize) {
    return json.Fail("block_ffn_dim_multiplier",
                     absl::StrCat("an MLP would have ", inner,
                                  " inner columns; they must be from 1 to ", kMaxIntermediateSize));
  }
  config.intermediate_size = static_cast<int>(inner);
}

}  // namespace

void ParseStates(const Family& family, JsonObject& json, ModelConfig& config) {
  if (family.states == StateKind::kNone) return;
  constexpr int kMaxConvWidth = 16;
  StateConfig& states = config.states;
  states.kind = family.states;
  states.layers = ReadLayers(family, json, static_cast<size_t>(config.num_layers));
  if (config.num_kv_layers() == 0) {
    json.Fail("layer_types", "at least one layer must have full_attention");
  }
  const auto size = [&json](std::string_view field, int min, int max, int fallback) {
    return static_cast<int>(json.Int(field, min, max, fallback));
  };
  if (family.states == StateKind::kConv) {
    states.conv_width = size("conv_L_cache", 2, kMaxConvWidth, 3);
    states.conv_bias = json.Bool("conv_bias", false);
    // Channels are divided over ranks as heads are.
    states.num_heads = states.num_key_heads = config.num_heads;
    states.value_dim = config.head_dim;
    if (config.num_heads * config.head_dim != config.hidden_size) {
      json.Fail("head_dim", "with convolutions, heads must be as wide as hidden_size together");
    }
    if (family.experts.count_field == nullptr) AdjustInner(json, config);
    if (json.Has("tie_embedding")) config.tied_embeddings = json.Bool("tie_embedding", true);
    return;
  }
  states.conv_width = size("linear_conv_kernel_dim", 2, kMaxConvWidth, 4);
  states.num_key_heads = size("linear_num_key_heads", 1, kMaxHeads, 16);
  states.num_heads = size("linear_num_value_heads", 1, kMaxHeads, 32);
  states.key_dim = size("linear_key_head_dim", 1, kMaxHeadDim, 128);
  states.value_dim = size("linear_value_head_dim", 1, kMaxHeadDim, 128);
  if (states.num_heads % states.num_key_heads != 0) {
    json.Fail("linear_num_value_heads",
              absl::StrCat("linear_num_key_heads, ", states.num_key_heads, ", must divide it"));
  }
}

}  // namespace continuo::model
