// SPDX-License-Identifier: Apache-2.0
#include "services/worker/describe/registry_facts.h"

#include "nlohmann/json.hpp"
#include "services/worker/describe/mechanisms.h"
#include "services/worker/gguf/blocks.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/gguf/pre_tokenizers.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/weight_schemes.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/encoder_config.h"
#include "services/worker/model/description/family.h"
#include "services/worker/model/load/precision.h"
#include "services/worker/text/tokenizer_files/tokenizer_files.h"

namespace continuo::worker {
namespace {

using Json = nlohmann::ordered_json;

// The mechanisms of a family's model whose config.json has sizes alone: what the family decides.
// Null where the family needs more fields.
Json MechanismsOf(const model::Family& family) {
  Json config = {{"architectures", {family.architecture}},
                 {"vocab_size", 1024},
                 {"hidden_size", 256},
                 {"intermediate_size", 512},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 // Longer than any window, which a shorter context would hide.
                 {"max_position_embeddings", 1 << 20}};
  if (family.states == model::StateKind::kConv) config["full_attn_idxs"] = {1};
  if (family.states == model::StateKind::kSum) {
    config["layer_types"] = {"mamba", "attention", "mamba", "mamba"};
    if (family.parts == model::PartsRule::kListed) config["layer_types"][3] = "mlp";
    if (family.parts == model::PartsRule::kStates) {
      config["layer_types"] = nullptr;
      config["num_heads"] = 2 * config["hidden_size"].get<int>() / 64;
      for (const char* field : {"num_attention_heads", "num_key_value_heads"}) config.erase(field);
    }
  }
  const absl::StatusOr<model::ModelConfig> parsed = model::ParseModelConfig(config.dump(), "");
  return parsed.ok() ? Json(MechanismNames(*parsed)) : Json(nullptr);
}

Json FamiliesJson() {
  Json families = Json::array();
  for (const model::Family& family : model::Families()) {
    Json gguf = Json::array();
    for (const gguf::Architecture& architecture : gguf::Architectures()) {
      if (architecture.hugging_face == family.architecture) gguf.push_back(architecture.name);
    }
    families.push_back({{"architecture", family.architecture},
                        {"model_type", family.model_type},
                        {"gguf", std::move(gguf)},
                        {"mechanisms", MechanismsOf(family)}});
  }
  return families;
}

// Whose classes' names begin with the stem.
Json EncodersJson() {
  Json encoders = Json::array();
  for (const model::EncoderFamily& family : model::EncoderFamilies()) {
    encoders.push_back(
        {{"stem", family.stem}, {"model_type", family.model_type}, {"title", family.title}});
  }
  return encoders;
}

Json StoredTypesJson() {
  Json types = Json::array();
  for (const model::StoredType& type : model::StoredTypes()) {
    Json json = {{"name", type.name},
                 {"block", type.block},
                 {"bits", 8.0 * static_cast<double>(type.bytes) / static_cast<double>(type.block)}};
    if (const gguf::IntegerType* const integers = gguf::FindIntegerType(type.name)) {
      json["integers"] = {{"bits", integers->bits},
                          {"group", integers->group},
                          {"has_minimum", integers->has_minimum}};
    }
    types.push_back(std::move(json));
  }
  return types;
}

Json TokenizersJson() {
  Json files = Json::array();
  for (const text::TokenizerFile& file : text::TokenizerFiles()) {
    files.push_back({{"file", file.file}, {"what", file.what}});
  }
  return files;
}

}  // namespace

std::string RegistryJson() {
  Json pre_tokenizers = Json::array();
  for (const std::string_view name : gguf::PreTokenizerNames()) pre_tokenizers.push_back(name);
  const Json json = {{"families", FamiliesJson()},
                     {"encoders", EncodersJson()},
                     {"stored_types", StoredTypesJson()},
                     {"weights", model::WeightSchemeNames()},
                     {"kv", model::KvTypeNames()},
                     {"tokenizer_files", TokenizersJson()},
                     {"gguf_pre_tokenizers", std::move(pre_tokenizers)}};
  return json.dump(2) + "\n";
}

}  // namespace continuo::worker
