// SPDX-License-Identifier: Apache-2.0
// ParseStates: which layers have a recurrent state in place of keys and values, and its sizes.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"

namespace continuo::model {
namespace {

// What kernels take on every device.
constexpr int kMaxConvWidth = 8, kMaxStateKeys = 256;

// The names of layers in layer_types.
struct LayerNames {
  std::string_view state, attention;
};

// Files of Granite 4 have names of their own.
LayerNames NamesOf(StateKind kind, const nlohmann::json& types) {
  if (kind == StateKind::kConv) return {"conv", "full_attention"};
  for (const nlohmann::json& type : types) {
    if (type == "mamba" || type == "attention") return {"mamba", "attention"};
  }
  return {"linear_attention", "full_attention"};
}

// Reads the fields that name layers where there are no layer_types: a list of the layers with
// attention, or their period.
std::vector<bool> ReadOlderLayers(StateKind kind, JsonObject& json, size_t num_layers) {
  std::vector<bool> has_state(num_layers, true);
  if (kind == StateKind::kDelta) {
    const int64_t period = json.Int("full_attention_interval", 1, kMaxLayers, 4);
    for (size_t i = 0; i < num_layers; ++i) {
      has_state[i] = static_cast<int64_t>(i + 1) % period != 0;
    }
  } else if (kind == StateKind::kConv) {
    const nlohmann::json& list = json.Raw("full_attn_idxs");
    if (list.is_null()) return std::vector<bool>(num_layers);
    if (!list.is_array()) json.Fail("full_attn_idxs", "it must be a list of layers");
    for (const nlohmann::json& layer : list) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= num_layers) {
        json.Fail("full_attn_idxs", absl::StrCat("it must be a list of layers below ", num_layers));
        break;
      }
      has_state[layer.get<size_t>()] = false;
    }
  }
  return has_state;
}

// Which layers have a state.
std::vector<bool> ReadLayers(StateKind kind, JsonObject& json, size_t num_layers) {
  const std::vector<bool> older = ReadOlderLayers(kind, json, num_layers);
  const nlohmann::json& types = json.Raw("layer_types");
  if (types.is_null()) return older;
  std::vector<bool> has_state(num_layers);
  if (!types.is_array() || types.size() != num_layers) {
    json.Fail("layer_types",
              absl::StrCat("it must have one entry for each of ", num_layers, " layers"));
    return has_state;
  }
  const LayerNames names = NamesOf(kind, types);
  for (size_t i = 0; i < num_layers; ++i) {
    has_state[i] = types[i] == names.state;
    if (!has_state[i] && types[i] != names.attention) {
      json.Fail("layer_types", absl::StrCat("known are ", std::string(names.attention), " and ",
                                            std::string(names.state)));
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

// Reads a bound of time_step_limit, whose infinity files write in several ways.
float ReadStepBound(JsonObject& json, const nlohmann::json& value) {
  if (value.is_number() && value >= 0) return value.get<float>();
  if (value == "Infinity" || value == nlohmann::json{{"__float__", "Infinity"}}) {
    return std::numeric_limits<float>::infinity();
  }
  json.Fail("time_step_limit", "its entries must be numbers that are not negative, or infinity");
  return 0;
}

// The names of Mamba-2's fields in a family, and what holds where they are absent.
struct StateSpaceNames {
  const char *num_heads, *head_dim, *num_groups, *state, *width, *has_bias;
  const char* expand;  // null: heads may have any width together
  int heads, groups, state_size;
};

constexpr StateSpaceNames kOfGranite = {.num_heads = "mamba_n_heads",
                                        .head_dim = "mamba_d_head",
                                        .num_groups = "mamba_n_groups",
                                        .state = "mamba_d_state",
                                        .width = "mamba_d_conv",
                                        .has_bias = "mamba_conv_bias",
                                        .expand = "mamba_expand",
                                        .heads = 128,
                                        .groups = 1,
                                        .state_size = 256};
constexpr StateSpaceNames kOfNemotron = {.num_heads = "mamba_num_heads",
                                         .head_dim = "mamba_head_dim",
                                         .num_groups = "n_groups",
                                         .state = "ssm_state_size",
                                         .width = "conv_kernel",
                                         .has_bias = "use_conv_bias",
                                         .expand = nullptr,
                                         .heads = 128,
                                         .groups = 8,
                                         .state_size = 128};
constexpr StateSpaceNames kOfMamba = {.num_heads = "num_heads",
                                      .head_dim = "head_dim",
                                      .num_groups = "n_groups",
                                      .state = "state_size",
                                      .width = "conv_kernel",
                                      .has_bias = "use_conv_bias",
                                      .expand = "expand",
                                      .heads = 128,
                                      .groups = 8,
                                      .state_size = 128};

const StateSpaceNames& StateSpaceNamesOf(PartsRule parts) {
  if (parts == PartsRule::kStates) return kOfMamba;
  return parts == PartsRule::kListed ? kOfNemotron : kOfGranite;
}

// Mamba-2's sizes.
void ParseStateSpace(const StateSpaceNames& names, JsonObject& json, ModelConfig& config) {
  StateConfig& states = config.states;
  const auto size = [&json](std::string_view field, int max, int fallback) {
    return static_cast<int>(json.Int(field, 1, max, fallback));
  };
  states.num_heads = size(names.num_heads, kMaxHeads, names.heads);
  states.num_key_heads = size(names.num_groups, kMaxHeads, names.groups);
  states.key_dim = size(names.state, kMaxStateKeys, names.state_size);
  states.conv_width = static_cast<int>(json.Int(names.width, 2, kMaxConvWidth, 4));
  states.conv_bias = json.Bool(names.has_bias, true);
  if (names.expand != nullptr) {
    const int64_t width = json.Int(names.expand, 1, 64, 2) * config.hidden_size;
    const bool is_auto = !json.Has(names.head_dim) || json.Raw(names.head_dim) == "auto";
    states.value_dim =
        is_auto ? static_cast<int>(width / states.num_heads) : size(names.head_dim, kMaxHeadDim, 1);
    if (int64_t{states.num_heads} * states.value_dim != width || states.value_dim > kMaxHeadDim) {
      json.Fail(names.num_heads,
                absl::StrCat("with ", names.head_dim, ", ", states.value_dim, ", it must give ",
                             names.expand, " * hidden_size, ", width));
    }
  } else {
    states.value_dim = size(names.head_dim, kMaxHeadDim, 64);
  }
  if (states.num_heads % states.num_key_heads != 0) {
    json.Fail(names.num_groups,
              absl::StrCat("it must divide ", names.num_heads, ", ", states.num_heads));
  }
  const nlohmann::json& limits = json.Raw("time_step_limit");
  if (limits.is_null()) return;
  if (!limits.is_array() || limits.size() != 2) {
    return json.Fail("time_step_limit", "it must be a list of two numbers");
  }
  states.least_step = ReadStepBound(json, limits[0]);
  states.most_step = ReadStepBound(json, limits[1]);
  if (states.least_step > states.most_step) {
    json.Fail("time_step_limit", "its first number is above the second");
  }
}

void ReadStates(const Family& family, JsonObject& json, ModelConfig& config) {
  StateConfig& states = config.states;
  states.kind = family.states;
  if (family.parts == PartsRule::kBoth) {
    states.layers = ReadLayers(family.states, json, static_cast<size_t>(config.num_layers));
  }
  if (config.num_kv_layers() == 0 && family.parts != PartsRule::kStates) {
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
  if (family.states == StateKind::kSum) {
    return ParseStateSpace(StateSpaceNamesOf(family.parts), json, config);
  }
  states.conv_width = size("linear_conv_kernel_dim", 2, kMaxConvWidth, 4);
  states.num_key_heads = size("linear_num_key_heads", 1, kMaxHeads, 16);
  states.num_heads = size("linear_num_value_heads", 1, kMaxHeads, 32);
  states.key_dim = size("linear_key_head_dim", 1, kMaxStateKeys, 128);
  states.value_dim = size("linear_value_head_dim", 1, kMaxHeadDim, 128);
  if (states.num_heads % states.num_key_heads != 0) {
    json.Fail("linear_num_value_heads",
              absl::StrCat("linear_num_key_heads, ", states.num_key_heads, ", must divide it"));
  }
}

}  // namespace

void ParseStates(const Family& family, JsonObject& json, ModelConfig& config) {
  if (family.states == StateKind::kNone) return;
  ReadStates(family, json, config);
  if (!config.has_states()) config.states = {};
}

}  // namespace continuo::model
