// SPDX-License-Identifier: Apache-2.0
// The fields that describe single layers, and multipliers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"

namespace continuo::model {
namespace {

constexpr int kMaxInt = std::numeric_limits<int32_t>::max();

// The window that sliding_window tells; 0: none.
int WindowLength(const Family& family, JsonObject& json) {
  if (json.Raw("sliding_window") == 0) return 0;
  if (json.Has("sliding_window")) {
    return static_cast<int>(json.Int("sliding_window", 1, kMaxInt, std::nullopt));
  }
  // Null means none, absent the family's default.
  return json.Contains("sliding_window") ? 0 : family.sliding_window;
}

// Reads layer_types, which is there: which layers are not of full_attention but of the other type.
void ReadLayerTypes(JsonObject& json, std::string_view other, std::vector<bool>& are_other) {
  const nlohmann::json& types = json.Raw("layer_types");
  if (!types.is_array() || types.size() != are_other.size()) {
    json.Fail("layer_types",
              absl::StrCat("it must have one entry for each of ", are_other.size(), " layers"));
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    are_other[i] = types[i] == other;
    if (!are_other[i] && types[i] != "full_attention") {
      json.Fail("layer_types", absl::StrCat("known are full_attention and ", std::string(other)));
    }
  }
}

// Reads sliding_window_pattern: a period, or a word of L (local) and G (global) that is repeated
// and whose last layer is global.
void ReadPattern(const Family& family, JsonObject& json, std::vector<bool>& windowed) {
  constexpr std::string_view kField = "sliding_window_pattern";
  const nlohmann::json& value = json.Raw(kField);
  if (value.is_string()) {
    const std::string word = value.get<std::string>();
    if (word.empty() || word.find_first_not_of("LG") != word.npos) {
      return json.Fail(kField, "it must be a number, or a word of L and G");
    }
    for (size_t i = 0; i < windowed.size(); ++i) {
      windowed[i] = word[i % word.size()] == 'L' && i + 1 < windowed.size();
    }
    return;
  }
  const int64_t period = json.Int(kField, 1, kMaxInt, family.window_period);
  for (size_t i = 0; i < windowed.size(); ++i) {
    windowed[i] = static_cast<int64_t>(i + 1) % period != 0;
  }
}

// Which layers have no RoPE by no_rope_layers, whose ones are layers that have it.
std::vector<bool> ReadRopeLess(JsonObject& json, size_t num_layers) {
  std::vector<bool> without(num_layers);
  const nlohmann::json& list = json.Raw("no_rope_layers");
  const int64_t interval = json.Int("no_rope_layer_interval", 1, kMaxInt, 4);
  if (list.is_null() || (list.is_array() && list.empty())) {
    for (size_t i = 0; i < num_layers; ++i) {
      without[i] = static_cast<int64_t>(i + 1) % interval == 0;
    }
    return without;
  }
  if (!list.is_array() || list.size() != num_layers) {
    json.Fail("no_rope_layers",
              absl::StrCat("it must have one entry for each of ", num_layers, " layers"));
    return without;
  }
  for (size_t i = 0; i < num_layers; ++i) {
    if (list[i] != 0 && list[i] != 1) json.Fail("no_rope_layers", "entries must be 0 or 1");
    without[i] = list[i] == 0;
  }
  return without;
}

// Reads how long the chunks of attention are, in which layers.
void ReadChunks(const Family& family, JsonObject& json, ModelConfig& config) {
  const auto num_layers = static_cast<size_t>(config.num_layers);
  std::vector<bool> chunked(num_layers);
  if (json.Has("layer_types")) {
    ReadLayerTypes(json, "chunked_attention", chunked);
  } else {
    chunked = RopeLessLayers(family, json, chunked);
    chunked.flip();
  }
  // Null means none, absent the default.
  constexpr std::string_view kField = "attention_chunk_size";
  const bool is_cut = json.Has(kField) || !json.Contains(kField);
  const int64_t length = is_cut ? json.Int(kField, 1, kMaxInt, 8192) : 0;
  config.chunks.assign(num_layers, 0);
  for (size_t i = 0; i < num_layers; ++i) {
    if (chunked[i]) config.chunks[i] = static_cast<int>(length);
  }
}

}  // namespace

std::vector<bool> RopeLessLayers(const Family& family, JsonObject& json,
                                 const std::vector<bool>& windowed) {
  std::vector<bool> without(windowed.size());
  if (family.rope_scope == RopeScope::kNone) {
    without.assign(windowed.size(), true);
    return without;
  }
  if (family.rope_scope == RopeScope::kNamed) {
    const std::string type = json.String("position_embedding_type", "nope");
    if (type != "rope" && type != "nope") {
      json.Fail("position_embedding_type", "known are rope and nope");
    }
    without.assign(windowed.size(), type != "rope");
    return without;
  }
  if (family.rope_scope == RopeScope::kListed) return ReadRopeLess(json, windowed.size());
  const bool has_windows = WindowLength(family, json) > 0;
  if (family.rope_scope == RopeScope::kWindowedOnly ||
      (family.rope_scope == RopeScope::kWindowed && has_windows)) {
    for (size_t i = 0; i < windowed.size(); ++i) without[i] = !windowed[i];
  }
  return without;
}

std::vector<bool> ParseWindows(const Family& family, JsonObject& json, ModelConfig& config) {
  const size_t num_layers = static_cast<size_t>(config.num_layers);
  config.windows.assign(num_layers, 0);
  std::vector<bool> windowed(num_layers);
  if (family.states != StateKind::kNone) {  // layer_types says another thing
    const nlohmann::json& window = json.Raw("sliding_window");
    const bool is_used = json.Bool("use_sliding_window", true);
    if (is_used && !window.is_null() && window != 0) {
      json.Fail("sliding_window", "windows are not known beside layers with state");
    }
    return windowed;
  }
  const WindowRule rule = family.window_rule;
  if (rule == WindowRule::kChunks) {
    ReadChunks(family, json, config);
    return windowed;
  }
  const int length = WindowLength(family, json);
  const bool has_switch = rule == WindowRule::kSwitched || rule == WindowRule::kByLayer ||
                          rule == WindowRule::kWithoutRope;
  const bool is_on = !has_switch || json.Bool("use_sliding_window", false);
  const int64_t first = json.Int("max_window_layers", 0, kMaxInt, 28);
  if (!is_on) {
    json.Raw("layer_types");  // says nothing then
    return windowed;
  }
  if (json.Has("layer_types")) {
    ReadLayerTypes(json, "sliding_attention", windowed);
    json.Raw("sliding_window_pattern");
  } else if (rule == WindowRule::kAll || rule == WindowRule::kSwitched) {
    windowed.assign(num_layers, true);
  } else if (rule == WindowRule::kPeriodic) {
    if (length > 0) ReadPattern(family, json, windowed);
    json.Raw("sliding_window_pattern");
  } else if (rule == WindowRule::kByLayer) {
    for (size_t i = 0; i < num_layers; ++i) windowed[i] = static_cast<int64_t>(i) >= first;
  } else if (rule == WindowRule::kWithoutRope) {
    windowed = RopeLessLayers(family, json, windowed);
  }
  if (family.last_is_full) windowed.back() = false;
  if (length == 0) return std::vector<bool>(num_layers);
  for (size_t i = 0; i < num_layers; ++i) config.windows[i] = windowed[i] ? length : 0;
  return windowed;
}

void ParseMultipliers(const Family& family, JsonObject& json, ModelConfig& config) {
  const double hidden = config.hidden_size;
  const auto number = [&json](std::string_view field, double fallback) {
    return json.Number(field, 1e-6, 1e6, fallback);
  };
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  switch (family.multipliers) {
    case Multipliers::kNone:
      break;
    case Multipliers::kGemma:
      config.embedding_scale = std::sqrt(hidden);
      if (family.output_norms) {  // the first Gemma has no such field
        config.attention_scale =
            1 / std::sqrt(json.Number("query_pre_attn_scalar", 1e-3, 1e6, 256));
      }
      break;
    case Multipliers::kGemma4:
      config.embedding_scale = std::sqrt(hidden);
      config.attention_scale = 1;
      break;
    case Multipliers::kGranite:
      config.embedding_scale = number("embedding_multiplier", 1);
      config.attention_scale = number("attention_multiplier", 1);
      config.residual_scale = number("residual_multiplier", 1);
      config.logit_scale = 1 / number("logits_scaling", 1);
      break;
    case Multipliers::kCohere:
      config.logit_scale = number("logit_scale", 0.0625);
      break;
    case Multipliers::kMiniCpm:
      config.embedding_scale = number("scale_emb", 1);
      config.residual_scale = number("scale_depth", 1) / std::sqrt(config.num_layers);
      config.logit_scale = number("dim_model_base", 1) / hidden;
      break;
  }
  if (!family.soft_caps) return;
  const auto cap = [&json](std::string_view field, float fallback) {
    // Null means none, absent the default.
    if (!json.Contains(field)) return fallback;
    return json.Has(field) ? static_cast<float>(json.Number(field, 1e-3, 1e6, std::nullopt)) : 0.0f;
  };
  config.attention_softcap = cap("attn_logit_softcapping", family.attention_softcap);
  config.final_softcap = cap("final_logit_softcapping", family.final_softcap);
}

}  // namespace continuo::model
