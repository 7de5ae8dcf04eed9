// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/config_parts.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/absl_view.h"

namespace continuo::gguf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxSize = 1 << 20, kMaxLayers = 1024;

// The fields of config.json in a family.
struct Fields {
  std::string_view architecture;
  const char *conv_width, *state_size, *groups, *heads, *head_dim, *conv_bias;
  const char* expand;  // null: there is none
};

constexpr Fields kGranite = {"granitehybrid", "mamba_d_conv", "mamba_d_state",   "mamba_n_groups",
                             "mamba_n_heads", "mamba_d_head", "mamba_conv_bias", "mamba_expand"};
constexpr Fields kNemotron = {"nemotron_h",      "conv_kernel",    "ssm_state_size", "n_groups",
                              "mamba_num_heads", "mamba_head_dim", "use_conv_bias",  nullptr};
constexpr Fields kMamba = {"mamba2",    "conv_kernel", "state_size",    "n_groups",
                           "num_heads", "head_dim",    "use_conv_bias", "expand"};

class StateSpaceConverter {
 public:
  StateSpaceConverter(const GgufFile& file, const Architecture& architecture, Json& json)
      : file_(file),
        architecture_(architecture),
        name_(architecture.name),
        fields_(name_ == kGranite.architecture ? kGranite
                : name_ == kMamba.architecture ? kMamba
                                               : kNemotron),
        json_(json) {}

  absl::Status Convert() {
    ASSIGN_OR_RETURN(num_layers_, Size("block_count", kMaxLayers));
    num_layers_ -= file_.Whole(Key("nextn_predict_layers")).value_or(0);
    if (num_layers_ < 1) return Error(Key("block_count"), " leaves no layers");
    RETURN_IF_ERROR(AddSizes());
    if (name_ == kMamba.architecture) {
      SetEpsilon();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(AddHeads());
    return name_ == kGranite.architecture ? AddGranite() : AddNemotron();
  }

 private:
  std::string Key(std::string_view key) const { return absl::StrCat(Absl(name_), ".", Absl(key)); }

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::UnimplementedError(absl::StrCat(file_.name(), ": ", parts...));
  }

  absl::StatusOr<int64_t> Size(std::string_view key, int64_t max) const {
    const int64_t size = file_.Whole(Key(key)).value_or(0);
    if (size >= 1 && size <= max) return size;
    return Error(Key(key), " must be there, from 1 to ", max);
  }

  // A tensor of a layer, "ssm_in.weight"; null where there is none.
  const Tensor* TensorOf(int64_t layer, std::string_view own) const {
    return file_.FindTensor(absl::StrCat("blk.", layer, ".", Absl(own)));
  }

  // Rows of the first layer's matrix of this name; nothing where no layer has it.
  std::optional<int64_t> RowsOf(std::string_view own) const {
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      const Tensor* const tensor = TensorOf(layer, own);
      if (tensor != nullptr && tensor->shape.size() == 2) return tensor->shape[0];
    }
    return std::nullopt;
  }

  bool HasAny(std::string_view own) const {
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      if (TensorOf(layer, own) != nullptr) return true;
    }
    return false;
  }

  absl::Status AddSizes() {
    ASSIGN_OR_RETURN(json_[fields_.conv_width], Size("ssm.conv_kernel", kMaxSize));
    ASSIGN_OR_RETURN(json_[fields_.state_size], Size("ssm.state_size", kMaxSize));
    ASSIGN_OR_RETURN(json_[fields_.groups], Size("ssm.group_count", kMaxSize));
    ASSIGN_OR_RETURN(const int64_t heads, Size("ssm.time_step_rank", kMaxSize));
    ASSIGN_OR_RETURN(const int64_t inner, Size("ssm.inner_size", kMaxSize));
    ASSIGN_OR_RETURN(const int64_t hidden, Size("embedding_length", kMaxSize));
    if (inner % heads != 0) {
      return Error(Key("ssm.inner_size"), " must be a multiple of ", Key("ssm.time_step_rank"));
    }
    json_[fields_.heads] = heads;
    json_[fields_.head_dim] = inner / heads;
    json_[fields_.conv_bias] = HasAny("ssm_conv1d.bias");
    if (fields_.expand == nullptr) return absl::OkStatus();
    if (inner % hidden != 0) {
      return Error(Key("ssm.inner_size"), " must be a multiple of ", Key("embedding_length"));
    }
    json_[fields_.expand] = inner / hidden;
    return absl::OkStatus();
  }

  // The one number of a key that is other than 0 in some layers alone.
  absl::StatusOr<int64_t> NumberOf(std::string_view key) const {
    const Value* const value = file_.Find(Key(key));
    const auto* const list = value == nullptr ? nullptr : std::get_if<std::vector<double>>(value);
    if (list == nullptr) return Size(key, kMaxSize);
    double found = 0;
    for (const double n : *list) {
      if (n == 0) continue;
      if (!(n >= 1 && n <= static_cast<double>(kMaxSize)) || n != std::floor(n) ||
          (found != 0 && n != found)) {
        return Error(Key(key), " must be 0 or one and the same whole number in each layer");
      }
      found = n;
    }
    if (found == 0) return Error(Key(key), " is 0 in all layers");
    return static_cast<int64_t>(found);
  }

  absl::Status AddHeads() {
    ASSIGN_OR_RETURN(json_["num_attention_heads"], NumberOf("attention.head_count"));
    ASSIGN_OR_RETURN(json_["num_key_value_heads"], NumberOf("attention.head_count_kv"));
    json_["head_dim"] = HeadDim(file_, architecture_);
    return absl::OkStatus();
  }

  // Files of Nemotron-H have one key or both.
  void SetEpsilon() {
    Json epsilon = json_.value("rms_norm_eps", Json());
    json_.erase("rms_norm_eps");
    const Value* const other = file_.Find(Key("attention.layer_norm_epsilon"));
    const double* const number = other == nullptr ? nullptr : std::get_if<double>(other);
    if (epsilon.is_null() && number != nullptr) epsilon = *number;
    json_["layer_norm_epsilon"] = std::move(epsilon);
  }

  absl::Status AddGranite() {
    Json types = Json::array();
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      types.push_back(TensorOf(layer, "ssm_in.weight") != nullptr ? "mamba" : "attention");
    }
    json_["layer_types"] = std::move(types);
    if (!json_.contains("num_local_experts")) json_["num_local_experts"] = 0;
    ASSIGN_OR_RETURN(json_["intermediate_size"], NumberOf("feed_forward_length"));
    std::optional<int64_t> shared = RowsOf("ffn_gate_shexp.weight");
    if (!shared.has_value()) shared = RowsOf("ffn_gate.weight");
    if (!shared.has_value()) {
      return Error("tensors ffn_gate_shexp.weight and ffn_gate.weight are missing");
    }
    json_["shared_intermediate_size"] = *shared;
    json_.erase("shared_expert_intermediate_size");
    // llama.cpp takes this key so, and as true where it is absent.
    const bool has_rope = file_.Flag(Key("rope.scaling.finetuned")).value_or(true);
    json_["position_embedding_type"] = has_rope ? "rope" : "nope";
    return absl::OkStatus();
  }

  absl::Status AddNemotron() {
    Json types = Json::array();
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      types.push_back(TensorOf(layer, "ssm_in.weight") != nullptr         ? "linear_attention"
                      : TensorOf(layer, "attn_q.weight") != nullptr       ? "full_attention"
                      : TensorOf(layer, "ffn_gate_inp.weight") != nullptr ? "moe"
                                                                          : "mlp");
    }
    json_["layers_block_type"] = std::move(types);
    json_["intermediate_size"] = RowsOf("ffn_up.weight").value_or(1);
    json_["mlp_bias"] = HasAny("ffn_up.bias");
    if (file_.Find(Key("moe_latent_size")) != nullptr) {
      ASSIGN_OR_RETURN(json_["moe_latent_size"], Size("moe_latent_size", kMaxSize));
    }
    SetEpsilon();
    const char* const shared = "shared_expert_intermediate_size";
    if (json_.contains(shared)) json_["moe_shared_expert_intermediate_size"] = json_[shared];
    json_.erase(shared);
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  const std::string_view name_;
  const Fields& fields_;
  Json& json_;
  int64_t num_layers_ = 0;
};

}  // namespace

bool HasStateSpace(const Architecture& architecture) {
  return architecture.name == kGranite.architecture || architecture.name == kMamba.architecture ||
         architecture.name.starts_with(kNemotron.architecture);
}

absl::Status AddStateSpace(const GgufFile& file, const Architecture& architecture, Json& json) {
  return StateSpaceConverter(file, architecture, json).Convert();
}

}  // namespace continuo::gguf
