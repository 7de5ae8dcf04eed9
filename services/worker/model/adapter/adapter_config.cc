// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_config.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

constexpr char kName[] = "adapter_config.json";
constexpr double kMostAlpha = 1e6;
constexpr size_t kMostTargets = 4096;
constexpr size_t kMostPatterns = 1024;
constexpr size_t kMostPatternBytes = 512;
// Memory that a compiled pattern may take. RE2 takes time linear in the text, whatever the pattern.
constexpr int64_t kMostExpressionBytes = 1 << 16;
constexpr int64_t kMostLayer = 1 << 16;

// Fields that matter to training, or to people, alone.
constexpr std::string_view kIgnored[] = {"auto_mapping",      "base_model_name_or_path",
                                         "corda_config",      "eva_config",
                                         "exclude_modules",   "inference_mode",
                                         "layers_pattern",    "loftq_config",
                                         "lora_dropout",      "lora_ga_config",
                                         "megatron_core",     "peft_version",
                                         "qalora_group_size", "revision",
                                         "runtime_config"};

struct Refused {
  std::string_view field, why;
};

// Fields that ask for more than A and B, wherever they are set.
constexpr Refused kRefused[] = {
    {"alora_invocation_tokens", "adapters that begin at a token (aLoRA) are not supported"},
    {"arrow_config", "adapters that route among others (Arrow) are not supported"},
    {"fan_in_fan_out", "weights that are stored by columns are not supported"},
    {"kasa_config", "KaSA is not supported"},
    {"layer_replication", "layers that are repeated are not supported"},
    {"lora_bias", "biases of adapters are not supported"},
    {"megatron_config", "Megatron's layers are not supported"},
    {"modules_to_save",
     "modules that are saved whole are not supported; merge the adapter into its "
     "model"},
    {"monteclora_config", "MonteCLoRA is not supported"},
    {"target_parameters", "adapters of parameters, such as those of experts, are not supported"},
    {"trainable_token_indices", "trained embeddings of tokens are not supported"},
    {"use_bdlora", "block-diagonal adapters are not supported"},
    {"use_dora", "DoRA is not supported; merge the adapter into its model"},
    {"use_qalora", "QA-LoRA is not supported"},
    {"velora_config", "VeLoRA is not supported"}};

bool IsEmpty(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_array() || value.is_object()) && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

absl::Status Unsupported(std::string_view field, const nlohmann::json& value,
                         std::string_view why) {
  return absl::UnimplementedError(absl::StrCat(kName, ": ", std::string(field), " is ",
                                               ShowJson(value), "; ", std::string(why)));
}

// Checks the fields that are supported with one value alone.
absl::Status CheckFixed(JsonObject& json) {
  const std::string type = json.String("peft_type", "");
  RETURN_IF_ERROR(json.status());
  if (type != "LORA") {
    return Unsupported("peft_type", json.Raw("peft_type"), "adapters are of the type \"LORA\"");
  }
  const nlohmann::json& task = json.Raw("task_type");
  if (!task.is_null() && task != "CAUSAL_LM" && task != "FEATURE_EXTRACTION") {
    return Unsupported("task_type", task,
                       "the task is \"CAUSAL_LM\", or of embeddings \"FEATURE_EXTRACTION\"");
  }
  const nlohmann::json& bias = json.Raw("bias");
  if (!bias.is_null() && bias != "none") {
    return Unsupported("bias", bias,
                       "trained biases are not supported; merge the adapter into its "
                       "model");
  }
  // Other ways to begin change the model's own weights.
  const nlohmann::json& init = json.Raw("init_lora_weights");
  if (!init.is_null() && !init.is_boolean() && init != "gaussian" && init != "eva" &&
      init != "orthogonal") {
    return Unsupported("init_lora_weights", init,
                       "the adapter goes with changed weights of its model; save it as one of the "
                       "model as it is");
  }
  for (const auto& [field, why] : kRefused) {
    if (!IsEmpty(json.Raw(field))) return Unsupported(field, json.Raw(field), why);
  }
  return absl::OkStatus();
}

// A list of strings; nothing where there is a string in its place.
absl::StatusOr<std::optional<std::vector<std::string>>> ReadTargets(const JsonObject& json) {
  const nlohmann::json& value = json.Raw("target_modules");
  if (value.is_string()) return std::nullopt;
  std::vector<std::string> targets;
  bool is_right = value.is_array() && !value.empty() && value.size() <= kMostTargets;
  for (size_t i = 0; is_right && i < value.size(); ++i) {
    is_right = value[i].is_string() && !value[i].get_ref<const std::string&>().empty();
    if (is_right) targets.push_back(value[i].get<std::string>());
  }
  if (is_right) return targets;
  return absl::InvalidArgumentError(absl::StrCat(
      kName, ": target_modules is ", ShowJson(value), "; it must be a list of at most ",
      kMostTargets, " names, a regular expression, or \"all-linear\""));
}

absl::StatusOr<std::optional<std::vector<int64_t>>> ReadLayers(const JsonObject& json) {
  const nlohmann::json& value = json.Raw("layers_to_transform");
  if (IsEmpty(value)) return std::nullopt;
  std::vector<int64_t> layers;
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  for (const nlohmann::json& layer : list) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() > kMostLayer ||
        list.size() > kMostTargets) {
      return absl::InvalidArgumentError(absl::StrCat(
          kName, ": layers_to_transform is ", ShowJson(value), "; it must be numbers of layers"));
    }
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

// The first number that is a part of a module's name; -1: there is none.
int64_t LayerOf(std::string_view module) {
  while (!module.empty()) {
    const std::string_view part = module.substr(0, module.find('.'));
    int64_t layer = 0;
    if (!part.empty() && part.size() < 10 &&
        part.find_first_not_of("0123456789") == std::string_view::npos &&
        absl::SimpleAtoi(std::string(part), &layer)) {
      return layer;
    }
    module.remove_prefix(std::min(part.size() + 1, module.size()));
  }
  return -1;
}

std::string Quoted(std::string_view text) { return ShowJson(nlohmann::json(std::string(text))); }

struct PatternValues {
  double least, most;
  bool are_whole;
};

absl::StatusOr<std::vector<AdapterPattern>> ReadPatterns(const JsonObject& object,
                                                         std::string_view field,
                                                         const PatternValues& values) {
  const nlohmann::json& json = object.Raw(field);
  const auto& [least, most, is_whole] = values;
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": ", std::string(field), ": ", parts...));
  };
  std::vector<AdapterPattern> patterns;
  if (json.is_null()) return patterns;
  if (!json.is_object() || json.size() > kMostPatterns) {
    return error("it must be an object of at most ", kMostPatterns, " fields");
  }
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_max_mem(kMostExpressionBytes);
  options.set_never_capture(true);
  for (const auto& [key, value] : json.items()) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= least && number <= most) || (is_whole && number != std::floor(number))) {
      return error(Quoted(key), " is ", ShowJson(value), "; it must be a ",
                   is_whole ? "whole number" : "number", " from ", least, " to ", most);
    }
    if (key.empty() || key.size() > kMostPatternBytes) {
      return error(Quoted(key), " has ", key.size(), " bytes; it must have from 1 to ",
                   kMostPatternBytes);
    }
    if (key.find("{,") != key.npos) {
      return error(Quoted(key), " has \"{,\", a repetition in Python and text in RE2; write {0,");
    }
    auto expression =
        std::make_shared<const re2::RE2>(absl::StrCat("(.*\\.)?(", key, ")"), options);
    // The key by itself, too, so that no parenthesis of it closes ours.
    if (!expression->ok() || !re2::RE2(key, options).ok()) {
      return error(Quoted(key), " is no regular expression that is supported");
    }
    patterns.push_back({key, std::move(expression), number});
  }
  return patterns;
}

// The value of the pattern that matches, or `otherwise`.
absl::StatusOr<double> Match(std::string_view field, const std::vector<AdapterPattern>& patterns,
                             std::string_view module, double otherwise) {
  const AdapterPattern* found = nullptr;
  for (const AdapterPattern& pattern : patterns) {
    if (!re2::RE2::FullMatch(re2::StringPiece(module.data(), module.size()), *pattern.expression)) {
      continue;
    }
    // PEFT takes the first in the order of the file.
    if (found != nullptr && found->value != pattern.value) {
      return absl::InvalidArgumentError(
          absl::StrCat(kName, ": ", std::string(field), ": ", Quoted(found->key), " and ",
                       Quoted(pattern.key), " differ, and both mean ", Quoted(module)));
    }
    found = &pattern;
  }
  return found == nullptr ? otherwise : found->value;
}

}  // namespace

absl::StatusOr<AdapterConfig> AdapterConfig::Parse(std::string_view text) {
  ASSIGN_OR_RETURN(JsonObject json, JsonObject::Parse(kName, text));
  RETURN_IF_ERROR(CheckFixed(json));
  AdapterConfig config;
  config.rank_ = static_cast<int>(json.Int("r", 1, kMaxAdapterRank, std::nullopt));
  config.alpha_ = json.Number("lora_alpha", -kMostAlpha, kMostAlpha, std::nullopt);
  config.by_root_ = json.Bool("use_rslora", false);
  RETURN_IF_ERROR(json.status());
  ASSIGN_OR_RETURN(config.targets_, ReadTargets(json));
  ASSIGN_OR_RETURN(config.layers_, ReadLayers(json));
  ASSIGN_OR_RETURN(config.rank_pattern_,
                   ReadPatterns(json, "rank_pattern", {1, kMaxAdapterRank, /*are_whole=*/true}));
  ASSIGN_OR_RETURN(
      config.alpha_pattern_,
      ReadPatterns(json, "alpha_pattern", {-kMostAlpha, kMostAlpha, /*are_whole=*/false}));
  for (const std::string_view field : kIgnored) (void)json.Contains(field);
  for (const std::string& field : json.Unread()) {
    if (!IsEmpty(json.Raw(field))) {
      return Unsupported(field, json.Raw(field), "the field is not known");
    }
  }
  return config;
}

absl::StatusOr<AdapterConfig::Module> AdapterConfig::Find(std::string_view module) const {
  const auto is_target = [module](const std::string& target) {
    return module == target ||
           (module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
  };
  if (targets_.has_value() && std::ranges::none_of(*targets_, is_target)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": target_modules does not name ", Quoted(module)));
  }
  if (layers_.has_value() && std::ranges::find(*layers_, LayerOf(module)) == layers_->end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": layers_to_transform does not name the layer of ", Quoted(module)));
  }
  Module found;
  ASSIGN_OR_RETURN(const double rank, Match("rank_pattern", rank_pattern_, module, rank_));
  ASSIGN_OR_RETURN(const double alpha, Match("alpha_pattern", alpha_pattern_, module, alpha_));
  found.rank = static_cast<int>(rank);
  found.factor = alpha / (by_root_ ? std::sqrt(rank) : rank);
  return found;
}

}  // namespace continuo::model
