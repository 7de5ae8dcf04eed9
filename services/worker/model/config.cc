// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/config.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/json_file.h"

namespace continuo {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

// What distinguishes the architectures, with Hugging Face's defaults for absent fields.
struct Family {
  std::string_view architecture;
  std::string_view model_type;
  int context_length;
  int sliding_window;  // where the field is absent; 0: the family has none
  bool always_qkv_bias;
  bool takes_attention_bias;  // the field attention_bias counts, for q, k, v and output alike
  bool takes_mlp_bias;
  bool qk_norm;
  bool windows_by_layer;  // use_sliding_window, max_window_layers, layer_types
  int head_dim;           // where the field is absent; 0: hidden_size / num_attention_heads
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", 2048, 0, false, true, true, false, false, 0},
    {"MistralForCausalLM", "mistral", 131072, 4096, false, false, false, false, false, 0},
    {"Qwen2ForCausalLM", "qwen2", 32768, 4096, true, false, false, false, true, 0},
    {"Qwen3ForCausalLM", "qwen3", 32768, 4096, false, true, false, true, true, 128},
};

absl::StatusOr<const Family*> FindFamily(JsonObject& json) {
  std::vector<std::string> names;
  const nlohmann::json& architectures = json.Raw("architectures");
  if (architectures.is_array()) {
    for (const nlohmann::json& name : architectures) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
  }
  const std::string model_type = json.String("model_type", "");
  for (const Family& family : kFamilies) {
    for (const std::string& name : names) {
      if (name == family.architecture) return &family;
    }
    if (names.empty() && model_type == family.model_type) return &family;
  }
  std::string known;
  for (const Family& family : kFamilies) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.architecture));
  }
  std::string name = names.empty() ? model_type : names[0];
  name = name.substr(0, 60);
  return absl::UnimplementedError(
      absl::StrCat("config.json: architecture \"", name, "\" is not known; known are ", known));
}

absl::StatusOr<RopeConfig> ParseRope(JsonObject& json, int64_t context_length) {
  // Newer files have everything in rope_parameters, older ones rope_theta beside rope_scaling.
  JsonObject parameters =
      json.Object(json.Has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  RopeConfig rope;
  rope.theta = json.Number("rope_theta", 1, 1e12, 10000);
  rope.theta = parameters.Number("rope_theta", 1, 1e12, rope.theta);
  const std::string type = parameters.String("rope_type", parameters.String("type", "default"));
  if (type == "linear") {
    rope.type = RopeConfig::Type::kLinear;
    rope.factor = parameters.Number("factor", 1, 1e6, std::nullopt);
  } else if (type == "llama3") {
    rope.type = RopeConfig::Type::kLlama3;
    rope.factor = parameters.Number("factor", 1, 1e6, std::nullopt);
    rope.low_freq_factor = parameters.Number("low_freq_factor", 1e-3, 1e6, std::nullopt);
    rope.high_freq_factor = parameters.Number("high_freq_factor", 1e-3, 1e6, std::nullopt);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      parameters.Fail("high_freq_factor", "it must be larger than low_freq_factor");
    }
    rope.original_context =
        parameters.Int("original_max_position_embeddings", 1, kMaxContextLength, context_length);
  } else if (type != "default") {
    return absl::UnimplementedError(absl::StrCat("config.json: rope type \"", type.substr(0, 60),
                                                 "\" is not known; known are default, linear, "
                                                 "llama3"));
  }
  for (JsonObject* object : {&json, &parameters}) {
    if (object->Number("partial_rotary_factor", 0, 1, 1) != 1) {
      object->Fail("partial_rotary_factor", "heads are rotated whole, it must be 1");
    }
  }
  RETURN_IF_ERROR(parameters.status());
  return rope;
}

// The window of each layer.
void ParseWindows(const Family& family, JsonObject& json, ModelConfig& config) {
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
  if (family.sliding_window == 0) return;
  // Present and null means none, absent means the family's default.
  const bool is_null = json.Raw("sliding_window").is_null() && json.Contains("sliding_window");
  int window =
      is_null ? 0
              : static_cast<int>(json.Int("sliding_window", 1, std::numeric_limits<int32_t>::max(),
                                          family.sliding_window));
  // A window as long as the context hides nothing.
  if (window >= config.context_length) window = 0;
  if (!family.windows_by_layer) {
    std::fill(config.windows.begin(), config.windows.end(), window);
    return;
  }
  if (!json.Bool("use_sliding_window", false)) return;
  const nlohmann::json& types = json.Raw("layer_types");
  if (types.is_array()) {
    if (types.size() != config.windows.size()) {
      json.Fail("layer_types",
                absl::StrCat("it must have one entry for each of ", config.num_layers, " layers"));
      return;
    }
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == "sliding_attention") {
        config.windows[i] = window;
      } else if (types[i] != "full_attention") {
        json.Fail("layer_types", "known are full_attention and sliding_attention");
      }
    }
    return;
  }
  const int64_t first = json.Int("max_window_layers", 0, std::numeric_limits<int32_t>::max(), 28);
  for (int64_t i = first; i < config.num_layers; ++i) {
    config.windows[static_cast<size_t>(i)] = window;
  }
}

// eos_token_id is one id, a list of ids, or absent.
std::vector<int32_t> ParseEos(JsonObject& json, int vocab_size) {
  const nlohmann::json& value = json.Raw("eos_token_id");
  std::vector<int32_t> ids;
  const std::string allowed =
      absl::StrCat("it must be an id or at most 64 ids from 0 to ", vocab_size - 1);
  const auto add = [&](const nlohmann::json& id) {
    const bool fits =
        id.is_number_integer() &&
        (id.is_number_unsigned() ? id.get<uint64_t>() < static_cast<uint64_t>(vocab_size)
                                 : id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab_size);
    if (fits) {
      ids.push_back(id.get<int32_t>());
    } else {
      json.Fail("eos_token_id", allowed);
    }
  };
  if (value.is_array()) {
    if (value.size() > 64) json.Fail("eos_token_id", allowed);
    for (size_t i = 0; i < std::min<size_t>(value.size(), 64); ++i) add(value[i]);
  } else if (!value.is_null()) {
    add(value);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

absl::StatusOr<GenerationDefaults> ParseDefaults(JsonObject& config_json,
                                                 std::string_view generation_config,
                                                 int vocab_size) {
  GenerationDefaults defaults;
  defaults.eos_token_ids = ParseEos(config_json, vocab_size);
  RETURN_IF_ERROR(config_json.status());
  if (generation_config.empty()) return defaults;
  ASSIGN_OR_RETURN(JsonObject json, JsonObject::Parse("generation_config.json", generation_config));
  const auto number = [&json](std::string_view field, double min, double max) {
    std::optional<float> value;
    if (json.Has(field)) value = static_cast<float>(json.Number(field, min, max, min));
    return value;
  };
  constexpr double kTiny = 1e-6;  // stands for "more than 0"
  defaults.temperature = number("temperature", 0, 100);
  defaults.top_p = number("top_p", kTiny, 1);
  defaults.min_p = number("min_p", 0, 1);
  defaults.repetition_penalty = number("repetition_penalty", kTiny, 2);
  if (json.Has("top_k")) {
    // -1 is another way to say all.
    const int64_t top_k = json.Int("top_k", -1, std::numeric_limits<int32_t>::max(), 0);
    defaults.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));
  }
  if (json.Has("eos_token_id")) defaults.eos_token_ids = ParseEos(json, vocab_size);
  RETURN_IF_ERROR(json.status());
  return defaults;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json) {
  ASSIGN_OR_RETURN(JsonObject json, JsonObject::Parse("config.json", config_json));
  ASSIGN_OR_RETURN(const Family* family, FindFamily(json));
  if (json.Has("quantization_config")) {
    return absl::UnimplementedError(
        "config.json: quantization_config: quantised weights are not taken");
  }
  const std::string activation = json.String("hidden_act", "silu");
  if (activation != "silu") {
    return absl::UnimplementedError(absl::StrCat(
        "config.json: hidden_act \"", activation.substr(0, 60), "\" is not known; known is silu"));
  }

  ModelConfig config;
  config.architecture = family->architecture;
  const auto size = [&json](std::string_view field, int64_t max,
                            std::optional<int64_t> fallback = std::nullopt) {
    return static_cast<int>(json.Int(field, 1, max, fallback));
  };
  config.vocab_size = size("vocab_size", kMaxVocabSize);
  config.hidden_size = size("hidden_size", kMaxHiddenSize);
  config.intermediate_size = size("intermediate_size", kMaxIntermediateSize);
  config.num_layers = size("num_hidden_layers", kMaxLayers);
  config.num_heads = size("num_attention_heads", kMaxHeads);
  config.num_kv_heads = size("num_key_value_heads", kMaxHeads, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0) {
    json.Fail("num_key_value_heads",
              absl::StrCat("it must divide num_attention_heads, ", config.num_heads));
  }
  int head_dim = family->head_dim;
  if (head_dim == 0) head_dim = config.hidden_size / config.num_heads;
  if (!json.Has("head_dim") && family->head_dim == 0 &&
      config.hidden_size % config.num_heads != 0) {
    json.Fail("head_dim", absl::StrCat("num_attention_heads, ", config.num_heads,
                                       ", does not divide hidden_size, ", config.hidden_size));
  }
  config.head_dim = size("head_dim", kMaxHeadDim, head_dim);
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim || config.head_dim < 2) {
    json.Fail("head_dim", absl::StrCat("heads of ", config.head_dim,
                                       " elements: it must be even, from 2 to ", kMaxHeadDim));
  }
  config.context_length =
      size("max_position_embeddings", kMaxContextLength, family->context_length);
  config.rms_norm_eps = static_cast<float>(json.Number("rms_norm_eps", 0, 1, 1e-6));
  config.tied_embeddings = json.Bool("tie_word_embeddings", false);
  const bool attention_bias = family->takes_attention_bias && json.Bool("attention_bias", false);
  config.qkv_bias = family->always_qkv_bias || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = family->takes_mlp_bias && json.Bool("mlp_bias", false);
  config.qk_norm = family->qk_norm;
  RETURN_IF_ERROR(json.status());

  ASSIGN_OR_RETURN(config.rope, ParseRope(json, config.context_length));
  if (config.rope.type == RopeConfig::Type::kLinear) {
    // Such files state the context before scaling.
    const double scaled = config.context_length * config.rope.factor;
    config.context_length = static_cast<int>(std::min<double>(scaled, kMaxContextLength));
  }
  ParseWindows(*family, json, config);
  RETURN_IF_ERROR(json.status());
  ASSIGN_OR_RETURN(config.defaults, ParseDefaults(json, generation_config_json, config.vocab_size));
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir) {
  const std::filesystem::path path(dir);
  ASSIGN_OR_RETURN(const std::string config,
                   ReadSmallFile((path / "config.json").string(), kMaxConfigBytes));
  absl::StatusOr<std::string> generation =
      ReadSmallFile((path / "generation_config.json").string(), kMaxConfigBytes);
  if (absl::IsNotFound(generation.status())) generation = std::string();
  RETURN_IF_ERROR(generation.status());
  return ParseModelConfig(config, *generation);
}

int64_t NumParameters(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  const int64_t q = int64_t{c.num_heads} * c.head_dim, kv = c.kv_width();
  int64_t layer = 2 * hidden + 2 * q * hidden + 2 * kv * hidden + 3 * inner * hidden;
  if (c.qkv_bias) layer += q + 2 * kv;
  if (c.output_bias) layer += hidden;
  if (c.mlp_bias) layer += 2 * inner + hidden;
  if (c.qk_norm) layer += 2 * c.head_dim;
  const int64_t embedding = int64_t{c.vocab_size} * hidden;
  return c.num_layers * layer + hidden + embedding * (c.tied_embeddings ? 1 : 2);
}

}  // namespace continuo
