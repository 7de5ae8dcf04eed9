// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/tiny_model.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/worker/model/description/encoder_config.h"
#include "services/worker/model/description/family.h"
#include "services/worker/model/tools/make_model.h"

namespace continuo::testing {
namespace {

namespace fs = std::filesystem;

// Fields of the families that are described by their mechanisms alone.
nlohmann::json NewerFields(const std::string& family) {
  const nlohmann::json yarn = {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"rope_theta", 100.0},
                               {"original_max_position_embeddings", 64}};
  const nlohmann::json windows = {{"sliding_window", 24}, {"sliding_window_pattern", 2}};
  const std::map<std::string, nlohmann::json> fields = {
      {"gemma3_text", {{"query_pre_attn_scalar", 12}, {"rope_local_base_freq", 100.0}}},
      {"granite",
       {{"embedding_multiplier", 3.0},
        {"attention_multiplier", 0.25},
        {"residual_multiplier", 0.3},
        {"logits_scaling", 2.0},
        {"attention_bias", true},
        {"mlp_bias", true}}},
      {"smollm3",
       {{"no_rope_layer_interval", 2}, {"use_sliding_window", true}, {"sliding_window", 24}}},
      {"ministral3", {{"rope_parameters", yarn}}},
      {"olmo3", {{"rope_scaling", yarn}}},
      {"cohere2", {{"logit_scale", 0.5}}},
      {"ernie4_5", {{"use_bias", true}}},
      {"hunyuan_v1_dense", {{"rope_scaling", {{"type", "dynamic"}, {"alpha", 20.0}}}}},
      {"internlm2", {{"bias", true}}},
      {"minicpm", {{"scale_emb", 3.0}, {"scale_depth", 1.4}, {"dim_model_base", 24}}},
      {"lfm2",
       {{"num_hidden_layers", 4},
        {"layer_types", {"conv", "full_attention", "conv", "conv"}},
        {"block_multiple_of", 8},
        {"block_ffn_dim_multiplier", 1.5}}},
      {"starcoder2", {{"sliding_window", 24}}},
      {"olmoe", {{"num_experts", 7}, {"num_experts_per_tok", 3}}},
      {"granitemoeshared",
       {{"num_local_experts", 5}, {"num_experts_per_tok", 2}, {"shared_intermediate_size", 36}}},
      {"qwen2_moe",
       {{"num_experts", 7},
        {"num_experts_per_tok", 3},
        {"moe_intermediate_size", 36},
        {"shared_expert_intermediate_size", 44}}},
      {"glm4_moe", {{"use_qk_norm", true}, {"attention_bias", true}, {"num_key_value_heads", 2}}},
      {"ernie4_5_moe", {{"moe_num_experts", 7}, {"moe_k", 3}, {"moe_intermediate_size", 36}}},
      {"gemma4_text",
       {{"num_hidden_layers", 4},
        {"layer_types",
         {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
        {"sliding_window", 24},
        {"global_head_dim", 12},
        {"num_global_key_value_heads", 1},
        {"attention_k_eq_v", true},
        {"num_kv_shared_layers", 2},
        {"use_double_wide_mlp", true},
        {"hidden_size_per_layer_input", 10},
        {"enable_moe_block", true},
        {"num_experts", 5},
        {"top_k_experts", 2},
        {"moe_intermediate_size", 36},
        {"final_logit_softcapping", 20.0}}},
      {"llama4_text",
       {{"intermediate_size", 36},
        {"intermediate_size_mlp", 88},
        {"num_local_experts", 5},
        {"num_experts_per_tok", 2},
        {"interleave_moe_layer_step", 2},
        {"no_rope_layer_interval", 2},
        {"attention_chunk_size", 24},
        {"attn_scale", 0.5},
        {"floor_scale", 16}}},
      {"gpt_oss",
       {{"num_local_experts", 7},
        {"num_experts_per_tok", 3},
        {"sliding_window", 24},
        {"rope_scaling", yarn}}},
      {"qwen3_5_text",
       {{"full_attention_interval", 2},
        {"linear_num_key_heads", 2},
        {"linear_num_value_heads", 4},
        {"linear_key_head_dim", 6},
        {"linear_value_head_dim", 10},
        {"partial_rotary_factor", 0.5}}},
      {"qwen3_5_moe_text",
       {{"full_attention_interval", 2},
        {"num_experts", 7},
        {"num_experts_per_tok", 3},
        {"moe_intermediate_size", 36},
        {"shared_expert_intermediate_size", 44},
        {"linear_num_key_heads", 2},
        {"linear_num_value_heads", 4},
        {"linear_key_head_dim", 6},
        {"linear_value_head_dim", 10}}},
      {"qwen3_next",
       {{"full_attention_interval", 2},
        {"num_experts", 6},
        {"num_experts_per_tok", 2},
        {"moe_intermediate_size", 36},
        {"shared_expert_intermediate_size", 44},
        {"mlp_only_layers", {0}},
        {"linear_num_key_heads", 2},
        {"linear_num_value_heads", 4},
        {"linear_key_head_dim", 6},
        {"linear_value_head_dim", 10}}},
      {"granitemoehybrid",
       {{"num_hidden_layers", 3},
        {"layer_types", {"mamba", "attention", "mamba"}},
        {"num_local_experts", 5},
        {"num_experts_per_tok", 2},
        {"shared_intermediate_size", 36},
        {"mamba_n_heads", 6},
        {"mamba_d_state", 10},
        {"mamba_expand", 1}}},
      {"nemotron_h",
       {{"num_hidden_layers", 5},
        {"hybrid_override_pattern", "ME*M-"},
        {"mamba_num_heads", 6},
        {"mamba_head_dim", 10},
        {"n_groups", 2},
        {"ssm_state_size", 10},
        {"n_routed_experts", 5},
        {"num_experts_per_tok", 2},
        {"moe_intermediate_size", 36},
        {"moe_shared_expert_intermediate_size", 44},
        {"routed_scaling_factor", 2.5}}},
      {"mamba2",
       {{"num_heads", 6},
        {"head_dim", 8},
        {"n_groups", 2},
        {"state_size", 10},
        {"expand", 1},
        {"num_attention_heads", nullptr},
        {"num_key_value_heads", nullptr}}},
      {"lfm2_moe",
       {{"full_attn_idxs", {1}},
        {"num_experts", 6},
        {"num_experts_per_tok", 2},
        {"moe_intermediate_size", 36},
        {"num_dense_layers", 1},
        {"routed_scaling_factor", 1.5}}},
      {"deepseek_v2", {{"topk_method", "greedy"}}},
      {"deepseek_v3", {{"q_lora_rank", 26}, {"rope_scaling", yarn}}},
      {"glm4_moe_lite",
       {{"q_lora_rank", 26}, {"n_group", 1}, {"topk_group", 1}, {"v_head_dim", 18}}},
  };
  const nlohmann::json experts = {
      {"n_routed_experts", 12}, {"num_experts_per_tok", 3},    {"moe_intermediate_size", 36},
      {"n_shared_experts", 2},  {"first_k_dense_replace", 1},  {"n_group", 4},
      {"topk_group", 2},        {"routed_scaling_factor", 1.5}};
  const nlohmann::json latent = {
      {"kv_lora_rank", 22}, {"qk_nope_head_dim", 12}, {"qk_rope_head_dim", 6}, {"v_head_dim", 14}};
  nlohmann::json all = nlohmann::json::object();
  const bool has_windows =
      family == "gemma3_text" || family == "olmo3" || family == "cohere2" || family == "exaone4";
  if (has_windows) all.update(windows);
  const bool is_latent = family.starts_with("deepseek") || family == "glm4_moe_lite";
  if (is_latent || family == "glm4_moe") all.update(experts);
  if (is_latent) all.update(latent);
  if (const auto it = fields.find(family); it != fields.end()) all.update(it->second);
  if (family == "ministral3") all["rope_parameters"]["llama_4_scaling_beta"] = 0.1;
  return all;
}

std::string EncoderJson(const TinyModelOptions& o, const model::EncoderFamily& family) {
  nlohmann::json config = {{"architectures", {std::string(family.stem) + "Model"}},
                           {"model_type", o.family},
                           {"vocab_size", o.vocab_size},
                           {"hidden_size", o.hidden_size},
                           {"intermediate_size", o.intermediate_size},
                           {"num_hidden_layers", o.num_layers},
                           {"num_attention_heads", o.num_heads},
                           {"max_position_embeddings", o.context_length}};
  if (o.family == "modernbert") config["local_attention"] = 24;
  config.update(nlohmann::json::parse(o.extra_config));
  return config.dump();
}

std::string ConfigJson(const TinyModelOptions& o) {
  const auto encoders = model::EncoderFamilies();
  const auto encoder = std::ranges::find(encoders, o.family, &model::EncoderFamily::model_type);
  if (encoder != encoders.end()) return EncoderJson(o, *encoder);
  const auto families = model::Families();
  const auto family = std::ranges::find(families, o.family, &model::Family::model_type);
  CONTINUO_CHECK(family != families.end());
  const std::string architecture(family->architecture);
  nlohmann::json config = {{"architectures", {architecture}},
                           {"model_type", o.family},
                           {"vocab_size", o.vocab_size},
                           {"hidden_size", o.hidden_size},
                           {"intermediate_size", o.intermediate_size},
                           {"num_hidden_layers", o.num_layers},
                           {"num_attention_heads", o.num_heads},
                           {"num_key_value_heads", o.num_kv_heads},
                           {"head_dim", o.head_dim},
                           {"max_position_embeddings", o.context_length},
                           {family->eps_field, 1e-5},
                           {"rope_theta", 10000.0},
                           {"tie_word_embeddings", o.tied_embeddings},
                           {"eos_token_id", o.vocab_size - 1}};
  if (o.family == "mistral" || o.family == "gemma2" || o.family == "phi3") {
    config["sliding_window"] = 24;
  }
  if (o.family == "mixtral") {
    config.update({{"num_local_experts", 5}, {"num_experts_per_tok", 2}});
  } else if (o.family == "qwen3_moe") {  // dense layers and others in turn
    config.update({{"num_experts", 7},
                   {"num_experts_per_tok", 3},
                   {"moe_intermediate_size", 36},
                   {"decoder_sparse_step", 2}});
  } else if (o.family == "gemma2") {
    config.update({{"query_pre_attn_scalar", 12},
                   {"attn_logit_softcapping", 5.0},
                   {"final_logit_softcapping", 3.0}});
  } else if (o.family == "phi3") {
    config["partial_rotary_factor"] = 0.5;
  }
  config.update(NewerFields(o.family));
  config.update(nlohmann::json::parse(o.extra_config));
  return config.dump();
}

}  // namespace

TinyModel::TinyModel(const TinyModelOptions& options) {
  static std::atomic<int> count = 0;
  const fs::path dir = fs::temp_directory_path() / ("continuo_tiny_" + std::to_string(getpid()) +
                                                    "_" + std::to_string(count.fetch_add(1)));
  dir_ = dir.string();
  const absl::Status status = model::WriteRandomModel({.config_json = ConfigJson(options),
                                                       .out_dir = dir_,
                                                       .seed = options.seed,
                                                       .dtype = options.dtype,
                                                       .shard_bytes = options.shard_bytes,
                                                       .mtp = options.mtp});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  CONTINUO_CHECK(status.ok());
}

TinyModel::~TinyModel() {
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

void TinyModel::Write(std::string_view file, std::string_view text) const {
  std::ofstream(fs::path(dir_) / file, std::ios::binary) << text;
}

std::string TinyModel::Read(std::string_view file) const {
  std::ifstream in(fs::path(dir_) / file, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

}  // namespace continuo::testing
