// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/part_names.h"

#include <span>
#include <utility>

namespace continuo::gguf {
namespace {

// Names outside of layers, and those of the parts of a layer (llama.cpp's gguf-py, constants.py and
// tensor_mapping.py).
constexpr std::pair<std::string_view, std::string_view> kOutside[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output_norm.bias", "model.norm.bias"},
    {"token_embd_norm.weight", "model.embedding_norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
};
// The names that differ in models whose layers have one part.
constexpr std::pair<std::string_view, std::string_view> kMixerOutside[] = {
    {"token_embd.weight", "model.embeddings.weight"},
    {"output_norm.weight", "model.norm_f.weight"},
};
constexpr std::pair<std::string_view, std::string_view> kParts[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
};
constexpr std::pair<std::string_view, std::string_view> kGemmaParts[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr std::pair<std::string_view, std::string_view> kGemma4Parts[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
};
constexpr std::pair<std::string_view, std::string_view> kGemma4WholeParts[] = {
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"layer_output_scale.weight", "layer_scalar"},
};
constexpr std::pair<std::string_view, std::string_view> kGlmParts[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
};
// In these models post_attention_norm stands before the MLP.
constexpr std::pair<std::string_view, std::string_view> kSeedParts[] = {
    {"post_attention_norm", "post_attention_layernorm"},
};
constexpr std::pair<std::string_view, std::string_view> kGptOssParts[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},
};
constexpr std::pair<std::string_view, std::string_view> kGlmMoeParts[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kDeepSeekParts[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kQwenMoeParts[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kGraniteMoeParts[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_shexp", "shared_mlp.gate_proj"},
    {"ffn_up_shexp", "shared_mlp.up_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
};
constexpr std::pair<std::string_view, std::string_view> kLfm2Parts[] = {
    {"attn_norm", "operator_norm"},
    {"ffn_norm", "ffn_norm"},
    {"attn_output", "self_attn.out_proj"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
    {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"},
    {"ffn_gate_inp", "feed_forward.gate"},
    {"shortconv.conv", "conv.conv"},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.out_proj", "conv.out_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kQwen35Parts[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_qkv", "linear_attn.in_proj_qkv"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_out", "linear_attn.out_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kMixerParts[] = {
    {"attn_norm", "norm"},
    {"attn_q", "mixer.q_proj"},
    {"attn_k", "mixer.k_proj"},
    {"attn_v", "mixer.v_proj"},
    {"attn_output", "mixer.o_proj"},
    {"ffn_up", "mixer.up_proj"},
    {"ffn_down", "mixer.down_proj"},
    {"ffn_gate_inp", "mixer.gate"},
    {"ffn_latent_down", "mixer.fc1_latent_proj"},
    {"ffn_latent_up", "mixer.fc2_latent_proj"},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d"},
    {"ssm_norm", "mixer.norm"},
    {"ssm_out", "mixer.out_proj"},
};
// Parts of a module for multi-token prediction that are no layer's.
constexpr std::pair<std::string_view, std::string_view> kMtpParts[] = {
    {"eh_proj", "fc"},
    {"enorm", "pre_fc_norm_embedding"},
    {"hnorm", "pre_fc_norm_hidden"},
    {"shared_head_norm", "norm"},
};
constexpr std::pair<std::string_view, std::string_view> kHybridParts[] = {
    {"ffn_gate", "shared_mlp.gate_proj"},
    {"ffn_up", "shared_mlp.up_proj"},
    {"ffn_down", "shared_mlp.output_linear"},
    {"ffn_gate_shexp", "shared_mlp.gate_proj"},
    {"ffn_up_shexp", "shared_mlp.up_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d"},
    {"ssm_norm", "mamba.norm"},
    {"ssm_out", "mamba.out_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kLlama4Parts[] = {
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kLfm2WholeParts[] = {
    {"exp_probs_b.bias", "feed_forward.expert_bias"},
};
// Tensors whose names have no ending in Hugging Face's files.
constexpr std::pair<std::string_view, std::string_view> kWholeParts[] = {
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_a", "linear_attn.A_log"},
};
constexpr std::pair<std::string_view, std::string_view> kMixerWholeParts[] = {
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
    {"ssm_dt.bias", "mixer.dt_bias"},
    {"ssm_a", "mixer.A_log"},
    {"ssm_d", "mixer.D"},
};
constexpr std::pair<std::string_view, std::string_view> kHybridWholeParts[] = {
    {"ssm_dt.bias", "mamba.dt_bias"},
    {"ssm_a", "mamba.A_log"},
    {"ssm_d", "mamba.D"},
};
constexpr std::pair<std::string_view, std::string_view> kHunYuanParts[] = {
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
};
constexpr std::pair<std::string_view, std::string_view> kStarCoderParts[] = {
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kMixtralParts[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
};
constexpr std::pair<std::string_view, std::string_view> kPhiParts[] = {
    {"ffn_up", "mlp.gate_up_proj"},
};
using Pairs = std::span<const std::pair<std::string_view, std::string_view>>;

std::string_view Lookup(Pairs pairs, std::string_view name) {
  for (const auto& [from, to] : pairs) {
    if (from == name) return to;
  }
  return {};
}

Pairs PartsOf(const Architecture& architecture) {
  constexpr std::pair<std::string_view, Pairs> kOwnParts[] = {{"gemma2", kGemmaParts},
                                                              {"gemma3", kGemmaParts},
                                                              {"gemma4", kGemma4Parts},
                                                              {"phi3", kPhiParts},
                                                              {"olmo2", kGemmaParts},
                                                              {"exaone4", kGemmaParts},
                                                              {"glm4", kGlmParts},
                                                              {"seed_oss", kSeedParts},
                                                              {"hunyuan-dense", kHunYuanParts},
                                                              {"starcoder2", kStarCoderParts},
                                                              {"gpt-oss", kGptOssParts},
                                                              {"llama4", kLlama4Parts},
                                                              {"glm4moe", kGlmMoeParts},
                                                              {"deepseek2", kDeepSeekParts},
                                                              {"qwen2moe", kQwenMoeParts},
                                                              {"granitemoe", kGraniteMoeParts},
                                                              {"qwen35", kQwen35Parts},
                                                              {"qwen35moe", kQwen35Parts},
                                                              {"qwen3next", kQwen35Parts},
                                                              {"lfm2", kLfm2Parts},
                                                              {"lfm2moe", kLfm2Parts},
                                                              {"granitehybrid", kHybridParts},
                                                              {"nemotron_h", kMixerParts},
                                                              {"nemotron_h_moe", kMixerParts},
                                                              {"mamba2", kMixerParts}};
  for (const auto& [name, parts] : kOwnParts) {
    if (architecture.name == name) return parts;
  }
  if (architecture.hugging_face == "MixtralForCausalLM") return kMixtralParts;
  return {};
}

Pairs WholePartsOf(const Architecture& architecture) {
  if (architecture.name.starts_with("lfm2")) return kLfm2WholeParts;
  if (architecture.name == "granitehybrid") return kHybridWholeParts;
  if (architecture.name == "gemma4") return kGemma4WholeParts;
  return HasMixers(architecture) ? Pairs(kMixerWholeParts) : Pairs(kWholeParts);
}

}  // namespace

bool HasMixers(const Architecture& architecture) {
  return architecture.name == "mamba2" || architecture.name.starts_with("nemotron_h");
}

std::string_view NameOutside(const Architecture& architecture, std::string_view name) {
  std::string_view outside;
  if (HasMixers(architecture)) outside = Lookup(kMixerOutside, name);
  return outside.empty() ? Lookup(kOutside, name) : outside;
}

std::string_view NameOfPart(const Architecture& architecture, std::string_view own) {
  const std::string_view part = Lookup(PartsOf(architecture), own);
  return part.empty() ? Lookup(kParts, own) : part;
}

std::string_view NameOfWholePart(const Architecture& architecture, std::string_view own) {
  return Lookup(WholePartsOf(architecture), own);
}

std::string_view NameOfMtpPart(std::string_view own) { return Lookup(kMtpParts, own); }

}  // namespace continuo::gguf
