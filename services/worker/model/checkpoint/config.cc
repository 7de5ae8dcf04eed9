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
#include "services/base/foreign_file.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/gguf_config.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/model/checkpoint/family.h"
#include "services/worker/model/checkpoint/json_file.h"
#include "services/worker/quantised/quantisation_config.h"

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

// Adds the ids of eos_token_id, which is one id, a list of ids, or absent. Ids that the model
// cannot sample are left out with a warning.
void ParseEos(JsonObject& json, int vocab_size, ModelConfig& config) {
  constexpr size_t kMaxIds = 64;
  const nlohmann::json& value = json.Raw("eos_token_id");
  const std::string allowed = absl::StrCat("it must be an id or at most ", kMaxIds, " ids");
  std::vector<nlohmann::json> ids;
  if (value.is_array()) {
    ids.assign(value.begin(), value.end());
  } else if (!value.is_null()) {
    ids = {value};
  }
  if (ids.size() > kMaxIds) return json.Fail("eos_token_id", allowed);
  for (const nlohmann::json& id : ids) {
    const double number = id.is_number() ? id.get<double>() : 0.5;
    if (number != std::floor(number)) return json.Fail("eos_token_id", allowed);
    if (number >= 0 && number < vocab_size) {
      config.defaults.eos_token_ids.push_back(static_cast<int32_t>(number));
    } else {
      config.warnings.push_back(absl::StrCat(json.name(), ": eos_token_id has ", ShowJson(id),
                                             ", which is outside the vocabulary of ", vocab_size,
                                             "; it is left out"));
    }
  }
}

// Warns of fields of generation_config.json that would change answers and are not taken as
// defaults. Field names and the values that change nothing are those of transformers'
// GenerationConfig.
void WarnOfUntakenDefaults(const JsonObject& json, std::vector<std::string>& warnings) {
  struct Untaken {
    const char* field;
    double neutral;       // as null, false, and empty lists and texts are; NaN: no number is
    const char* instead;  // what a request can send
  };
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  constexpr Untaken kUntaken[] = {
      {"bad_words_ids", kNone, "bad_words"},
      {"begin_suppress_tokens", kNone, nullptr},
      {"diversity_penalty", 0, nullptr},
      {"encoder_repetition_penalty", 1, nullptr},
      {"epsilon_cutoff", 0, "min_p"},
      {"eta_cutoff", 0, "min_p"},
      {"exponential_decay_length_penalty", kNone, nullptr},
      {"force_words_ids", kNone, "a grammar"},
      {"forced_bos_token_id", kNone, nullptr},
      {"forced_eos_token_id", kNone, nullptr},
      {"guidance_scale", 1, nullptr},
      {"min_length", 0, "min_tokens"},
      {"min_new_tokens", 0, "min_tokens"},
      {"no_repeat_ngram_size", 0, "frequency_penalty"},
      {"num_beams", 1, nullptr},
      {"penalty_alpha", 0, nullptr},
      {"sequence_bias", kNone, "logit_bias"},
      {"stop_strings", kNone, "stop"},
      {"suppress_tokens", kNone, "logit_bias"},
      {"top_h", kNone, nullptr},
      {"typical_p", 1, "top_p"},
      {"watermarking_config", kNone, nullptr},
  };
  for (const Untaken& untaken : kUntaken) {
    const nlohmann::json& value = json.Raw(untaken.field);
    const bool is_neutral = value.is_null() || value == false || value == "" ||
                            ((value.is_array() || value.is_object()) && value.empty()) ||
                            (value.is_number() && value.get<double>() == untaken.neutral);
    if (is_neutral) continue;
    warnings.push_back(absl::StrCat(
        json.name(), ": ", untaken.field, " is not taken as a default",
        untaken.instead == nullptr ? "" : absl::StrCat("; a request can send ", untaken.instead)));
  }
  if (json.Raw("do_sample") == false && json.Raw("temperature").is_null()) {
    warnings.push_back(absl::StrCat(
        json.name(), ": do_sample is not taken as a default; a request can send temperature 0"));
  }
}

// Fills in the defaults of sampling and the end-of-sequence ids that both files name.
absl::Status ParseDefaults(JsonObject& config_json, std::string_view generation_config,
                           ModelConfig& config) {
  GenerationDefaults& defaults = config.defaults;
  ParseEos(config_json, config.vocab_size, config);
  if (config_json.Raw("text_config").is_object()) {
    JsonObject nested = config_json.Object("text_config");
    ParseEos(nested, config.vocab_size, config);
    RETURN_IF_ERROR(nested.status());
  }
  RETURN_IF_ERROR(config_json.status());
  if (!generation_config.empty()) {
    ASSIGN_OR_RETURN(JsonObject json,
                     JsonObject::Parse("generation_config.json", generation_config));
    const auto number = [&](std::string_view field, double min, double max) {
      std::optional<float> value;
      if (json.Has(field)) {
        value = static_cast<float>(json.Clamped(field, min, max, &config.warnings));
      }
      return value;
    };
    constexpr double kTiny = 1e-6;  // the least value that counts as more than 0
    defaults.temperature = number("temperature", 0, 100);
    defaults.top_p = number("top_p", kTiny, 1);
    defaults.min_p = number("min_p", 0, 1);
    defaults.repetition_penalty = number("repetition_penalty", kTiny, 2);
    if (json.Has("top_k")) {
      const double top_k =
          json.Clamped("top_k", -1, std::numeric_limits<int32_t>::max(), &config.warnings);
      if (top_k != std::floor(top_k)) json.Fail("top_k", "it must be a whole number");
      // -1 is another way to say all.
      defaults.top_k = static_cast<int32_t>(std::max(top_k, 0.0));
    }
    ParseEos(json, config.vocab_size, config);
    WarnOfUntakenDefaults(json, config.warnings);
    RETURN_IF_ERROR(json.status());
  }
  std::vector<int32_t>& ids = defaults.eos_token_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return absl::OkStatus();
}

// Reads the configuration that a GGUF file's metadata has.
absl::StatusOr<ModelConfig> ReadGgufConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const gguf::GgufFile file, gguf::GgufFile::Open(path));
  ASSIGN_OR_RETURN(const gguf::Architecture* const architecture, gguf::FindArchitecture(file));
  ASSIGN_OR_RETURN(const gguf::ConfigTexts texts, gguf::ConfigOf(file));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(texts.config, texts.generation_config);
  if (!config.ok()) {
    return absl::Status(config.status().code(),
                        absl::StrCat(path, ": its metadata, as the files that it was made of: ",
                                     config.status().message()));
  }
  if (architecture->gains_include_one) config->gains_less_one = false;
  return config;
}

// Names the GGUF files of a folder.
std::string GgufFilesOf(const std::filesystem::path& dir) {
  std::string names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    if (entry.path().extension() != ".gguf") continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.path().filename().string());
  }
  return names;
}

// Says what is at the place of a model that has no config.json.
absl::Status MissingConfig(const std::filesystem::path& dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(dir, ignored)) {
    return absl::NotFoundError(absl::StrCat(dir.string(), ": there is no such folder"));
  }
  std::string hint;
  if (std::filesystem::exists(dir / "snapshots", ignored)) {
    hint = "; it looks like a hub's cache: give the folder of one of its snapshots";
  } else if (std::filesystem::exists(dir / "params.json", ignored)) {
    hint = "; params.json is of another format: give the model's Hugging Face folder";
  } else if (std::filesystem::exists(dir / "adapter_config.json", ignored)) {
    hint = "; it is a LoRA adapter: merge it into its model";
  } else if (const std::string names = GgufFilesOf(dir); !names.empty()) {
    hint = absl::StrCat("; it has GGUF files, give one of them: ", names.substr(0, 400));
  }
  return absl::NotFoundError(absl::StrCat(dir.string(), ": has no config.json", hint));
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json) {
  ASSIGN_OR_RETURN(JsonObject json, JsonObject::Parse("config.json", config_json));
  ASSIGN_OR_RETURN(const Family* family, FindFamily(json));
  RETURN_IF_ERROR(quantised::ReadQuantisationConfig(json.value()).status());
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
  RETURN_IF_ERROR(ParseDefaults(json, generation_config_json, config));
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir) {
  const std::filesystem::path path(dir);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    if (gguf::IsGguf(dir)) return ReadGgufConfig(dir);
    const std::string foreign = ForeignFileAt(dir);
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": is a file, neither GGUF nor a model's Hugging Face folder",
                     foreign.empty() ? "" : absl::StrCat("; it ", foreign)));
  }
  absl::StatusOr<std::string> config =
      ReadSmallFile((path / "config.json").string(), kMaxConfigBytes);
  if (absl::IsNotFound(config.status())) return MissingConfig(path);
  RETURN_IF_ERROR(config.status());
  absl::StatusOr<std::string> generation =
      ReadSmallFile((path / "generation_config.json").string(), kMaxConfigBytes);
  if (absl::IsNotFound(generation.status())) return ParseModelConfig(*config, "");
  RETURN_IF_ERROR(generation.status());
  if (generation->empty()) return CheckJson("generation_config.json", "", 1);
  return ParseModelConfig(*config, *generation);
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
