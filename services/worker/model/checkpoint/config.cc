// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/exact_math.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/family.h"
#include "services/worker/model/checkpoint/json_file.h"

namespace continuo::model {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

// Reads a list of one divisor per frequency.
std::vector<double> ParseFactors(JsonObject& json, std::string_view field, int rotary_dim) {
  const nlohmann::json& list = json.Raw(field);
  const size_t count = static_cast<size_t>(rotary_dim / 2);
  std::vector<double> factors;
  if (list.is_array() && list.size() == count) {
    for (const nlohmann::json& factor : list) {
      if (factor.is_number()) factors.push_back(factor.get<double>());
    }
  }
  const bool fits =
      factors.size() == count &&
      std::all_of(factors.begin(), factors.end(), [](double f) { return f >= 1 && f <= 1e6; });
  if (!fits) {
    json.Fail(field, absl::StrCat("it must be a list of ", count, " numbers from 1 to 1e6"));
    factors.assign(count, 1.0);
  }
  return factors;
}

// Reads Hugging Face's "longrope", of Phi-3. `context` is the file's, scaling included.
void ParseLongRope(JsonObject& json, JsonObject& parameters, int64_t context, int rotary_dim,
                   RopeConfig& rope) {
  rope.type = RopeConfig::Type::kLong;
  const bool at_top = json.Has("original_max_position_embeddings");
  rope.original_context =
      (at_top ? json : parameters)
          .Int("original_max_position_embeddings", 2, kMaxContextLength, context);
  rope.short_factors = ParseFactors(parameters, "short_factor", rotary_dim);
  rope.long_factors = ParseFactors(parameters, "long_factor", rotary_dim);
  double factor = parameters.Number("factor", 1e-3, 1e6, 1);
  if (at_top) {
    factor = static_cast<double>(context) / static_cast<double>(rope.original_context);
  }
  // The LongRoPE paper's factor: it compensates for attention that a long context spreads.
  double attention = 1;
  if (factor > 1) {
    attention = std::sqrt(1 + kernels::ExactLog(factor) /
                                  kernels::ExactLog(static_cast<double>(rope.original_context)));
  }
  rope.attention_factor = parameters.Number("attention_factor", 1e-3, 1e3, attention);
}

absl::StatusOr<RopeConfig> ParseRope(const Family& family, JsonObject& json, int64_t context_length,
                                     int rotary_dim) {
  // Newer files have everything in rope_parameters, older ones rope_theta beside rope_scaling.
  JsonObject parameters =
      json.Object(json.Has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  RopeConfig rope;
  rope.theta = json.Number("rope_theta", 1, 1e12, family.rope_theta);
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
  } else if (type == "longrope" || type == "su") {
    ParseLongRope(json, parameters, context_length, rotary_dim, rope);
  } else if (type != "default") {
    return absl::UnimplementedError(absl::StrCat("config.json: rope type \"", type.substr(0, 60),
                                                 "\" is not known; known are default, linear, "
                                                 "llama3, longrope"));
  }
  RETURN_IF_ERROR(parameters.status());
  return rope;
}

// Number of elements of each head that are rotated: all, or a part in families that have one.
int ParseRotaryDim(const Family& family, JsonObject& json, int head_dim) {
  JsonObject parameters = json.Object("rope_parameters");
  double factor = json.Number("partial_rotary_factor", 0, 1, 1);
  factor = parameters.Number("partial_rotary_factor", 0, 1, factor);
  if (!family.partial_rotary && factor != 1) {
    json.Fail("partial_rotary_factor", "heads are rotated whole, it must be 1");
  }
  const int rotary_dim = static_cast<int>(head_dim * factor);
  if (rotary_dim % 2 != 0 || rotary_dim < 2) {
    json.Fail("partial_rotary_factor",
              absl::StrCat("it rotates ", rotary_dim, " of ", head_dim,
                           " elements of a head; they must be even and at least 2"));
    return 2;
  }
  return rotary_dim;
}

// Reads the fields that only Gemma has.
void ParseGemma(JsonObject& json, ModelConfig& config) {
  if (json.Bool("attention_bias", false)) {
    json.Fail("attention_bias", "attention has no biases, it must be false");
  }
  config.activation = Activation::kGeluTanh;
  config.gains_less_one = true;
  config.output_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_scale = 1 / std::sqrt(json.Number("query_pre_attn_scalar", 1e-3, 1e6, 256));
  const auto cap = [&json](std::string_view field, float fallback) {
    // Null means none, absent the default.
    if (!json.Contains(field)) return fallback;
    return json.Has(field) ? static_cast<float>(json.Number(field, 1e-3, 1e6, std::nullopt)) : 0.0f;
  };
  config.attention_softcap = cap("attn_logit_softcapping", 50.0f);
  config.final_softcap = cap("final_logit_softcapping", 30.0f);
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
  constexpr double kTiny = 1e-6;  // the least value that counts as more than 0
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
  const std::string_view field = family->is_gemma ? "hidden_activation" : "hidden_act";
  const std::string_view expected = family->is_gemma ? "gelu_pytorch_tanh" : "silu";
  const std::string activation = json.String(field, expected);
  if (activation != expected) {
    return absl::UnimplementedError(
        absl::StrCat("config.json: ", std::string(field), " \"", activation.substr(0, 60),
                     "\" is not known; known is ", std::string(expected)));
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
  config.rms_norm_eps = static_cast<float>(json.Number("rms_norm_eps", 0, 1, family->rms_norm_eps));
  config.tied_embeddings = json.Bool("tie_word_embeddings", family->tied_embeddings);
  const bool attention_bias = family->takes_attention_bias && json.Bool("attention_bias", false);
  config.qkv_bias = family->always_qkv_bias || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = family->takes_mlp_bias && json.Bool("mlp_bias", false);
  config.qk_norm = family->qk_norm;
  config.names = family->names;
  RETURN_IF_ERROR(json.status());
  config.rotary_dim = ParseRotaryDim(*family, json, config.head_dim);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  if (family->is_gemma) ParseGemma(json, config);
  ParseExperts(*family, json, config);
  RETURN_IF_ERROR(json.status());

  ASSIGN_OR_RETURN(config.rope, ParseRope(*family, json, config.context_length, config.rotary_dim));
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
  const int64_t hidden = c.hidden_size;
  const int64_t q = int64_t{c.num_heads} * c.head_dim, kv = c.kv_width();
  int64_t layer = 2 * hidden + 2 * q * hidden + 2 * kv * hidden;
  if (c.output_norms) layer += 2 * hidden;
  if (c.qkv_bias) layer += q + 2 * kv;
  if (c.output_bias) layer += hidden;
  if (c.qk_norm) layer += 2 * c.head_dim;
  int64_t total = hidden + int64_t{c.vocab_size} * hidden * (c.tied_embeddings ? 1 : 2);
  for (int i = 0; i < c.num_layers; ++i) {
    total += layer;
    if (c.has_experts(i)) {
      total += c.experts.num_experts * (3 * int64_t{c.experts.intermediate_size} + 1) * hidden;
    } else {
      total += 3 * int64_t{c.intermediate_size} * hidden;
      if (c.mlp_bias) total += 2 * int64_t{c.intermediate_size} + hidden;
    }
  }
  return total;
}

}  // namespace continuo::model
