// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/worker/model/checkpoint/weight_lister.h"

namespace continuo::model {
namespace {

// The names of a family's tensors, below that of the layer.
struct ExpertTensorNames {
  const char* block = "mlp.";
  const char* router = "gate";
  const char* correction = "mlp.gate.e_score_correction_bias";
  bool correction_is_row = false;  // [1, experts]
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
  const char* shared = "mlp.shared_experts.";
  const char *shared_gate_up = nullptr, *shared_down = "down_proj";  // gate and up in one, as rows
};

ExpertTensorNames TensorNamesOf(ExpertNames names) {
  switch (names) {
    case ExpertNames::kDeepSeek:
      break;
    case ExpertNames::kQwen:
      return {.shared = "mlp.shared_expert."};
    case ExpertNames::kMixtral:
      return {.block = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2"};
    case ExpertNames::kGranite:
      return {.block = "block_sparse_moe.",
              .router = "router.layer",
              .shared = "shared_mlp.",
              .shared_gate_up = "input_linear",
              .shared_down = "output_linear"};
    case ExpertNames::kGraniteParts:
      return {.block = "block_sparse_moe.",
              .router = "router.layer",
              .shared = "shared_mlp.",
              .shared_down = "output_linear"};
    case ExpertNames::kErnie:
      return {.correction = "mlp.moe_statics.e_score_correction_bias", .correction_is_row = true};
    case ExpertNames::kGptOss:
      return {.router = "router"};
    case ExpertNames::kLfm2:
      return {.block = "feed_forward.",
              .correction = "feed_forward.expert_bias",
              .gate = "w1",
              .up = "w3",
              .down = "w2"};
    case ExpertNames::kMixer:
      return {.block = "mixer.",
              .correction = "mixer.gate.e_score_correction_bias",
              .gate = "up_proj",
              .shared = "mixer.shared_experts."};
    case ExpertNames::kGemma4:
      return {.block = "", .router = "router.proj"};
    case ExpertNames::kLlama4:
      return {
          .block = "feed_forward.", .router = "router", .shared = "feed_forward.shared_expert."};
  }
  return {};
}

}  // namespace

void ListExperts(const ModelConfig& c, const std::string& layer, ExpertsWeights& w, Lister& list) {
  const ExpertsConfig& experts = c.experts;
  const int64_t hidden = c.hidden_size, inner = experts.intermediate_size;
  const int64_t shared = experts.shared_size;
  const int64_t width = experts.latent_size > 0 ? experts.latent_size : hidden;
  const ExpertTensorNames names = TensorNamesOf(experts.names);
  const std::string block = layer + names.block;
  const auto count = static_cast<size_t>(experts.num_experts);
  w.gate.resize(count);
  w.up.resize(c.gated ? count : 0);
  w.down.resize(count);
  list.Matrix(block + names.router, experts.num_experts, hidden, Cut::kWhole, w.router);
  list.last().is_router = true;
  if (experts.beside_dense) {
    // The router's input is normalised, and then divided by the root of its size.
    list.Vector(layer + "router.scale", hidden, Cut::kWhole, w.router_gain);
    list.last().scale = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden)));
    list.Vector(layer + "router.per_expert_scale", experts.num_experts, Cut::kWhole, w.factors);
  }
  if (experts.biases) {
    list.Vector(absl::StrCat(block, names.router, ".bias"), experts.num_experts, Cut::kWhole,
                w.router_bias);
  }
  if (experts.correction) {
    list.Vector(layer + names.correction, experts.num_experts, Cut::kWhole, w.correction);
    if (names.correction_is_row) {
      list.last().shape = {1, experts.num_experts};
      list.last().rows = {0, 1};
    }
  }
  if (experts.latent_size > 0) {
    list.Matrix(block + "fc1_latent_proj", width, hidden, Cut::kWhole, w.latent_in);
    list.Matrix(block + "fc2_latent_proj", hidden, width, Cut::kWhole, w.latent_out);
  }
  const auto name = [&](size_t e, const char* own) {
    return absl::StrCat(block, "experts.", e, ".", own);
  };
  for (size_t e = 0; e < count; ++e) {
    list.Matrix(name(e, names.gate), inner, width, Cut::kExpertRows, w.gate[e]);
    if (c.gated) list.Matrix(name(e, names.up), inner, width, Cut::kExpertRows, w.up[e]);
    list.Matrix(name(e, names.down), width, inner, Cut::kExpertColumns, w.down[e]);
  }
  const auto biases = [&](const char* own, int64_t n, Cut cut, kernels::Tensor& stack) {
    for (size_t e = 0; e < count; ++e) list.Row(name(e, own) + ".bias", n, cut, stack);
  };
  if (experts.biases) {
    biases(names.gate, inner, Cut::kExpertRows, w.gate_bias);
    biases(names.up, inner, Cut::kExpertRows, w.up_bias);
    biases(names.down, width, Cut::kWhole, w.down_bias);
  }
  if (shared == 0) return;
  const std::string prefix = layer + names.shared;
  if (names.shared_gate_up != nullptr) {
    list.Joined(
        prefix + names.shared_gate_up, hidden,
        {{shared, Cut::kSharedRows, w.shared_gate}, {shared, Cut::kSharedRows, w.shared_up}});
  } else {
    list.Matrix(prefix + names.gate, shared, hidden, Cut::kSharedRows, w.shared_gate);
    if (c.gated) list.Matrix(prefix + names.up, shared, hidden, Cut::kSharedRows, w.shared_up);
  }
  list.Matrix(prefix + names.shared_down, hidden, shared, Cut::kSharedColumns, w.shared_down);
  list.last().is_sensitive = true;
  if (experts.shared_gate) {
    list.Matrix(layer + "mlp.shared_expert_gate", 1, hidden, Cut::kWhole, w.shared_switch);
    list.last().is_router = true;
  }
}

}  // namespace continuo::model
