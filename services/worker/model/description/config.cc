// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/description/encoder_config.h"
#include "services/worker/model/description/family.h"
#include "services/worker/model/description/json_file.h"
#include "services/worker/model/description/known_fields.h"
#include "services/worker/quantised/quantisation_config.h"

namespace continuo::model {
namespace {

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
void WarnOfUnsupportedDefaults(const JsonObject& json, std::vector<std::string>& warnings) {
  struct UnsupportedDefault {
    const char* field;
    double neutral;       // as null, false, and empty lists and texts are; NaN: no number is
    const char* instead;  // what a request can send
  };
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  constexpr UnsupportedDefault kUnsupportedDefaults[] = {
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
      {"max_length", 20, "max_tokens"},
      {"max_new_tokens", kNone, "max_tokens"},
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
  for (const UnsupportedDefault& unsupported : kUnsupportedDefaults) {
    const nlohmann::json& value = json.Raw(unsupported.field);
    const bool is_neutral = value.is_null() || value == false || value == "" ||
                            ((value.is_array() || value.is_object()) && value.empty()) ||
                            (value.is_number() && value.get<double>() == unsupported.neutral);
    if (is_neutral) continue;
    warnings.push_back(
        absl::StrCat(json.name(), ": ", unsupported.field, " is not supported as a default",
                     unsupported.instead == nullptr
                         ? ""
                         : absl::StrCat("; a request can send ", unsupported.instead)));
  }
  if (json.Raw("do_sample") == false && json.Raw("temperature").is_null()) {
    warnings.push_back(absl::StrCat(
        json.name(),
        ": do_sample is not supported as a default; a request can send temperature 0"));
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
    // The least one that counts would make nonsense of every answer.
    if (const nlohmann::json& penalty = json.Raw("repetition_penalty");
        penalty.is_number() && penalty.get<double>() <= 0) {
      config.warnings.push_back(absl::StrCat(json.name(), ": repetition_penalty is ",
                                             ShowJson(penalty),
                                             "; it must be above 0, and 1 is used"));
      defaults.repetition_penalty = 1.0f;
    } else {
      defaults.repetition_penalty = number("repetition_penalty", kTiny, 2);
    }
    if (json.Has("top_k")) {
      const double top_k =
          json.Clamped("top_k", -1, std::numeric_limits<int32_t>::max(), &config.warnings);
      if (top_k != std::floor(top_k)) json.Fail("top_k", "it must be a whole number");
      // -1 is another way to say all.
      defaults.top_k = static_cast<int32_t>(std::max(top_k, 0.0));
    }
    ParseEos(json, config.vocab_size, config);
    WarnOfUnsupportedDefaults(json, config.warnings);
    RETURN_IF_ERROR(json.status());
  }
  std::vector<int32_t>& ids = defaults.eos_token_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return absl::OkStatus();
}

bool ReadBias(const BiasField& field, JsonObject& json) {
  if (field.name == nullptr) return field.fallback;
  const bool older = field.older != nullptr && json.Bool(field.older, field.fallback);
  return json.Bool(field.name, field.older != nullptr ? older : field.fallback);
}

absl::Status ParseActivation(const Family& family, JsonObject& json, ModelConfig& config) {
  constexpr std::pair<std::string_view, Activation> kActivations[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"relu2", Activation::kReluSquared}};
  config.activation = family.activation;
  config.gated = family.gated;
  json.Raw("hidden_act");  // beside hidden_activation it says nothing
  if (!json.Has(family.activation_field)) return absl::OkStatus();
  const std::string name = json.String(family.activation_field, "");
  // The first Gemma's files say gelu, and mean its tanh form.
  if (name == "gelu" && family.multipliers == Multipliers::kGemma && !family.output_norms) {
    return absl::OkStatus();
  }
  if (family.activation == Activation::kClampedSwiglu && name == "silu") return absl::OkStatus();
  for (const auto& [known, activation] : kActivations) {
    if (name == known && (activation != Activation::kReluSquared || !family.gated)) {
      config.activation = activation;
      return absl::OkStatus();
    }
  }
  return absl::UnimplementedError(absl::StrCat(
      json.name(), ": ", family.activation_field, " \"", name.substr(0, 60),
      "\" is not known; known are silu and gelu_pytorch_tanh", family.gated ? "" : ", and relu2"));
}

// How keys and values are made of short vectors: sizes of MLA.
void ParseLatent(JsonObject& json, ModelConfig& config) {
  LatentConfig& latent = config.latent;
  const auto size = [&json](std::string_view field, int min, int max) {
    return static_cast<int>(json.Int(field, min, max, std::nullopt));
  };
  latent.kv_rank = size("kv_lora_rank", 1, kMaxHiddenSize);
  if (json.Has("q_lora_rank")) latent.q_rank = size("q_lora_rank", 1, kMaxHiddenSize);
  latent.rotated_dim = size("qk_rope_head_dim", 2, kMaxHeadDim);
  latent.plain_dim = size("qk_nope_head_dim", 1, kMaxHeadDim);
  latent.value_dim = size("v_head_dim", 1, kMaxHeadDim);
  config.num_kv_heads = config.num_heads;
  config.head_dim = latent.rotated_dim + latent.plain_dim;
  json.Raw("qk_head_dim");
  if (latent.rotated_dim % 2 != 0) json.Fail("qk_rope_head_dim", "it must be even");
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    json.Fail("qk_nope_head_dim",
              absl::StrCat("with qk_rope_head_dim heads have ", config.head_dim,
                           " elements: they must be even, at most ", kMaxHeadDim));
  }
  if (latent.value_dim > config.head_dim) {
    json.Fail("v_head_dim", absl::StrCat("values are longer than keys, ", config.head_dim));
  }
}

// Sizes of the model, and how its heads are cut.
void ParseSizes(const Family& family, JsonObject& json, ModelConfig& config) {
  const auto size = [&json](std::string_view field, int64_t max, int64_t fallback = 0) {
    return static_cast<int>(
        json.Int(field, 1, max, fallback == 0 ? std::nullopt : std::optional(fallback)));
  };
  config.vocab_size = size("vocab_size", kMaxVocabSize, family.vocab_size);
  config.hidden_size = size("hidden_size", kMaxHiddenSize);
  // The field's older name in LFM2.
  const bool is_block = family.states == StateKind::kConv && json.Has("block_ff_dim");
  config.intermediate_size = size(is_block ? "block_ff_dim" : family.size_field,
                                  kMaxIntermediateSize, family.intermediate_size);
  if (family.names == WeightNames::kHybrid) {
    // That of experts, where there are any; else of the one MLP.
    config.intermediate_size = size("shared_intermediate_size", kMaxIntermediateSize, 1024);
  }
  if (is_block) json.Raw("intermediate_size");
  if (family.parts != PartsRule::kListed) config.num_layers = size("num_hidden_layers", kMaxLayers);
  config.context_length = size("max_position_embeddings", kMaxContextLength, family.context_length);
  if (family.parts == PartsRule::kStates) {
    // No layer has attention. Its sizes are the smallest that buffers and shards may have.
    config.num_heads = config.num_kv_heads = 1;
    config.head_dim = 2;
    return;
  }
  config.num_heads = size("num_attention_heads", kMaxHeads, family.num_heads);
  // The family's number where the fields would be those of its own size; else as many as heads.
  const int kv_heads = family.num_kv_heads != 0 && config.num_heads % family.num_kv_heads == 0
                           ? family.num_kv_heads
                           : config.num_heads;
  config.num_kv_heads = size("num_key_value_heads", kMaxHeads, kv_heads);
  if (family.latent) return ParseLatent(json, config);
  if (config.num_heads % config.num_kv_heads != 0) {
    json.Fail("num_key_value_heads",
              absl::StrCat("it must divide num_attention_heads, ", config.num_heads));
  }
  int head_dim = family.head_dim;
  if (head_dim == 0) head_dim = config.hidden_size / config.num_heads;
  if (!json.Has("head_dim") && family.head_dim == 0 && config.hidden_size % config.num_heads != 0) {
    json.Fail("head_dim", absl::StrCat("num_attention_heads, ", config.num_heads,
                                       ", does not divide hidden_size, ", config.hidden_size));
  }
  // The field's older name in Nemotron-H.
  const bool is_older =
      family.parts == PartsRule::kListed && !json.Has("head_dim") && json.Has("attention_head_dim");
  config.head_dim =
      size(is_older ? "attention_head_dim" : "head_dim", kMaxHeadDim, std::max(head_dim, 1));
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim || config.head_dim < 2) {
    json.Fail("head_dim", absl::StrCat("heads of ", config.head_dim,
                                       " elements: it must be even, from 2 to ", kMaxHeadDim));
  }
}

// Norms and biases.
void ParseNorms(const Family& family, JsonObject& json, ModelConfig& config) {
  config.norm = family.norm;
  config.norm_eps = static_cast<float>(json.Number(family.eps_field, 0, 1, family.eps));
  config.norm_bias = family.norm_bias;
  config.gains_less_one = family.gains_less_one;
  config.input_norms = family.input_norms;
  config.output_norms = family.output_norms;
  config.parallel = family.parallel;
  config.qk_norm = family.qk_norm;
  if (family.qk_norm_switch != nullptr && !json.Bool(family.qk_norm_switch, family.qk_norm_on)) {
    config.qk_norm = QueryKeyNorm::kNone;
  }
  config.qk_gains = family.qk_gains;
  config.norms_all_heads = family.norms_all_heads;
  config.sinks = family.sinks;
  config.output_gate = family.output_gate;
  // A module with an embedding of its own, or of several layers, is another one.
  config.knows_mtp = family.mtp && !json.Bool("mtp_use_dedicated_embeddings", false) &&
                     json.Int("mtp_num_hidden_layers", 0, kMaxLayers, 1) == 1;
  config.num_predicting_layers =
      static_cast<int>(json.Int("num_nextn_predict_layers", 0, kMaxLayers, 0));
  config.interleaved_rope = family.interleaved_rope;
  config.qkv_bias = ReadBias(family.qkv_bias, json);
  config.output_bias = ReadBias(family.output_bias, json);
  config.mlp_bias = ReadBias(family.mlp_bias, json);
  for (const char* field : {"attention_bias", "mlp_bias", "use_bias", "bias"}) {
    const bool is_read = std::ranges::any_of(
        std::initializer_list<BiasField>{family.qkv_bias, family.output_bias, family.mlp_bias},
        [&](const BiasField& bias) {
          return (bias.name != nullptr && std::string_view(bias.name) == field) ||
                 (bias.older != nullptr && std::string_view(bias.older) == field);
        });
    if (!is_read && json.Raw(field) == true) {
      json.Fail(field, "this family has no such biases, it must be false");
    }
  }
  if (config.output_bias && config.output_norms) {
    json.Fail(family.output_bias.name, "biases before a norm of the result are not supported");
  }
  // "vision" means the tokens of images alone.
  const nlohmann::json& bidirectional = json.Raw("use_bidirectional_attention");
  if (bidirectional == true && family.model_type == "gemma3_text") {
    config.encoder.is_encoder = true;  // EmbeddingGemma
  } else if (bidirectional == true || (bidirectional.is_string() && bidirectional != "vision")) {
    json.Fail("use_bidirectional_attention", "attention is causal, it must be false");
  }
  config.names = family.names;
  config.tied_embeddings = json.Bool("tie_word_embeddings", family.tied_embeddings);
}

// Reads everything of the text model but defaults of sampling.
absl::Status ParseText(const Family& family, JsonObject& json, ModelConfig& config) {
  config.architecture = family.architecture;
  RETURN_IF_ERROR(ParseActivation(family, json, config));
  ParseSizes(family, json, config);
  ParseNorms(family, json, config);
  ParseParts(family, json, config);
  RETURN_IF_ERROR(json.status());
  ParseMultipliers(family, json, config);
  ParseExperts(family, json, config);
  ParseStates(family, json, config);
  RETURN_IF_ERROR(json.status());
  const std::vector<bool> windowed = ParseWindows(family, json, config);
  RETURN_IF_ERROR(json.status());
  if (family.layer_shapes) ParseShapes(family, json, windowed, config);
  RETURN_IF_ERROR(json.status());
  RETURN_IF_ERROR(ParseRopes(family, json, windowed, config));
  if (config.encoder.is_encoder) {
    // A token sees half of sliding_window to each side.
    for (int& window : config.windows) window = window == 0 ? 0 : window / 2 + 1;
  }
  for (std::vector<int>* const lengths : {&config.windows, &config.chunks}) {
    for (int& length : *lengths) {
      if (length >= config.context_length) length = 0;  // it hides nothing
    }
  }
  return json.status();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json,
                                             std::string_view allow_unread) {
  ASSIGN_OR_RETURN(JsonObject json, JsonObject::Parse("config.json", config_json));
  ModelConfig config;
  config.allow_unread = allow_unread;
  config.is_text_part = HasTextPart(json);
  JsonObject text = config.is_text_part ? json.Object("text_config") : json;
  if (config.is_text_part) {
    // The whole model's word counts, which older files leave to the text's.
    if (json.Has("tie_word_embeddings")) text.Copy("tie_word_embeddings", json);
  }
  const EncoderFamily* const encoder = FindEncoder(text);
  const Family* family = nullptr;
  if (encoder == nullptr) {
    ASSIGN_OR_RETURN(family, FindFamily(text));
  }
  if (HasScoreHead(text)) {
    config.score_head.form = ScoreHeadConfig::Form::kProduct;
    // What sentence-transformers keeps there: a version, and how it shows scores.
    text.Raw("sentence_transformers");
    text.Raw("sbert_ce_default_activation_function");
  }
  RETURN_IF_ERROR(quantised::ReadQuantisationConfig(json.value()).status());
  text.Raw("quantization_config");
  text.Raw("compression_config");
  if (encoder != nullptr) {
    RETURN_IF_ERROR(encoder->parse(text, config));
    RETURN_IF_ERROR(text.status());
  } else {
    RETURN_IF_ERROR(CheckExpected(text, family->expected));
    RETURN_IF_ERROR(ParseText(*family, text, config));
  }
  RETURN_IF_ERROR(ParseDefaults(json, generation_config_json, config));
  RETURN_IF_ERROR(CheckUnread(text, family == nullptr ? "" : family->ignored, allow_unread));
  return config;
}

absl::Status AddMtpLayer(ModelConfig& config) {
  if (!config.knows_mtp) {
    return absl::InvalidArgumentError(
        absl::StrCat("no module for multi-token prediction of ", config.architecture,
                     " is known; mtp_num_hidden_layers must be 1, and mtp_use_dedicated_embeddings "
                     "false"));
  }
  config.reads_mtp = true;
  config.windows.push_back(0);
  if (!config.chunks.empty()) config.chunks.push_back(0);
  config.layer_ropes.push_back(0);
  if (!config.states.layers.empty()) config.states.layers.push_back(false);
  if (config.experts.num_experts > 0) config.experts.layers.push_back(true);
  return absl::OkStatus();
}

}  // namespace continuo::model
