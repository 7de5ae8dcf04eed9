// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/config_parts.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/absl_view.h"

namespace continuo::gguf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostLayers = 1024, kLargestSize = 1 << 20;

class ShapeConverter {
 public:
  ShapeConverter(const GgufFile& file, const Architecture& architecture, Json& json)
      : file_(file), prefix_(absl::StrCat(Absl(architecture.name), ".")), json_(json) {}

  absl::Status Convert() {
    num_layers_ = file_.Whole(Key("block_count")).value_or(0);
    if (num_layers_ < 1 || num_layers_ > kMostLayers) {
      return Error(Key("block_count"), " must be from 1 to ", kMostLayers);
    }
    RETURN_IF_ERROR(ReadLayerTypes());
    RETURN_IF_ERROR(AddHeads());
    RETURN_IF_ERROR(AddMlps());
    AddExperts();
    return AddRope();
  }

 private:
  std::string Key(std::string_view key) const { return absl::StrCat(prefix_, Absl(key)); }
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::UnimplementedError(absl::StrCat(file_.name(), ": ", parts...));
  }

  // Reads a size, which may be one number, or one for each layer.
  absl::StatusOr<std::vector<int64_t>> Sizes(std::string_view key) const {
    std::vector<int64_t> sizes;
    if (const auto* const list = file_.Numbers(Key(key))) {
      for (const double size : *list) {
        if (size >= 1 && size <= kLargestSize) sizes.push_back(static_cast<int64_t>(size));
      }
    } else if (const std::optional<int64_t> size = file_.Whole(Key(key));
               size.has_value() && *size >= 1 && *size <= kLargestSize) {
      sizes.assign(static_cast<size_t>(num_layers_), *size);
    }
    if (static_cast<int64_t>(sizes.size()) != num_layers_) {
      return Error(Key(key), " must be a number from 1 to ", kLargestSize, ", or one for each of ",
                   num_layers_, " layers");
    }
    return sizes;
  }

  absl::Status ReadLayerTypes() {
    const Json types = json_.value("layer_types", Json());
    if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers_) {
      return Error(Key("attention.sliding_window_pattern"), " must have an entry for each of ",
                   num_layers_, " layers");
    }
    for (const Json& type : types) is_full_.push_back(type == "full_attention");
    if (!is_full_.back()) {
      return Error(Key("attention.sliding_window_pattern"), " must end with a layer without");
    }
    first_full_ = std::ranges::find(is_full_, true) - is_full_.begin();
    return absl::OkStatus();
  }

  absl::Status AddHeads() {
    ASSIGN_OR_RETURN(const std::vector<int64_t> kv_heads, Sizes("attention.head_count_kv"));
    const int64_t full = kv_heads[static_cast<size_t>(first_full_)];
    const auto windowed = std::ranges::find(is_full_, false) - is_full_.begin();
    const int64_t other = windowed < num_layers_ ? kv_heads[static_cast<size_t>(windowed)] : full;
    for (int64_t i = 0; i < num_layers_; ++i) {
      const auto at = static_cast<size_t>(i);
      if (kv_heads[at] != (is_full_[at] ? full : other)) {
        return Error(Key("attention.head_count_kv"), " differs between layers of one kind");
      }
    }
    const int64_t keys = file_.Whole(Key("attention.key_length")).value_or(0);
    const int64_t others = file_.Whole(Key("attention.key_length_swa")).value_or(keys);
    if (keys < 2 || file_.Whole(Key("attention.value_length_swa")).value_or(others) != others) {
      return Error(Key("attention.key_length"), " and value_length_swa are not supported");
    }
    json_["num_key_value_heads"] = other;
    json_["num_global_key_value_heads"] = full;
    json_["head_dim"] = others;
    json_["global_head_dim"] = keys;
    // Files do not say it otherwise.
    json_["attention_k_eq_v"] =
        file_.FindTensor(absl::StrCat("blk.", first_full_, ".attn_v.weight")) == nullptr;
    json_["num_kv_shared_layers"] = num_shared();
    json_["hidden_size_per_layer_input"] =
        file_.Whole(Key("embedding_length_per_layer_input")).value_or(0);
    return absl::OkStatus();
  }

  int64_t num_shared() const { return file_.Whole(Key("attention.shared_kv_layers")).value_or(0); }

  absl::Status AddMlps() {
    ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, Sizes("feed_forward_length"));
    const bool are_wide = sizes.back() != sizes.front();
    for (int64_t i = 0; i < num_layers_; ++i) {
      const bool is_wide = are_wide && i >= num_layers_ - num_shared();
      if (sizes[static_cast<size_t>(i)] != sizes.front() * (is_wide ? 2 : 1)) {
        return Error(
            Key("feed_forward_length"),
            " must be the same for all layers, or twice as much for those that share keys");
      }
    }
    json_["intermediate_size"] = sizes.front();
    json_["use_double_wide_mlp"] = are_wide;
    return absl::OkStatus();
  }

  void AddExperts() {
    const int64_t experts = file_.Whole(Key("expert_count")).value_or(0);
    json_["enable_moe_block"] = experts > 0;
    if (experts > 0) json_["top_k_experts"] = json_.value("num_experts_per_tok", Json());
    json_.erase("num_experts_per_tok");
  }

  // Layers with windows are rotated whole; the others have divisors of their frequencies, which are
  // 1 for the pairs that are rotated and so large for the others that these are not.
  absl::Status AddRope() {
    constexpr float kNever = 1e29f;
    const Tensor* const divisors = file_.FindTensor("rope_freqs.weight");
    const int64_t pairs = json_["global_head_dim"].get<int64_t>() / 2;
    if (divisors == nullptr || divisors->type->name != "F32" || divisors->shape.size() != 1 ||
        divisors->shape[0] != pairs) {
      return Error("rope_freqs.weight must be there, F32 of ", pairs, " elements");
    }
    int64_t rotated = 0;
    for (int64_t i = 0; i < pairs; ++i) {
      float divisor;
      std::memcpy(&divisor, divisors->bytes.data() + i * sizeof(divisor), sizeof(divisor));
      const bool is_rotated = divisor == 1;
      if ((!is_rotated && divisor < kNever) || (is_rotated && rotated != i)) {
        return Error("rope_freqs.weight must be ones and then numbers from 1e29 on");
      }
      rotated += is_rotated ? 1 : 0;
    }
    for (const auto& [key, field] : {std::pair{"rope.dimension_count", "global_head_dim"},
                                     std::pair{"rope.dimension_count_swa", "head_dim"}}) {
      if (const auto count = file_.Whole(Key(key)); count.has_value() && json_[field] != *count) {
        return Error(Key(key), " must be the elements of a head");
      }
    }
    Json full = {
        {"rope_type", "proportional"},
        {"partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(pairs)}};
    Json sliding = {{"rope_type", "default"}};
    if (const Json theta = json_.value("rope_theta", Json()); theta.is_number()) {
      full["rope_theta"] = theta;
    }
    if (const auto* const theta = file_.Find(Key("rope.freq_base_swa"))) {
      const auto* const number = std::get_if<double>(theta);
      if (number == nullptr) return Error(Key("rope.freq_base_swa"), " must be a number");
      sliding["rope_theta"] = *number;
    }
    json_.erase("rope_theta");
    json_["rope_parameters"] = {{"full_attention", std::move(full)},
                                {"sliding_attention", std::move(sliding)}};
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const std::string prefix_;
  Json& json_;
  int64_t num_layers_ = 0, first_full_ = 0;
  std::vector<bool> is_full_;
};

}  // namespace

bool HasLayerShapes(const Architecture& architecture) { return architecture.name == "gemma4"; }

bool IsOfLayerShapes(std::string_view key) {
  return key == "attention.head_count_kv" || key == "feed_forward_length" ||
         key == "attention.key_length";
}

absl::Status AddLayerShapes(const GgufFile& file, const Architecture& architecture, Json& json) {
  return ShapeConverter(file, architecture, json).Convert();
}

}  // namespace continuo::gguf
