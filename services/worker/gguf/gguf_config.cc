// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "services/base/status_macros.h"
#include "services/worker/gguf/absl_view.h"
#include "services/worker/gguf/config_parts.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/gguf/known_keys.h"

namespace continuo::gguf {
namespace {

using Json = nlohmann::ordered_json;

// Keys below the architecture's name and the fields of config.json that have their values.
constexpr std::pair<std::string_view, const char*> kFields[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {"expert_count", nullptr},  // its field depends on the family
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", nullptr},  // likewise
    {"shortconv.l_cache", "conv_L_cache"},
    {"full_attention_interval", "full_attention_interval"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {"ssm.inner_size", nullptr},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.layer_norm_epsilon", nullptr},
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", nullptr},
    {"residual_scale", nullptr},
    {"logit_scale", nullptr},
};

// The fields of the number of experts, where it is not num_experts.
constexpr std::pair<std::string_view, const char*> kExpertCounts[] = {
    {"llama", "num_local_experts"},         {"granitemoe", "num_local_experts"},
    {"gpt-oss", "num_local_experts"},       {"glm4moe", "n_routed_experts"},
    {"deepseek2", "n_routed_experts"},      {"nemotron_h_moe", "n_routed_experts"},
    {"granitehybrid", "num_local_experts"}, {"llama4", "num_local_experts"},
};

// Keys of general.sampling and the fields of generation_config.json that have their values.
constexpr std::pair<const char*, const char*> kSampling[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"},
};

// True for keys that models with Mamba-2's states have for each layer, or by names of their own.
bool IsOfLayers(std::string_view key) {
  return key == "attention.head_count" || key == "attention.head_count_kv" ||
         key == "feed_forward_length" || key.starts_with("ssm.");
}

Json JsonOf(const Value& value) {
  return std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::vector<std::string_view>>) {
          return Json("a list of strings");  // no field takes one
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return Json(std::string(v));
        } else {
          return Json(v);
        }
      },
      value);
}

class ConfigConverter {
 public:
  ConfigConverter(const GgufFile& file, const Architecture& architecture)
      : file_(file), architecture_(architecture), prefix_(Key("")) {}

  absl::StatusOr<ConfigTexts> Convert() {
    RETURN_IF_ERROR(CheckKeys());
    json_["architectures"] = Json::array({std::string(architecture_.hugging_face)});
    for (const auto& [key, field] : kFields) {
      const Value* const value = file_.Find(Key(key));
      if (value == nullptr || field == nullptr) continue;
      if (is_lfm2() && key == "attention.head_count_kv") continue;
      if (HasStateSpace(architecture_) && IsOfLayers(key)) continue;
      if (HasLayerShapes(architecture_) && IsOfLayerShapes(key)) continue;
      ASSIGN_OR_RETURN(json_[field], Scalar(key, *value));
    }
    AddVocabulary();
    RETURN_IF_ERROR(AddFamily());
    if (HasLayerShapes(architecture_)) {
      RETURN_IF_ERROR(AddLayerShapes(file_, architecture_, json_));
    } else {
      RETURN_IF_ERROR(AddRope());
    }
    ConfigTexts texts;
    // Names of tensors and keys of hostile files may be no UTF-8.
    constexpr auto kReplace = Json::error_handler_t::replace;
    texts.config = json_.dump(-1, ' ', false, kReplace);
    texts.generation_config = GenerationConfig().dump(-1, ' ', false, kReplace);
    return texts;
  }

 private:
  std::string Key(std::string_view key) const {
    return absl::StrCat(Absl(architecture_.name), ".", Absl(key));
  }
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::UnimplementedError(absl::StrCat(file_.name(), ": ", parts...));
  }

  absl::Status CheckKeys() const {
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name = key.substr(prefix_.size());
      const bool is_known =
          std::ranges::any_of(kFields, [&](const auto& field) { return field.first == name; }) ||
          IsOtherKey(name);
      if (!is_known || !MayHave(architecture_.name, name)) {
        return Error("the key ", Absl(key.substr(0, 200)),
                     " is not known, and it may change the answer");
      }
    }
    if (!file_.Flag(Key("attention.causal")).value_or(true)) {
      return Error("attention is not causal (", Key("attention.causal"), ")");
    }
    const std::optional<int64_t> keys = file_.Whole(Key("attention.key_length"));
    const std::optional<int64_t> values = file_.Whole(Key("attention.value_length"));
    const bool is_latent = architecture_.name == "deepseek2";
    if (values.has_value() && keys.has_value() && values != keys && !is_latent) {
      return Error("keys of ", *keys, " and values of ", *values, " elements are not supported");
    }
    return absl::OkStatus();
  }

  // One number, or a list with the same number for every layer.
  absl::StatusOr<Json> Scalar(std::string_view key, const Value& value) const {
    const auto* const list = std::get_if<std::vector<double>>(&value);
    if (list == nullptr) return JsonOf(value);
    if (list->empty() || std::ranges::any_of(*list, [&](double n) { return n != list->front(); })) {
      return Error(Key(key), " differs between layers, which is not supported");
    }
    return Json(list->front());
  }

  void AddVocabulary() {
    const Tensor* const embedding = file_.FindTensor("token_embd.weight");
    if (embedding != nullptr) json_["vocab_size"] = embedding->shape.front();
    json_["tie_word_embeddings"] = file_.FindTensor("output.weight") == nullptr;
  }

  bool HasTensor(std::string_view end) const {
    return std::ranges::any_of(file_.tensors(),
                               [&](const Tensor& t) { return t.name.ends_with(end); });
  }

  absl::Status AddFamily() {
    AddBiases();
    RETURN_IF_ERROR(AddExperts());
    if (architecture_.name == "deepseek2") RETURN_IF_ERROR(AddLatent());
    if (is_lfm2()) RETURN_IF_ERROR(AddConvolutions());
    if (HasStateSpace(architecture_)) {
      RETURN_IF_ERROR(AddStateSpace(file_, architecture_, json_));
    } else if (const std::optional<int64_t> inner = file_.Whole(Key("ssm.inner_size"))) {
      const int64_t heads = file_.Whole(Key("ssm.time_step_rank")).value_or(0);
      if (heads < 1 || *inner % heads != 0) {
        return Error(Key("ssm.inner_size"), " must be a multiple of ", Key("ssm.time_step_rank"));
      }
      json_["linear_value_head_dim"] = *inner / heads;
      RETURN_IF_ERROR(AddRecurrentLayers());
    }
    AddMultipliers();
    RETURN_IF_ERROR(AddWindows());
    if (architecture_.name == "gemma2" || architecture_.name == "gemma3") {
      json_["hidden_activation"] = "gelu_pytorch_tanh";
      // Files do not have query_pre_attn_scalar: it is head_dim, but of the models of 27B, which
      // have 46 and 62 layers, hidden_size / num_attention_heads.
      const int64_t heads = file_.Whole(Key("attention.head_count")).value_or(0);
      const int64_t layers = architecture_.name == "gemma2" ? 46 : 62;
      const bool is_27b = file_.Whole(Key("block_count")) == layers && heads > 0;
      json_["query_pre_attn_scalar"] =
          is_27b ? file_.Whole(Key("embedding_length")).value_or(0) / heads
                 : file_.Whole(Key("attention.key_length")).value_or(256);
    }
    return absl::OkStatus();
  }

  // Reads which blocks have a state; those that predict further tokens are listed, too. Files
  // without this key have the interval.
  absl::Status AddRecurrentLayers() {
    constexpr std::string_view kKey = "attention.recurrent_layers";
    const Value* const value = file_.Find(Key(kKey));
    if (value == nullptr) return absl::OkStatus();
    const auto* const list = std::get_if<std::vector<double>>(value);
    const int64_t layers = file_.Whole(Key("block_count")).value_or(-1) -
                           file_.Whole(Key("nextn_predict_layers")).value_or(0);
    if (list == nullptr || layers < 0 || layers > static_cast<int64_t>(list->size())) {
      return Error(Key(kKey), " must have an entry for each block");
    }
    Json types = Json::array();
    for (const double has_state : std::span(*list).first(static_cast<size_t>(layers))) {
      types.push_back(has_state != 0 ? "linear_attention" : "full_attention");
    }
    json_["layer_types"] = std::move(types);
    return absl::OkStatus();
  }

  absl::Status AddExperts() {
    const std::string_view name = architecture_.name;
    if (const std::optional<int64_t> experts = file_.Whole(Key("expert_count"))) {
      const auto* const field =
          std::ranges::find(kExpertCounts, name, [](const auto& count) { return count.first; });
      json_[field == std::end(kExpertCounts) ? "num_experts" : field->second] = *experts;
    }
    if (const std::optional<int64_t> dense = file_.Whole(Key("leading_dense_block_count"))) {
      json_[name == "lfm2moe" ? "num_dense_layers" : "first_k_dense_replace"] = *dense;
    }
    // All models of a family have the same values of what files do not say.
    if (name == "qwen3moe" && !json_.contains("norm_topk_prob")) json_["norm_topk_prob"] = true;
    const Json size = json_.value("moe_intermediate_size", Json());
    if (!json_.contains("intermediate_size") && !size.is_null()) json_["intermediate_size"] = size;
    if (name == "granitemoe" && json_.contains("shared_expert_intermediate_size")) {
      json_["shared_intermediate_size"] = json_["shared_expert_intermediate_size"];
      json_.erase("shared_expert_intermediate_size");
    }
    if (name == "gpt-oss") {
      // Its field is that of dense layers.
      if (!size.is_null()) json_["intermediate_size"] = size;
      json_.erase("moe_intermediate_size");
    }
    if (name == "llama4") AddLlama4(size);
    if (name == "glm4moe") {
      const int64_t gating = file_.Whole(Key("expert_gating_func")).value_or(kSigmoidGating);
      if (gating != kSigmoidGating) return Error(Key("expert_gating_func"), " must be 2");
      json_["use_qk_norm"] = HasTensor("attn_q_norm.weight");
    }
    if (const std::optional<int64_t> more = file_.Whole(Key("nextn_predict_layers"))) {
      // The blocks include those that predict further tokens.
      const int64_t blocks = file_.Whole(Key("block_count")).value_or(0);
      if (*more < 0 || *more > blocks) {
        return Error(Key("nextn_predict_layers"), " must be from 0 to ", Key("block_count"));
      }
      json_["num_hidden_layers"] = blocks - *more;
    }
    return absl::OkStatus();
  }

  // Files do not say what all models of the family share, chunks of 8,192 tokens in three of four
  // layers, nor that the one with 128 experts has no norms of queries and keys (llama.cpp's
  // llama-model.cpp). A sliding_window of 0 means that no layer has chunks and all are rotated.
  void AddLlama4(const Json& expert_size) {
    json_["intermediate_size_mlp"] = json_.value("intermediate_size", Json());
    json_["intermediate_size"] = expert_size;
    json_.erase("moe_intermediate_size");
    if (const Value* step = file_.Find(Key("interleave_moe_layer_step"))) {
      json_["interleave_moe_layer_step"] = JsonOf(*step);
    }
    json_["use_qk_norm"] = file_.Whole(Key("expert_count")) != 128;
    const std::optional<int64_t> chunk = file_.Whole(Key("attention.sliding_window"));
    json_.erase("sliding_window");
    if (!chunk.has_value()) return;
    constexpr int64_t kMostLayers = 1024;  // more are refused later
    const int64_t layers = file_.Whole(Key("block_count")).value_or(0);
    if (*chunk == 0 && layers >= 1 && layers <= kMostLayers) {
      json_["attention_chunk_size"] = nullptr;
      json_["no_rope_layers"] = std::vector<int>(static_cast<size_t>(layers), 1);
    } else {
      json_["attention_chunk_size"] = *chunk;
    }
  }

  bool is_lfm2() const { return architecture_.name == "lfm2" || architecture_.name == "lfm2moe"; }

  // Layers without KV heads have a short convolution.
  static constexpr int kMaxHeads = 1024;
  absl::Status AddConvolutions() {
    const Value* const heads = file_.Find(Key("attention.head_count_kv"));
    const auto* const list = heads == nullptr ? nullptr : std::get_if<std::vector<double>>(heads);
    const int64_t layers = file_.Whole(Key("block_count")).value_or(0);
    if (list == nullptr || static_cast<int64_t>(list->size()) != layers) {
      return Error(Key("attention.head_count_kv"), " must have a number for each of ", layers,
                   " layers");
    }
    double of_attention = 0;
    Json types = Json::array();
    for (const double n : *list) {
      if (!(n >= 0 && n <= kMaxHeads) || n != std::floor(n)) {
        return Error(Key("attention.head_count_kv"), " must be whole numbers up to ", kMaxHeads);
      }
      types.push_back(n == 0 ? "conv" : "full_attention");
      if (n == 0) continue;
      if (of_attention != 0 && n != of_attention) {
        return Error(Key("attention.head_count_kv"), " differs between layers with attention");
      }
      of_attention = n;
    }
    json_["layer_types"] = std::move(types);
    if (of_attention != 0) json_["num_key_value_heads"] = of_attention;
    json_["norm_eps"] = json_["rms_norm_eps"];
    json_.erase("rms_norm_eps");
    if (architecture_.name == "lfm2") {
      json_["block_auto_adjust_ff_dim"] = false;  // feed_forward_length is what there is
    } else if (file_.Whole(Key("expert_gating_func")).value_or(kSigmoidGating) != kSigmoidGating) {
      return Error(Key("expert_gating_func"), " must be 2");
    }
    return absl::OkStatus();
  }

  // Sizes of latent vectors, and how experts are chosen.
  absl::Status AddLatent() {
    const int64_t gating = file_.Whole(Key("expert_gating_func")).value_or(kSoftmaxGating);
    if (gating != kSoftmaxGating && gating != kSigmoidGating) {
      return Error(Key("expert_gating_func"), " ", gating, " is not known; known are 1 and 2");
    }
    int64_t keys = file_.Whole(Key("attention.key_length")).value_or(0);
    int64_t values = file_.Whole(Key("attention.value_length")).value_or(keys);
    const int64_t rotated = file_.Whole(Key("rope.dimension_count")).value_or(0);
    if (const auto own = file_.Whole(Key("attention.key_length_mla"))) {
      // The usual keys then tell of one head, the latent vector, that all queries share.
      const int64_t rank = file_.Whole(Key("attention.kv_lora_rank")).value_or(0);
      if (values != rank || keys - rotated != rank) {
        return Error(Key("attention.key_length"), " and value_length must be those of ",
                     Key("attention.kv_lora_rank"), " where there is ",
                     Key("attention.key_length_mla"));
      }
      keys = *own;
      values = file_.Whole(Key("attention.value_length_mla")).value_or(keys);
      json_["num_key_value_heads"] = json_["num_attention_heads"];
    }
    json_.erase("head_dim");
    json_["qk_rope_head_dim"] = rotated;
    json_["qk_nope_head_dim"] = keys - rotated;
    json_["v_head_dim"] = values;
    const bool has_groups = json_.contains("n_group");
    if (gating == kSoftmaxGating) {
      json_["topk_method"] = has_groups ? "group_limited_greedy" : "greedy";
    } else if (!has_groups) {
      json_["n_group"] = json_["topk_group"] = 1;
    }
    return absl::OkStatus();
  }

  // Families have names of their own for the fields of biases.
  void AddBiases() {
    const bool in_attention = HasTensor("attn_q.bias");
    const std::string_view name = architecture_.name;
    if (name == "starcoder2" || name == "ernie4_5") {
      json_["use_bias"] = in_attention;
      return;
    }
    if (name == "qwen2moe") {
      json_["qkv_bias"] = in_attention;
      return;
    }
    // Qwen2 has them always, and no field.
    if (name != "qwen2") json_["attention_bias"] = in_attention;
    if (name == "seed_oss") json_["attention_out_bias"] = HasTensor("attn_output.bias");
    json_["mlp_bias"] = HasTensor("ffn_gate.bias");
  }

  void AddMultipliers() {
    const auto number = [this](std::string_view key) {
      const Value* const value = file_.Find(Key(key));
      return value == nullptr ? Json() : JsonOf(*value);
    };
    const Json eps = number("attention.layer_norm_epsilon"), embedding = number("embedding_scale"),
               residual = number("residual_scale"), logit = number("logit_scale");
    const bool is_minicpm = architecture_.name == "minicpm";
    const auto set = [this](const char* field, const Json& value) {
      if (!value.is_null()) json_[field] = value;
    };
    if (!HasStateSpace(architecture_)) {
      set(architecture_.name == "starcoder2" ? "norm_epsilon" : "layer_norm_eps", eps);
    }
    set(is_minicpm ? "scale_emb" : "embedding_multiplier", embedding);
    if (is_minicpm) {
      const double layers = static_cast<double>(file_.Whole(Key("block_count")).value_or(0));
      const double hidden = static_cast<double>(file_.Whole(Key("embedding_length")).value_or(0));
      if (residual.is_number()) {
        json_["scale_depth"] = residual.get<double>() * std::sqrt(layers);
      }
      if (logit.is_number()) json_["dim_model_base"] = hidden / logit.get<double>();
      return;
    }
    set("residual_multiplier", residual);
    set(architecture_.name == "cohere2" ? "logit_scale" : "logits_scaling", logit);
  }

  absl::Status AddWindows() {
    const std::string_view name = architecture_.name;
    // Their families' defaults, or read elsewhere.
    if (name == "gemma2" || name == "phi3" || name == "llama4") return absl::OkStatus();
    if (!json_.contains("sliding_window")) json_["sliding_window"] = nullptr;
    const bool has_window = !json_["sliding_window"].is_null();
    if (has_window && (name == "llama" || name.starts_with("qwen"))) {
      return Error(Key("attention.sliding_window"), " is not supported with this architecture");
    }
    const Value* const pattern = file_.Find(Key("attention.sliding_window_pattern"));
    if (pattern == nullptr) return absl::OkStatus();
    // A period, or which layers have windows.
    const auto* const list = std::get_if<std::vector<double>>(pattern);
    if (list == nullptr) {
      json_["sliding_window_pattern"] = JsonOf(*pattern);
      return absl::OkStatus();
    }
    Json types = Json::array();
    for (const double windowed : *list) {
      types.push_back(windowed != 0 ? "sliding_attention" : "full_attention");
    }
    json_["layer_types"] = std::move(types);
    return absl::OkStatus();
  }

  // The f32 numbers of a tensor, divisors of RoPE's frequencies.
  absl::StatusOr<Json> Factors(const Tensor& tensor) const {
    if (tensor.type->name != "F32" || tensor.shape.size() != 1) {
      return Error("tensor ", Absl(tensor.name), " must be a list of F32");
    }
    Json list = Json::array();
    for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
      float factor;
      std::memcpy(&factor, tensor.bytes.data() + at, sizeof(factor));
      list.push_back(factor);
    }
    return list;
  }

  absl::Status AddYarn(Json& scaling) const {
    scaling = {{"rope_type", "yarn"}};
    constexpr std::pair<std::string_view, const char*> kNumbers[] = {
        {"rope.scaling.factor", "factor"},
        {"rope.scaling.original_context_length", "original_max_position_embeddings"},
        {"rope.scaling.attn_factor", "attention_factor"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"},
        {"attention.temperature_scale", "llama_4_scaling_beta"},
    };
    for (const auto& [key, field] : kNumbers) {
      if (const Value* value = file_.Find(Key(key))) scaling[field] = JsonOf(*value);
    }
    // The one family whose files say so.
    if (architecture_.name == "gpt-oss") scaling["truncate"] = false;
    const Value* const multiplier = file_.Find(Key("rope.scaling.yarn_log_multiplier"));
    if (multiplier == nullptr) return absl::OkStatus();
    // Files that it was made of have the same number twice; DeepSeek's are divided by 10.
    Json mscale = JsonOf(*multiplier);
    if (architecture_.name == "deepseek2" && mscale.is_number()) {
      constexpr double kDecimals = 1e6;  // those of an f32
      mscale = std::round(mscale.get<double>() * 10 * kDecimals) / kDecimals;
    }
    scaling["mscale"] = scaling["mscale_all_dim"] = mscale;
    return absl::OkStatus();
  }

  absl::Status AddRope() {
    const int64_t head_dim = HeadDim(file_, architecture_);
    const int64_t rotated = file_.Whole(Key("rope.dimension_count")).value_or(head_dim);
    // Families whose field has another default than 1 are told in any case.
    const bool is_partial = architecture_.name.starts_with("qwen3next") ||
                            architecture_.name.starts_with("qwen35") ||
                            architecture_.name.starts_with("glm4");
    if (head_dim > 0 && (is_partial || rotated != head_dim) && architecture_.name != "deepseek2") {
      json_["partial_rotary_factor"] = static_cast<double>(rotated) / static_cast<double>(head_dim);
    }
    Json scaling;
    const std::string type(file_.Text(Key("rope.scaling.type")).value_or("none"));
    const Value* factor = file_.Find(Key("rope.scaling.factor"));
    if (factor == nullptr) factor = file_.Find(Key("rope.scale_linear"));
    if (type == "linear" || (type == "none" && file_.Find(Key("rope.scale_linear")) != nullptr)) {
      if (factor == nullptr) return Error(Key("rope.scaling.factor"), " is missing");
      scaling = {{"rope_type", "linear"}, {"factor", JsonOf(*factor)}};
    } else if (type == "yarn") {
      RETURN_IF_ERROR(AddYarn(scaling));
    } else if (type != "none" && type != "longrope") {
      return Error(Key("rope.scaling.type"), " \"", type.substr(0, 60),
                   "\" is not known; known are none, linear, longrope and yarn");
    }
    if (type != "yarn" && file_.Find(Key("attention.temperature_scale")) != nullptr) {
      return Error(Key("attention.temperature_scale"), " is supported beside yarn alone");
    }
    if (const Value* alpha = file_.Find(Key("rope.scaling.alpha"))) {
      if (!scaling.is_null()) return Error(Key("rope.scaling.alpha"), " is beside ", type);
      scaling = {{"rope_type", "dynamic"}, {"alpha", JsonOf(*alpha)}};
    }
    if (const Value* local = file_.Find(Key("rope.freq_base_swa"))) {
      const Json theta = JsonOf(*local);
      if (architecture_.name == "gemma3" || theta != json_.value("rope_theta", Json(10000.0))) {
        json_["rope_local_base_freq"] = theta;
      }
    }
    const Tensor* const frequencies = file_.FindTensor("rope_freqs.weight");
    const Tensor* const long_factors = file_.FindTensor("rope_factors_long.weight");
    const Tensor* const short_factors = file_.FindTensor("rope_factors_short.weight");
    if (frequencies != nullptr) {
      // One divisor a frequency, whatever the context: both lists of "longrope".
      if (!scaling.is_null()) return Error("has rope_freqs.weight beside linear scaling");
      ASSIGN_OR_RETURN(const Json factors, Factors(*frequencies));
      scaling = {{"rope_type", "longrope"},
                 {"short_factor", factors},
                 {"long_factor", factors},
                 {"attention_factor", 1.0}};
    } else if (long_factors != nullptr && short_factors != nullptr) {
      scaling["rope_type"] = "longrope";
      ASSIGN_OR_RETURN(scaling["long_factor"], Factors(*long_factors));
      ASSIGN_OR_RETURN(scaling["short_factor"], Factors(*short_factors));
      if (const Value* original = file_.Find(Key("rope.scaling.original_context_length"))) {
        json_["original_max_position_embeddings"] = JsonOf(*original);
      }
      if (const Value* attention = file_.Find(Key("rope.scaling.attn_factor"))) {
        scaling["attention_factor"] = JsonOf(*attention);
      }
    } else if (type == "longrope") {
      return Error("has longrope without rope_factors_long.weight and rope_factors_short.weight");
    }
    if (!scaling.is_null()) json_["rope_scaling"] = std::move(scaling);
    return absl::OkStatus();
  }

  Json GenerationConfig() const {
    Json json = Json::object();
    Json ends = Json::array();
    for (const char* name : {"eos", "eot", "eom"}) {
      const auto id = file_.Whole(absl::StrCat("tokenizer.ggml.", name, "_token_id"));
      if (id.has_value()) ends.push_back(*id);
    }
    if (!ends.empty()) json["eos_token_id"] = std::move(ends);
    for (const auto& [key, field] : kSampling) {
      if (const Value* value = file_.Find(key)) json[field] = JsonOf(*value);
    }
    return json;
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  const std::string prefix_;
  Json json_ = Json::object();
};

}  // namespace

absl::StatusOr<ConfigTexts> ConfigOf(const GgufFile& file) {
  ASSIGN_OR_RETURN(const Architecture* const architecture, FindArchitecture(file));
  return ConfigConverter(file, *architecture).Convert();
}

}  // namespace continuo::gguf
