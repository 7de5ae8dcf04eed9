// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/known_keys.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "services/worker/gguf/absl_view.h"

namespace continuo::gguf {
namespace {

// Keys that are read otherwise, or say nothing that the other ones do not.
constexpr std::string_view kOtherKeys[] = {
    "vocab_size",
    "pooling_type",
    "attention.value_length",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.causal",
    "expert_gating_func",
    "rope.dimension_count",
    "rope.dimension_sections",  // of positions of images; those of text are one number
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.alpha",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    "rope.freq_base_swa",
    "attention.temperature_scale",
    "attention.sliding_window_pattern",
    "attention.recurrent_layers",
    "moe_latent_size",
    "interleave_moe_layer_step",
    "attention.shared_kv_layers",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count_swa",
    "embedding_length_per_layer_input",
    "rope.scaling.finetuned",
    "rope.scale_linear",
};

constexpr std::string_view kWithStates =
    "qwen35 qwen35moe qwen3next granitehybrid nemotron_h nemotron_h_moe mamba2";

// Keys that some architectures alone have; of the others they are not known.
constexpr std::pair<std::string_view, std::string_view> kOwnKeys[] = {
    {"attention.scale", "granite granitemoe granitehybrid"},
    {"embedding_scale", "granite granitemoe granitehybrid minicpm"},
    {"residual_scale", "granite granitemoe granitehybrid minicpm"},
    {"logit_scale", "granite granitemoe granitehybrid minicpm cohere2"},
    {"attention.layer_norm_epsilon", "cohere2 starcoder2 nemotron_h nemotron_h_moe"},
    {"attention.temperature_scale", "mistral3"},
    {"attention.sliding_window_pattern", "gemma3 gemma4 olmo2 cohere2 exaone4"},
    {"rope.freq_base_swa", "gemma3 gemma4 olmo2 cohere2 exaone4"},
    {"rope.scaling.alpha", "hunyuan-dense"},
    {"rope.scaling.yarn_log_multiplier", "mistral3 deepseek2"},
    {"expert_shared_feed_forward_length",
     "qwen2moe qwen35moe qwen3next granitemoe granitehybrid nemotron_h_moe"},
    {"rope.dimension_sections", "qwen35 qwen35moe"},
    {"full_attention_interval", "qwen35 qwen35moe qwen3next"},
    {"attention.recurrent_layers", "qwen35 qwen35moe qwen3next"},
    {"ssm.conv_kernel", kWithStates},
    {"ssm.state_size", kWithStates},
    {"ssm.group_count", kWithStates},
    {"ssm.time_step_rank", kWithStates},
    {"ssm.inner_size", kWithStates},
    {"moe_latent_size", "nemotron_h_moe"},
    {"interleave_moe_layer_step", "llama4"},
    {"attention.shared_kv_layers", "gemma4"},
    {"attention.key_length_swa", "gemma4"},
    {"attention.value_length_swa", "gemma4"},
    {"rope.dimension_count_swa", "gemma4"},
    {"embedding_length_per_layer_input", "gemma4"},
    {"expert_shared_count", "glm4moe deepseek2 nemotron_h_moe"},
    {"expert_group_count", "glm4moe deepseek2 nemotron_h_moe"},
    {"expert_group_used_count", "glm4moe deepseek2 nemotron_h_moe"},
    {"expert_weights_norm", "qwen2moe qwen3moe qwen3next olmoe glm4moe deepseek2 nemotron_h_moe"},
    {"expert_weights_scale", "glm4moe deepseek2 nemotron_h_moe"},
    {"expert_gating_func", "glm4moe deepseek2 lfm2moe"},
    {"leading_dense_block_count", "glm4moe deepseek2 lfm2moe"},
    {"shortconv.l_cache", "lfm2 lfm2moe"},
    {"nextn_predict_layers", "glm4moe qwen35 qwen35moe qwen3next nemotron_h_moe"},
    {"attention.q_lora_rank", "deepseek2"},
    {"attention.kv_lora_rank", "deepseek2"},
    {"attention.key_length_mla", "deepseek2"},
    {"attention.value_length_mla", "deepseek2"},
};

}  // namespace

bool IsOtherKey(std::string_view key) {
  return std::ranges::find(kOtherKeys, key) != std::end(kOtherKeys);
}

bool MayHave(std::string_view architecture, std::string_view key) {
  for (const auto& [own, architectures] : kOwnKeys) {
    if (own != key) continue;
    const std::vector<std::string> names = absl::StrSplit(Absl(architectures), ' ');
    return std::ranges::find(names, architecture) != names.end();
  }
  return true;
}

}  // namespace continuo::gguf
