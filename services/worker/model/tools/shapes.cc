// SPDX-License-Identifier: Apache-2.0
// The configurations of public models: sizes are facts, taken from their config.json.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/worker/model/tools/make_model.h"

namespace continuo::model {
namespace {

nlohmann::json Qwen3Small() {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"vocab_size", 151936},
          {"hidden_size", 1024},
          {"intermediate_size", 3072},
          {"num_hidden_layers", 28},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 8},
          {"head_dim", 128},
          {"max_position_embeddings", 40960},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000},
          {"tie_word_embeddings", true},
          {"bos_token_id", 151643},
          {"eos_token_id", 151645}};
}

nlohmann::json Qwen3Experts() {
  nlohmann::json config = Qwen3Small();
  config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"model_type", "qwen3_moe"},
                 {"hidden_size", 2048},
                 {"intermediate_size", 6144},
                 {"moe_intermediate_size", 768},
                 {"num_hidden_layers", 48},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 4},
                 {"num_experts", 128},
                 {"num_experts_per_tok", 8},
                 {"norm_topk_prob", true},
                 {"decoder_sparse_step", 1},
                 {"mlp_only_layers", nlohmann::json::array()},
                 {"tie_word_embeddings", false}});
  return config;
}

nlohmann::json Llama3(bool small) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"vocab_size", 128256},
          {"hidden_size", small ? 2048 : 4096},
          {"intermediate_size", small ? 8192 : 14336},
          {"num_hidden_layers", small ? 16 : 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"head_dim", small ? 64 : 128},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", small ? 32.0 : 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}},
          {"tie_word_embeddings", small},
          {"bos_token_id", 128000},
          {"eos_token_id", 128001}};
}

nlohmann::json Mixtral() {
  return {{"architectures", {"MixtralForCausalLM"}},
          {"model_type", "mixtral"},
          {"hidden_act", "silu"},
          {"vocab_size", 32000},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"num_local_experts", 8},
          {"num_experts_per_tok", 2},
          {"max_position_embeddings", 32768},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 1000000},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

nlohmann::json Gemma2() {
  return {{"architectures", {"Gemma2ForCausalLM"}},
          {"model_type", "gemma2"},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"vocab_size", 256000},
          {"hidden_size", 2304},
          {"intermediate_size", 9216},
          {"num_hidden_layers", 26},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"max_position_embeddings", 8192},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000},
          {"sliding_window", 4096},
          {"query_pre_attn_scalar", 256},
          {"attn_logit_softcapping", 50.0},
          {"final_logit_softcapping", 30.0},
          {"tie_word_embeddings", true},
          {"bos_token_id", 2},
          {"eos_token_id", 1}};
}

nlohmann::json Phi3() {
  return {{"architectures", {"Phi3ForCausalLM"}},
          {"model_type", "phi3"},
          {"hidden_act", "silu"},
          {"vocab_size", 32064},
          {"hidden_size", 3072},
          {"intermediate_size", 8192},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 32},
          {"max_position_embeddings", 4096},
          {"original_max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000},
          {"sliding_window", 2047},
          {"tie_word_embeddings", false},
          {"bos_token_id", 1},
          {"eos_token_id", 32000}};
}

nlohmann::json Lfm2() {
  return {{"architectures", {"Lfm2ForCausalLM"}},
          {"model_type", "lfm2"},
          {"vocab_size", 65536},
          {"hidden_size", 1024},
          {"block_ff_dim", 6656},
          {"num_hidden_layers", 16},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 8},
          {"full_attn_idxs", {2, 5, 8, 10, 12, 14}},
          {"conv_L_cache", 3},
          {"max_position_embeddings", 128000},
          {"norm_eps", 1e-5},
          {"rope_theta", 1000000},
          {"bos_token_id", 1},
          {"eos_token_id", 7}};
}

nlohmann::json Qwen35Small() {
  return {{"architectures", {"Qwen3_5ForCausalLM"}},
          {"model_type", "qwen3_5_text"},
          {"hidden_act", "silu"},
          {"vocab_size", 248320},
          {"hidden_size", 1024},
          {"intermediate_size", 3584},
          {"num_hidden_layers", 24},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"head_dim", 256},
          {"full_attention_interval", 4},
          {"linear_conv_kernel_dim", 4},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"linear_num_key_heads", 16},
          {"linear_num_value_heads", 16},
          {"max_position_embeddings", 262144},
          {"rms_norm_eps", 1e-6},
          {"rope_parameters",
           {{"rope_type", "default"}, {"rope_theta", 10000000}, {"partial_rotary_factor", 0.25}}},
          {"tie_word_embeddings", true},
          {"eos_token_id", 248044}};
}

// BAAI/bge-small-en-v1.5.
nlohmann::json BgeSmall() {
  return {{"architectures", {"BertModel"}},
          {"model_type", "bert"},
          {"hidden_act", "gelu"},
          {"vocab_size", 30522},
          {"hidden_size", 384},
          {"intermediate_size", 1536},
          {"num_hidden_layers", 12},
          {"num_attention_heads", 12},
          {"max_position_embeddings", 512},
          {"type_vocab_size", 2},
          {"layer_norm_eps", 1e-12},
          {"position_embedding_type", "absolute"},
          {"pad_token_id", 0}};
}

nlohmann::json ModernBertBase() {
  return {{"architectures", {"ModernBertModel"}},
          {"model_type", "modernbert"},
          {"hidden_activation", "gelu"},
          {"vocab_size", 50368},
          {"hidden_size", 768},
          {"intermediate_size", 1152},
          {"num_hidden_layers", 22},
          {"num_attention_heads", 12},
          {"max_position_embeddings", 8192},
          {"local_attention", 128},
          {"global_attn_every_n_layers", 3},
          {"global_rope_theta", 160000},
          {"local_rope_theta", 10000},
          {"norm_eps", 1e-5},
          {"norm_bias", false},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"pad_token_id", 50283}};
}

}  // namespace

absl::StatusOr<std::string> ConfigOfShape(const std::string& shape) {
  const std::pair<const char*, nlohmann::json> shapes[] = {
      {"qwen3-0.6b", Qwen3Small()},
      {"llama-3.2-1b", Llama3(true)},
      {"llama-3.1-8b", Llama3(false)},
      {"qwen3-30b-a3b", Qwen3Experts()},
      {"mixtral-8x7b", Mixtral()},
      {"gemma-2-2b", Gemma2()},
      {"phi-3-mini", Phi3()},
      {"lfm2-350m", Lfm2()},
      {"qwen3.5-0.8b", Qwen35Small()},
      {"bge-small", BgeSmall()},
      {"modernbert-base", ModernBertBase()},
  };
  std::string known;
  for (const auto& [name, config] : shapes) {
    if (shape == name) return config.dump(2);
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(absl::StrCat("shape is \"", shape, "\"; known are ", known));
}

}  // namespace continuo::model
