// SPDX-License-Identifier: Apache-2.0
#include "nlohmann/json.hpp"
#include "services/worker/describe/mechanisms.h"
#include "services/worker/describe/model_facts.h"
#include "services/worker/model/checkpoint/fingerprint.h"

namespace continuo::worker {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigJson(const ModelFacts& facts) {
  const model::ModelConfig& c = *facts.config;
  return {{"architecture", c.architecture},
          {"parameters", facts.num_parameters},
          {"layers", c.num_layers},
          {"hidden_size", c.hidden_size},
          {"heads", c.num_heads},
          {"kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"vocabulary", c.vocab_size},
          {"context", c.context_length},
          {"mechanisms", MechanismsOf(c)},
          {"summary", model::ConfigSummary(c)}};
}

Json TextJson(const TextFacts& text) {
  Json ends = Json::array();
  for (const TokenFacts& end : text.end_tokens)
    ends.push_back({{"id", end.id}, {"text", end.text}});
  return {{"tokenizer", text.tokenizer_source}, {"kind", text.tokenizer_kind},
          {"tokens", text.num_tokens},          {"chat_template", text.has_chat_template},
          {"tool_format", text.tool_format},    {"end_tokens", std::move(ends)}};
}

Json EmbeddingJson(const EmbeddingFacts& embedding) {
  return {{"dimensions", embedding.dimensions},
          {"dense_modules", embedding.dense_modules},
          {"normalises", embedding.normalises},
          {"prompts", embedding.prompts}};
}

Json ComputedJson(const model::LoadEstimate& e) {
  Json json = {{"weights", kernels::NameOf(e.types.weights)},
               {"activations", model::TypeName(e.types.activations)},
               {"kv", model::TypeName(e.types.kv)},
               {"backend", e.backend_name}};
  if (!e.kept.empty()) json["kept"] = e.kept;
  return json;
}

Json MemoryJson(const ModelFacts& facts) {
  const model::LoadEstimate& e = *facts.estimate;
  Json json = {{"weights", e.weight_bytes},
               {"activations", e.scratch_bytes},
               {"kv_per_token", e.bytes_per_block / facts.block_size},
               {"context", e.config.context_length},
               {"kv_of_context", e.bytes_per_block * e.min_blocks}};
  if (e.bytes_per_state_slot > 0) json["state_of_sequence"] = e.bytes_per_state_slot;
  if (facts.available_bytes > 0) json["available"] = facts.available_bytes;
  if (facts.num_blocks > 0) json["kv_cache"] = e.bytes_per_block * facts.num_blocks;
  return json;
}

}  // namespace

std::string FactsJson(const ModelFacts& facts) {
  Json problems = Json::array(), stored = Json::array();
  for (const absl::Status& problem : facts.problems) {
    problems.push_back({{"code", absl::StatusCodeToString(problem.code())},
                        {"message", std::string(problem.message())}});
  }
  for (const StoredFacts& type : facts.stored) {
    stored.push_back({{"type", type.type}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  }
  Json json = {{"would_run", facts.would_run()},
               {"problems", std::move(problems)},
               {"warnings", facts.warnings},
               {"name", facts.name},
               {"path", facts.path},
               {"container", facts.container.empty() ? Json(nullptr) : Json(facts.container)},
               {"stored", std::move(stored)}};
  json["model"] = facts.config.has_value() ? ConfigJson(facts) : Json(nullptr);
  json["text"] = facts.text.has_value() ? TextJson(*facts.text) : Json(nullptr);
  json["embeddings"] =
      facts.embedding.has_value() ? EmbeddingJson(*facts.embedding) : Json(nullptr);
  json["scores"] =
      facts.score.has_value() ? Json{{"has_head", facts.score->has_head}} : Json(nullptr);
  json["computed"] = facts.estimate.has_value() ? ComputedJson(*facts.estimate) : Json(nullptr);
  json["memory"] = facts.estimate.has_value() ? MemoryJson(facts) : Json(nullptr);
  // Paths and tokens may be no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace continuo::worker
