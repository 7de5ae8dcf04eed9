// SPDX-License-Identifier: Apache-2.0
// ParseShapes: the fields of Gemma 4 by which layers differ in their sizes and in what they read.
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"

namespace continuo::model {
namespace {

// Reads per_layer_config, in which transformers stores the heads of layers without windows: an
// object of such layers, with the same sizes for all of them.
void ReadLayerHeads(JsonObject& json, const std::vector<bool>& windowed, OtherHeads& heads) {
  constexpr std::string_view kField = "per_layer_config";
  const nlohmann::json& layers = json.Raw(kField);
  if (layers.is_null()) return;
  const char* const allowed =
      "it must have head_dim and num_key_value_heads of all layers with full_attention, the same "
      "for all";
  size_t count = 0;
  for (const bool has_window : windowed) count += has_window ? 0 : 1;
  if (!layers.is_object() || layers.size() != count) return json.Fail(kField, allowed);
  nlohmann::json sizes;
  for (const auto& [key, value] : layers.items()) {
    uint64_t layer = 0;
    const bool is_full = absl::SimpleAtoi(key, &layer) && layer < windowed.size() &&
                         !windowed[static_cast<size_t>(layer)];
    if (!is_full || !value.is_object() || (!sizes.is_null() && value != sizes)) {
      return json.Fail(kField, allowed);
    }
    sizes = value;
  }
  for (const auto& [key, value] : sizes.items()) {
    int* const size = key == "head_dim"              ? &heads.head_dim
                      : key == "num_key_value_heads" ? &heads.num_kv_heads
                                                     : nullptr;
    const int most = key == "head_dim" ? kMaxHeadDim : kMaxHeads;
    if (size == nullptr || !value.is_number_integer() || value.get<uint64_t>() < 1 ||
        value.get<uint64_t>() > static_cast<uint64_t>(most)) {
      return json.Fail(kField, allowed);
    }
    *size = value.get<int>();
  }
}

// The heads of layers without windows.
void ReadOtherHeads(JsonObject& json, const std::vector<bool>& windowed, ModelConfig& config) {
  OtherHeads& heads = config.other_heads;
  heads.values_are_keys = json.Bool("attention_k_eq_v", false);
  heads.head_dim = static_cast<int>(json.Int("global_head_dim", 2, kMaxHeadDim, 512));
  heads.num_kv_heads = config.num_kv_heads;
  const int64_t kv_heads =
      json.Int("num_global_key_value_heads", 1, kMaxHeads, config.num_kv_heads);
  if (heads.values_are_keys) heads.num_kv_heads = static_cast<int>(kv_heads);
  ReadLayerHeads(json, windowed, heads);
  if (heads.head_dim % 2 != 0) json.Fail("global_head_dim", "it must be even");
  if (config.num_heads % heads.num_kv_heads != 0) {
    json.Fail("num_global_key_value_heads",
              absl::StrCat("it must divide num_attention_heads, ", config.num_heads));
  }
  heads.layers = windowed;
  heads.layers.flip();
}

// The last layers read the keys and values of the last layer before them that has a window, or has
// none, as they do.
void ReadSharedKv(JsonObject& json, const std::vector<bool>& windowed, ModelConfig& config) {
  const auto num_shared =
      static_cast<int>(json.Int("num_kv_shared_layers", 0, config.num_layers - 1, 0));
  const bool are_wide = json.Bool("use_double_wide_mlp", false);
  if (num_shared == 0) return;
  const int first = config.num_layers - num_shared;
  for (int i = 0; i < config.num_layers; ++i) {
    int from = i;
    if (i >= first) {
      from = first - 1;
      while (from >= 0 && windowed[static_cast<size_t>(from)] != windowed[static_cast<size_t>(i)]) {
        --from;
      }
    }
    if (from < 0) {
      return json.Fail("num_kv_shared_layers",
                       absl::StrCat("no layer of the kind of layer ", i, " has keys and values"));
    }
    config.kv_layers.push_back(from);
    if (are_wide) config.wide_mlps.push_back(i >= first);
  }
  if (!are_wide) return;
  config.wide_size = 2 * config.intermediate_size;
  if (config.wide_size > kMaxIntermediateSize) {
    json.Fail("use_double_wide_mlp",
              absl::StrCat("MLPs of ", config.wide_size, " columns are larger than ",
                           kMaxIntermediateSize));
  }
}

}  // namespace

void ParseShapes(const Family& /*family*/, JsonObject& json, const std::vector<bool>& windowed,
                 ModelConfig& config) {
  ReadOtherHeads(json, windowed, config);
  if (!json.status().ok()) return;
  ReadSharedKv(json, windowed, config);
  config.value_norm = true;
  config.layer_scales = true;
  config.per_layer_size =
      static_cast<int>(json.Int("hidden_size_per_layer_input", 0, kMaxHiddenSize, 256));
  const int64_t vocab = json.Int("vocab_size_per_layer_input", 1, kMaxVocabSize, config.vocab_size);
  if (config.per_layer_size > 0 && vocab != config.vocab_size) {
    json.Fail("vocab_size_per_layer_input",
              absl::StrCat("it must be vocab_size, ", config.vocab_size));
  }
}

}  // namespace continuo::model
