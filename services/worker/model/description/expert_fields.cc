// SPDX-License-Identifier: Apache-2.0
// ParseExperts: what fields say of the experts of a mixture.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"

namespace continuo::model {
namespace {

constexpr int kMaxIndex = std::numeric_limits<int32_t>::max();

// Every decoder_sparse_step-th layer but those of mlp_only_layers.
void ReadSteps(JsonObject& json, std::vector<bool>& layers) {
  const size_t num_layers = layers.size();
  const int64_t step = json.Int("decoder_sparse_step", 1, kMaxIndex, 1);
  for (size_t i = 0; i < num_layers; ++i) layers[i] = static_cast<int64_t>(i + 1) % step == 0;
  const nlohmann::json& dense = json.Raw("mlp_only_layers");
  if (dense.is_null()) return;
  const std::string allowed =
      absl::StrCat("it must be a list of layers, each from 0 to ", num_layers - 1);
  if (!dense.is_array()) return json.Fail("mlp_only_layers", allowed);
  for (const nlohmann::json& layer : dense) {
    // Whatever is negative is too large without a sign.
    const bool fits = layer.is_number_integer() && layer.get<uint64_t>() < num_layers;
    if (!fits) return json.Fail("mlp_only_layers", allowed);
    layers[layer.get<size_t>()] = false;
  }
}

// Layers behind the dense ones, by their number or by a list of all layers' kinds.
void ReadAfterDense(const ExpertFacts& facts, JsonObject& json, std::vector<bool>& layers) {
  const nlohmann::json& types = json.Raw("mlp_layer_types");
  const int64_t first = json.Int(facts.dense_field, 0, kMaxIndex, facts.num_dense);
  for (size_t i = 0; i < layers.size(); ++i) layers[i] = static_cast<int64_t>(i) >= first;
  if (types.is_null()) return;
  if (!types.is_array() || types.size() != layers.size()) {
    return json.Fail("mlp_layer_types",
                     absl::StrCat("it must have one entry for each of ", layers.size(), " layers"));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = types[i] == "sparse";
    if (!layers[i] && types[i] != "dense") {
      json.Fail("mlp_layer_types", "known are dense and sparse");
    }
  }
}

// The layers that moe_layers lists, or else every interleave_moe_layer_step-th.
void ReadNumbers(JsonObject& json, std::vector<bool>& layers) {
  constexpr std::string_view kField = "moe_layers";
  const nlohmann::json& list = json.Raw(kField);
  const int64_t step = json.Int("interleave_moe_layer_step", 1, kMaxIndex, 1);
  const size_t num_layers = layers.size();
  if (list.is_null()) {
    for (size_t i = 0; i < num_layers; ++i) layers[i] = static_cast<int64_t>(i + 1) % step == 0;
    return;
  }
  const std::string allowed =
      absl::StrCat("it must be a list of layers, each from 0 to ", num_layers - 1);
  if (!list.is_array()) return json.Fail(kField, allowed);
  for (const nlohmann::json& layer : list) {
    const bool fits = layer.is_number_integer() && layer.get<uint64_t>() < num_layers;
    if (!fits) return json.Fail(kField, allowed);
    layers[layer.get<size_t>()] = true;
  }
}

void ReadRange(JsonObject& json, std::vector<bool>& layers) {
  const int64_t interval = json.Int("moe_layer_interval", 1, kMaxIndex, 1);
  const int64_t first = json.Int("moe_layer_start_index", 0, kMaxIndex, 1);
  const int64_t last = json.Int("moe_layer_end_index", -1, kMaxIndex, -1);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    layers[i] = (layer + 1) % interval == 0 && layer >= first && (last == -1 || layer <= last);
  }
}

// Groups of experts, of which some are chosen from.
void ReadGroups(const ExpertFacts& facts, JsonObject& json, ExpertsConfig& experts) {
  // The first to have groups says so; later ones have them always.
  const std::string method = json.String("topk_method", "noaux_tc");
  const int64_t groups =
      json.Has("n_group") ? json.Int("n_group", 1, kMaxExperts, 1) : facts.num_groups;
  const int64_t top =
      json.Has("topk_group") ? json.Int("topk_group", 1, kMaxExperts, 1) : facts.top_groups;
  if (method == "greedy") return;
  if (method != "noaux_tc" && method != "group_limited_greedy") {
    return json.Fail("topk_method", "known are greedy, group_limited_greedy and noaux_tc");
  }
  if (experts.num_experts % groups != 0) {
    return json.Fail("n_group",
                     absl::StrCat("it must divide the number of experts, ", experts.num_experts));
  }
  if (top > groups) return json.Fail("topk_group", absl::StrCat("n_group is ", groups));
  if (experts.num_experts / groups * top < experts.per_token) {
    return json.Fail("topk_group", absl::StrCat("its experts are fewer than the ",
                                                experts.per_token, " of a token"));
  }
  experts.num_groups = static_cast<int>(groups);
  experts.top_groups = static_cast<int>(top);
}

// Fields of experts say nothing where there are none.
void IgnoreExperts(const ExpertFacts& facts, JsonObject& json) {
  for (const char* field : {facts.count_field, facts.per_token_field, facts.size_field}) {
    json.Raw(field);
  }
  if (facts.layers != ExpertLayers::kListed) return;
  if (facts.normalise_field != nullptr) json.Raw(facts.normalise_field);
  for (const char* field : {facts.shared_field, facts.latent_field}) {
    if (field != nullptr) json.Raw(field);
  }
  if (facts.scaled) json.Raw("routed_scaling_factor");
  if (!facts.by_groups) return;
  for (const char* field : {"topk_method", "n_group", "topk_group"}) json.Raw(field);
}

}  // namespace

void ParseExperts(const Family& family, JsonObject& json, ModelConfig& config) {
  const ExpertFacts& facts = family.experts;
  ExpertsConfig& experts = config.experts;
  if (facts.layers != ExpertLayers::kListed) {
    experts.layers.assign(static_cast<size_t>(config.num_layers), false);
  }
  if (facts.count_field == nullptr) return;
  if (facts.switch_field != nullptr && !json.Bool(facts.switch_field, false)) {
    return IgnoreExperts(facts, json);
  }
  const auto number = [&json](std::string_view field, int64_t min, int64_t max, int64_t fallback) {
    return static_cast<int>(json.Int(field, min, max, fallback));
  };
  const bool is_optional = facts.is_optional || facts.layers == ExpertLayers::kBySteps;
  const int least = is_optional ? 0 : 1;
  experts.num_experts = number(facts.count_field, least, kMaxExperts, facts.count);
  const bool is_named = facts.layers == ExpertLayers::kListed;
  const int64_t with =
      is_named ? std::ranges::count(experts.layers, true) : int64_t{config.num_layers};
  if (experts.num_experts == 0 || with == 0) {
    IgnoreExperts(facts, json);
    experts.num_experts = 0;
    return;
  }
  const int64_t total = experts.num_experts * with;
  if (total > kMaxExpertsOfAllLayers) {
    return json.Fail(facts.count_field,
                     absl::StrCat("with ", with, " layers there are ", total, " experts, at most ",
                                  kMaxExpertsOfAllLayers, " are supported"));
  }
  experts.per_token = number(facts.per_token_field, 1, experts.num_experts,
                             std::min(facts.per_token, experts.num_experts));
  experts.intermediate_size = facts.size == 0
                                  ? config.intermediate_size
                                  : number(facts.size_field, 1, kMaxIntermediateSize, facts.size);
  experts.names = facts.names;
  experts.biases = facts.biases;
  experts.beside_dense = facts.beside_dense;
  experts.by_sigmoid = facts.by_sigmoid;
  experts.chooses_by_logits = facts.chooses_by_logits;
  experts.weighs_inputs = facts.weighs_inputs;
  experts.normalise = facts.normalise_field == nullptr
                          ? facts.normalise
                          : json.Bool(facts.normalise_field, facts.normalise);
  experts.correction = facts.correction_field == nullptr
                           ? facts.correction
                           : json.Bool(facts.correction_field, facts.correction);
  experts.by_top_two = facts.by_top_two;
  if (facts.by_groups) ReadGroups(facts, json, experts);
  experts.factor = facts.factor;
  if (facts.scaled) experts.factor = json.Number("routed_scaling_factor", 1e-6, 1e6, facts.factor);
  if (facts.latent_field != nullptr && !json.Raw(facts.latent_field).is_null()) {
    experts.latent_size = number(facts.latent_field, 1, kMaxHiddenSize, 1);
    if (config.mlp_bias) json.Fail(facts.latent_field, "with biases (mlp_bias) is not supported");
  }
  if (facts.shared_field != nullptr) {
    const bool by_count = facts.shared_unit == SharedUnit::kExperts;
    const int64_t unit = by_count ? experts.intermediate_size : 1;
    experts.shared_size = static_cast<int>(
        unit * number(facts.shared_field, 0, kMaxIntermediateSize / unit, facts.shared));
    experts.shared_gate = facts.shared_gate && experts.shared_size > 0;
  }
  switch (facts.layers) {
    case ExpertLayers::kAll:
      experts.layers.assign(static_cast<size_t>(config.num_layers), true);
      break;
    case ExpertLayers::kBySteps:
      ReadSteps(json, experts.layers);
      break;
    case ExpertLayers::kAfterDense:
      ReadAfterDense(facts, json, experts.layers);
      break;
    case ExpertLayers::kInRange:
      ReadRange(json, experts.layers);
      break;
    case ExpertLayers::kListed:
      break;
    case ExpertLayers::kNumbered:
      ReadNumbers(json, experts.layers);
      break;
  }
}

}  // namespace continuo::model
