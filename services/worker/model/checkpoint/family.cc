// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/family.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace continuo::model {
namespace {

constexpr int kMaxInt = std::numeric_limits<int32_t>::max();

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .context_length = 2048,
     .takes_attention_bias = true,
     .takes_mlp_bias = true},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .context_length = 131072,
     .window_rule = WindowRule::kAll,
     .sliding_window = 4096},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .context_length = 131072,
     .window_rule = WindowRule::kAll,
     .rms_norm_eps = 1e-5,
     .rope_theta = 1e6,
     .names = WeightNames::kMixtral,
     .num_experts_field = "num_local_experts"},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .context_length = 32768,
     .window_rule = WindowRule::kByLayer,
     .sliding_window = 4096,
     .always_qkv_bias = true},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .context_length = 32768,
     .window_rule = WindowRule::kByLayer,
     .sliding_window = 4096,
     .takes_attention_bias = true,
     .qk_norm = true,
     .head_dim = 128},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .context_length = 32768,
     .window_rule = WindowRule::kSwitched,
     .sliding_window = 4096,
     .takes_attention_bias = true,
     .qk_norm = true,
     .num_experts_field = "num_experts"},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .context_length = 8192,
     .window_rule = WindowRule::kAlternating,
     .sliding_window = 4096,
     .head_dim = 256,
     .tied_embeddings = true,
     .is_gemma = true},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .context_length = 4096,
     .window_rule = WindowRule::kAll,
     .rms_norm_eps = 1e-5,
     .partial_rotary = true,
     .names = WeightNames::kFused},
};

// True if `name` plainly means the family though it is not its architecture: the base model's class
// (LlamaModel), the family's own name (Llama), or another spelling (LLaMAForCausalLM).
bool MeansFamily(const std::string& name, const Family& family) {
  constexpr std::string_view kEnd = "ForCausalLM";
  const std::string stem(family.architecture.substr(0, family.architecture.size() - kEnd.size()));
  for (const char* end : {"", "Model", "LMHeadModel", "ForCausalLM"}) {
    if (absl::EqualsIgnoreCase(name, stem + end)) return true;
  }
  return absl::EqualsIgnoreCase(name, std::string(family.model_type));
}

// The names in "architectures": a list, or one name.
std::vector<std::string> Architectures(const JsonObject& json) {
  const nlohmann::json& value = json.Raw("architectures");
  std::vector<std::string> names;
  if (value.is_string()) names.push_back(value.get<std::string>());
  if (!value.is_array()) return names;
  for (const nlohmann::json& name : value) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

std::span<const Family> Families() { return kFamilies; }

absl::StatusOr<const Family*> FindFamily(JsonObject& json) {
  const std::vector<std::string> names = Architectures(json);
  const std::string model_type = json.String("model_type", "");
  for (const Family& family : kFamilies) {
    for (const std::string& name : names) {
      if (name == family.architecture) return &family;
    }
    if (names.empty() && model_type == family.model_type) return &family;
  }
  for (const Family& family : kFamilies) {
    // A model_type of another family would make the meaning doubtful.
    if (!model_type.empty() && model_type != family.model_type) continue;
    for (const std::string& name : names) {
      if (MeansFamily(name, family)) return &family;
    }
  }
  std::string known;
  for (const Family& family : kFamilies) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.architecture));
  }
  std::string what = absl::StrCat("architecture ", ShowJson(names.empty() ? model_type : names[0]),
                                  " is not known");
  if (names.empty() && model_type.empty()) what = "there is neither architectures nor model_type";
  return absl::UnimplementedError(absl::StrCat("config.json: ", what, "; known are ", known));
}

void ParseWindows(const Family& family, JsonObject& json, ModelConfig& config) {
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
  const WindowRule rule = family.window_rule;
  if (rule == WindowRule::kNone) return;
  int window = family.sliding_window;
  if (json.Has("sliding_window")) {
    window = static_cast<int>(json.Int("sliding_window", 1, kMaxInt, std::nullopt));
  } else if (json.Contains("sliding_window")) {
    window = 0;  // null means none, absent the family's default
  }
  // A window as long as the context hides nothing.
  if (window >= config.context_length) window = 0;
  if (rule == WindowRule::kAll) {
    std::fill(config.windows.begin(), config.windows.end(), window);
    return;
  }
  if (rule != WindowRule::kAlternating && !json.Bool("use_sliding_window", false)) return;
  if (rule == WindowRule::kSwitched) {
    std::fill(config.windows.begin(), config.windows.end(), window);
    return;
  }
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
  if (rule == WindowRule::kAlternating) {
    for (size_t i = 0; i < config.windows.size(); i += 2) config.windows[i] = window;
    return;
  }
  const int64_t first = json.Int("max_window_layers", 0, kMaxInt, 28);
  for (int64_t i = first; i < config.num_layers; ++i) {
    config.windows[static_cast<size_t>(i)] = window;
  }
}

void ParseExperts(const Family& family, JsonObject& json, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  experts.layers.assign(static_cast<size_t>(config.num_layers), false);
  if (family.num_experts_field == nullptr) return;
  const bool is_mixtral = family.names == WeightNames::kMixtral;
  const auto number = [&json](std::string_view field, int64_t min, int64_t max, int64_t fallback) {
    return static_cast<int>(json.Int(field, min, max, fallback));
  };
  experts.num_experts =
      number(family.num_experts_field, is_mixtral ? 1 : 0, kMaxExperts, is_mixtral ? 8 : 128);
  if (experts.num_experts == 0) return;
  const int64_t per_token = is_mixtral ? 2 : 8;
  const int64_t total = int64_t{experts.num_experts} * config.num_layers;
  if (total > kMaxExpertsOfAllLayers) {
    return json.Fail(family.num_experts_field,
                     absl::StrCat("with ", config.num_layers, " layers there are ", total,
                                  " experts, at most ", kMaxExpertsOfAllLayers, " are taken"));
  }
  experts.per_token = number("num_experts_per_tok", 1, experts.num_experts,
                             std::min<int64_t>(per_token, experts.num_experts));
  if (is_mixtral) {
    experts.intermediate_size = config.intermediate_size;
    experts.normalise = true;
    experts.layers.assign(static_cast<size_t>(config.num_layers), true);
    return;
  }
  experts.intermediate_size = number("moe_intermediate_size", 1, kMaxIntermediateSize, 768);
  experts.normalise = json.Bool("norm_topk_prob", false);
  const int64_t step = number("decoder_sparse_step", 1, kMaxInt, 1);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    experts.layers[static_cast<size_t>(i)] = (i + 1) % step == 0;
  }
  const nlohmann::json& dense = json.Raw("mlp_only_layers");
  if (dense.is_null()) return;
  const std::string allowed =
      absl::StrCat("it must be a list of layers, each from 0 to ", config.num_layers - 1);
  if (!dense.is_array()) return json.Fail("mlp_only_layers", allowed);
  for (const nlohmann::json& layer : dense) {
    // Whatever is negative is too large without a sign.
    const bool fits = layer.is_number_integer() &&
                      layer.get<uint64_t>() < static_cast<uint64_t>(config.num_layers);
    if (!fits) return json.Fail("mlp_only_layers", allowed);
    experts.layers[layer.get<size_t>()] = false;
  }
}

}  // namespace continuo::model
