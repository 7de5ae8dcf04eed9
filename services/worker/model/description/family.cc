// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/family.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace continuo::model {
namespace {

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .title = "Llama 2 and 3",
     .context_length = 2048,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"}},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .title = "Mistral, Mistral Small 3",
     .context_length = 131072,
     .window_rule = WindowRule::kAll,
     .sliding_window = 4096},
    {.architecture = "MinistralForCausalLM",
     .model_type = "ministral",
     .title = "Ministral",
     .context_length = 131072,
     .window_rule = WindowRule::kAll,
     .sliding_window = 4096},
    {.architecture = "Ministral3ForCausalLM",
     .model_type = "ministral3",
     .title = "Ministral 3",
     .context_length = 262144,
     .head_dim = 128,
     .eps = 1e-5,
     .window_rule = WindowRule::kAll},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .title = "Mixtral",
     .context_length = 131072,
     .names = WeightNames::kMixtral,
     .eps = 1e-5,
     .window_rule = WindowRule::kAll,
     .rope_theta = 1e6,
     .num_experts_field = "num_local_experts"},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .title = "Qwen2",
     .context_length = 32768,
     .window_rule = WindowRule::kByLayer,
     .sliding_window = 4096,
     .qkv_bias = {.fallback = true}},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .title = "Qwen3",
     .context_length = 32768,
     .head_dim = 128,
     .window_rule = WindowRule::kByLayer,
     .sliding_window = 4096,
     .qk_norm = QueryKeyNorm::kHeads,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"}},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .title = "Qwen3-MoE",
     .context_length = 32768,
     .window_rule = WindowRule::kSwitched,
     .sliding_window = 4096,
     .qk_norm = QueryKeyNorm::kHeads,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .num_experts_field = "num_experts"},
    {.architecture = "GemmaForCausalLM",
     .model_type = "gemma",
     .title = "Gemma",
     .context_length = 8192,
     .head_dim = 256,
     .tied_embeddings = true,
     .gains_less_one = true,
     .activation = Activation::kGeluTanh,
     .multipliers = Multipliers::kGemma},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .title = "Gemma 2",
     .context_length = 8192,
     .head_dim = 256,
     .tied_embeddings = true,
     .gains_less_one = true,
     .output_norms = true,
     .window_rule = WindowRule::kPeriodic,
     .sliding_window = 4096,
     .window_period = 2,
     .activation_field = "hidden_activation",
     .activation = Activation::kGeluTanh,
     .multipliers = Multipliers::kGemma,
     .soft_caps = true,
     .attention_softcap = 50,
     .final_softcap = 30},
    {.architecture = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .title = "Gemma 3",
     .context_length = 131072,
     .vocab_size = 262208,
     .num_heads = 8,
     .num_kv_heads = 4,
     .head_dim = 256,
     .tied_embeddings = true,
     .gains_less_one = true,
     .output_norms = true,
     .window_rule = WindowRule::kPeriodic,
     .sliding_window = 4096,
     .window_period = 6,
     .rope_theta = 1e6,
     .local_rope_theta = 1e4,
     .states_scaled_context = true,
     .qk_norm = QueryKeyNorm::kHeads,
     .activation_field = "hidden_activation",
     .activation = Activation::kGeluTanh,
     .multipliers = Multipliers::kGemma,
     .soft_caps = true},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .title = "Phi-3, Phi-4",
     .context_length = 4096,
     .names = WeightNames::kFused,
     .eps = 1e-5,
     .window_rule = WindowRule::kAll,
     .partial_rotary = true},
    {.architecture = "GraniteForCausalLM",
     .model_type = "granite",
     .title = "Granite 3",
     .context_length = 2048,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .multipliers = Multipliers::kGranite},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .title = "SmolLM3",
     .context_length = 32768,
     .num_kv_heads = 4,
     .tied_embeddings = true,
     .window_rule = WindowRule::kWithoutRope,
     .rope_scope = RopeScope::kListed,
     .rope_theta = 2e6,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"}},
    {.architecture = "SeedOssForCausalLM",
     .model_type = "seed_oss",
     .title = "Seed-OSS",
     .context_length = 524288,
     .head_dim = 128,
     .qkv_bias = {.name = "attention_bias", .fallback = true},
     .output_bias = {"attention_out_bias"},
     .mlp_bias = {"mlp_bias"}},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .title = "OLMo 2",
     .context_length = 2048,
     .eps = 1e-5,
     .input_norms = false,
     .output_norms = true,
     .qk_norm = QueryKeyNorm::kWidth,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"}},
    {.architecture = "Olmo3ForCausalLM",
     .model_type = "olmo3",
     .title = "OLMo 3",
     .context_length = 2048,
     .eps = 1e-5,
     .input_norms = false,
     .output_norms = true,
     .window_rule = WindowRule::kPeriodic,
     .sliding_window = 4096,
     .window_period = 4,
     .rope_theta = 5e5,
     .scales_full_rope_only = true,
     .qk_norm = QueryKeyNorm::kWidth,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"}},
    {.architecture = "GlmForCausalLM",
     .model_type = "glm",
     .title = "GLM-4 of 2024",
     .context_length = 131072,
     .head_dim = 128,
     .names = WeightNames::kGlm,
     .eps = 1.5625e-7,
     .partial_rotary = true,
     .rotary_factor = 0.5,
     .interleaved_rope = true,
     .qkv_bias = {.name = "attention_bias", .fallback = true}},
    {.architecture = "Glm4ForCausalLM",
     .model_type = "glm4",
     .title = "GLM-4",
     .context_length = 131072,
     .num_kv_heads = 2,
     .head_dim = 128,
     .names = WeightNames::kGlm,
     .eps = 1.5625e-7,
     .output_norms = true,
     .partial_rotary = true,
     .rotary_factor = 0.5,
     .interleaved_rope = true,
     .qkv_bias = {.name = "attention_bias", .fallback = true}},
    {.architecture = "Cohere2ForCausalLM",
     .model_type = "cohere2",
     .title = "Command R7B, Command A (Cohere 2)",
     .context_length = 8192,
     .tied_embeddings = true,
     .norm = NormKind::kLayer,
     .eps_field = "layer_norm_eps",
     .eps = 1e-5,
     .parallel = true,
     .window_rule = WindowRule::kPeriodic,
     .sliding_window = 4096,
     .window_period = 4,
     .rope_scope = RopeScope::kWindowedOnly,
     .interleaved_rope = true,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .multipliers = Multipliers::kCohere,
     .expected = R"({"use_qk_norm": false, "use_parallel_block": true, "rotary_pct": 1.0,
                     "use_gated_activation": true, "position_embedding_type": "rope_gptj",
                     "order_of_interleaved_layers": "local_attn_first"})",
     .ignored = "layer_switch use_parallel_embedding use_embedding_sharing"},
    {.architecture = "Exaone4ForCausalLM",
     .model_type = "exaone4",
     .title = "EXAONE 4",
     .context_length = 2048,
     .eps = 1e-5,
     .input_norms = false,
     .output_norms = true,
     .window_rule = WindowRule::kPeriodic,
     .sliding_window = 4096,
     .window_period = 4,
     .rope_scope = RopeScope::kWindowed,
     .qk_norm = QueryKeyNorm::kHeads,
     .expected = R"({"reorder_and_qk_norm": true, "use_post_layernorm": true})"},
    {.architecture = "Ernie4_5ForCausalLM",
     .model_type = "ernie4_5",
     .title = "ERNIE 4.5",
     .context_length = 131072,
     .head_dim = 128,
     .tied_embeddings = true,
     .eps = 1e-5,
     .rope_theta = 5e5,
     .interleaved_rope = true,
     .qkv_bias = {"use_bias"},
     .output_bias = {"use_bias"},
     .mlp_bias = {"use_bias"}},
    {.architecture = "HunYuanDenseV1ForCausalLM",
     .model_type = "hunyuan_v1_dense",
     .title = "Hunyuan (dense)",
     .context_length = 2048,
     .names = WeightNames::kHunYuan,
     .eps = 1e-5,
     .qk_norm = QueryKeyNorm::kRotatedHeads,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .expected = R"({"use_qk_norm": true, "use_rotary_pos_emb": true, "norm_type": "rms",
                     "num_experts": 1})",
     .ignored =
         "attention_head_dim cla_share_factor class_num pool_type mask_init_id org_vocab_size "
         "dense_list num_media_embeds moe_topk max_seq_length"},
    {.architecture = "InternLM2ForCausalLM",
     .model_type = "internlm2",
     .title = "InternLM2",
     .context_length = 2048,
     .names = WeightNames::kInternLm2,
     .qkv_bias = {"bias"},
     .output_bias = {"bias"}},
    {.architecture = "InternLM3ForCausalLM",
     .model_type = "internlm3",
     .title = "InternLM3",
     .context_length = 32768,
     .num_kv_heads = 2,
     .head_dim = 128,
     .eps = 1e-5,
     .qkv_bias = {"qkv_bias", "attention_bias"},
     .output_bias = {"bias", "attention_bias"},
     .mlp_bias = {"bias", "mlp_bias"}},
    {.architecture = "MiniCPMForCausalLM",
     .model_type = "minicpm",
     .title = "MiniCPM",
     .context_length = 2048,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .multipliers = Multipliers::kMiniCpm,
     .ignored = "mup_denominator"},
    {.architecture = "Starcoder2ForCausalLM",
     .model_type = "starcoder2",
     .title = "StarCoder2",
     .context_length = 4096,
     .num_kv_heads = 2,
     .tied_embeddings = true,
     .names = WeightNames::kStarCoder,
     .norm = NormKind::kLayer,
     .eps_field = "norm_epsilon",
     .eps = 1e-5,
     .norm_bias = true,
     .window_rule = WindowRule::kAll,
     .qkv_bias = {.name = "use_bias", .fallback = true},
     .output_bias = {.name = "use_bias", .fallback = true},
     .activation = Activation::kGeluTanh,
     .gated = false,
     .mlp_bias = {.name = "use_bias", .fallback = true},
     .expected = R"({"mlp_type": "default", "norm_type": "layer_norm"})"},
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

const Family* FindArchitecture(std::string_view architecture) {
  const auto it = std::ranges::find(kFamilies, architecture, &Family::architecture);
  return it == std::end(kFamilies) ? nullptr : it;
}

bool HasTextPart(JsonObject& json) {
  constexpr std::string_view kEnd = "ForConditionalGeneration";
  if (!json.Raw("text_config").is_object()) return false;
  const std::vector<std::string> names = Architectures(json);
  return std::ranges::any_of(names, [&](const std::string& n) { return n.ends_with(kEnd); });
}

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

}  // namespace continuo::model
