// SPDX-License-Identifier: Apache-2.0
// ParseParts: the one part of each layer, in families whose layers have one.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"

namespace continuo::model {
namespace {

// The letters of hybrid_override_pattern.
constexpr char kStateLetter = 'M', kAttentionLetter = '*', kMlpLetter = '-', kExpertsLetter = 'E';

// The layers that transformers takes where there is neither a list nor a pattern.
constexpr char kDefault[] = "ME*-";

struct NamedPart {
  std::string_view name;  // of layers_block_type and layer_types
  char letter;
};

constexpr NamedPart kNamedParts[] = {{"linear_attention", kStateLetter},
                                     {"mamba", kStateLetter},
                                     {"full_attention", kAttentionLetter},
                                     {"attention", kAttentionLetter},
                                     {"mlp", kMlpLetter},
                                     {"moe", kExpertsLetter}};

// The letters of a list's parts; empty where it is absent.
std::string ReadList(JsonObject& json, std::string_view field) {
  const nlohmann::json& list = json.Raw(field);
  std::string letters;
  if (list.is_null()) return letters;
  if (list.is_array()) {
    for (const nlohmann::json& entry : list) {
      for (const NamedPart& part : kNamedParts) {
        if (entry == part.name) letters.push_back(part.letter);
      }
    }
  }
  if (letters.empty() || letters.size() != list.size()) {
    json.Fail(field, "it must be a list of linear_attention, full_attention, mlp and moe");
  }
  return letters;
}

// The letters of the layers' parts. A list counts before the pattern.
std::string ReadLetters(JsonObject& json) {
  const nlohmann::json& pattern = json.Raw("hybrid_override_pattern");
  const std::string list = ReadList(json, "layers_block_type"),
                    other = ReadList(json, "layer_types");
  if (!list.empty() && !other.empty() && list != other) {
    json.Fail("layer_types", "layers_block_type says otherwise");
  }
  if (!list.empty() || !other.empty()) return list.empty() ? other : list;
  if (pattern.is_null()) return kDefault;
  const std::string letters = pattern.is_string() ? pattern.get<std::string>() : "";
  if (letters.empty() || letters.find_first_not_of("M*-E") != letters.npos) {
    json.Fail("hybrid_override_pattern", "it must be a word of M, *, - and E, one for each layer");
  }
  return letters;
}

}  // namespace

void ParseParts(const Family& family, JsonObject& json, ModelConfig& config) {
  if (family.parts == PartsRule::kBoth) return;
  if (family.parts == PartsRule::kStates) {
    const auto num_layers = static_cast<size_t>(config.num_layers);
    const std::string letters = ReadList(json, "layer_types");
    if (letters.find_first_not_of(kStateLetter) != letters.npos ||
        (!letters.empty() && letters.size() != num_layers)) {
      json.Fail("layer_types", "this family's layers are linear_attention, all of them");
    }
    config.parts.assign(num_layers, LayerParts::kMixer);
    config.states.layers.assign(num_layers, true);
    return;
  }
  const std::string letters = ReadLetters(json);
  if (!json.status().ok()) return;
  config.num_layers = static_cast<int>(letters.size());
  if (letters.size() > kMaxLayers ||
      json.Int("num_hidden_layers", 1, kMaxLayers, config.num_layers) != config.num_layers) {
    return json.Fail("num_hidden_layers",
                     absl::StrCat("the parts of ", letters.size(),
                                  " layers are listed, of at most ", kMaxLayers));
  }
  bool has_attention = false;
  for (const char letter : letters) {
    const bool is_state = letter == kStateLetter, is_attention = letter == kAttentionLetter;
    has_attention |= is_attention;
    config.parts.push_back(is_state || is_attention ? LayerParts::kMixer : LayerParts::kMlp);
    config.states.layers.push_back(is_state);
    config.experts.layers.push_back(letter == kExpertsLetter);
  }
  if (!has_attention) {
    json.Fail(json.Has("layers_block_type") ? "layers_block_type"
              : json.Has("layer_types")     ? "layer_types"
                                            : "hybrid_override_pattern",
              "at least one layer must have attention");
  }
}

}  // namespace continuo::model
