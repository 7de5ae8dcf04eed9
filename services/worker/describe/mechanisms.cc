// SPDX-License-Identifier: Apache-2.0
#include "services/worker/describe/mechanisms.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace continuo::worker {
namespace {

using model::ModelConfig;
using model::QueryKeyNorm;
using model::RopeConfig;

struct Mechanism {
  std::string name;
  std::string detail;  // sizes; empty: none
};

std::string Layers(size_t some, int all) {
  return static_cast<int>(some) == all ? "all layers" : absl::StrCat(some, " of ", all, " layers");
}

void AddAttention(const ModelConfig& c, std::vector<Mechanism>& out) {
  if (c.num_kv_heads < c.num_heads) {
    out.push_back({"grouped-query attention",
                   absl::StrCat(c.num_heads, " heads share ", c.num_kv_heads, " of keys")});
  }
  std::vector<int> windows;
  for (const int window : c.windows) {
    if (window > 0) windows.push_back(window);
  }
  if (!windows.empty()) {
    const auto [least, most] = std::minmax_element(windows.begin(), windows.end());
    out.push_back(
        {"sliding window", absl::StrCat(*least, *least == *most ? "" : absl::StrCat(" to ", *most),
                                        " tokens in ", Layers(windows.size(), c.num_layers))});
  }
  if (const auto cut = std::ranges::count_if(c.chunks, [](int n) { return n > 0; }); cut > 0) {
    const int length = std::ranges::max(c.chunks);
    out.push_back(
        {"chunks of attention",
         absl::StrCat(length, " tokens in ", Layers(static_cast<size_t>(cut), c.num_layers))});
  }
  const std::string plain = c.qk_gains ? "" : " without gains";
  switch (c.qk_norm) {
    case QueryKeyNorm::kNone:
      break;
    case QueryKeyNorm::kHeads:
      out.push_back({"norms of queries and keys" + plain, ""});
      break;
    case QueryKeyNorm::kRotatedHeads:
      out.push_back({"norms of rotated queries and keys" + plain, ""});
      break;
    case QueryKeyNorm::kWidth:
      out.push_back({"norms of queries and keys over all heads", ""});
      break;
  }
  if (c.value_norm) out.push_back({"norms of values without gains", ""});
  if (const auto other = std::ranges::count(c.other_heads.layers, true); other > 0) {
    const model::OtherHeads& heads = c.other_heads;
    out.push_back({"other heads in some layers",
                   absl::StrCat(heads.num_kv_heads, " of ", heads.head_dim, " elements in ",
                                Layers(static_cast<size_t>(other), c.num_layers))});
    if (heads.values_are_keys) out.push_back({"values that are the keys' products there", ""});
  }
  if (const int shared = c.num_layers - c.num_kv_layers(); !c.kv_layers.empty()) {
    out.push_back(
        {"keys and values of another layer", Layers(static_cast<size_t>(shared), c.num_layers)});
  }
  if (c.qkv_bias) {
    out.push_back(
        {c.output_bias ? "biases of attention" : "biases of queries, keys and values", ""});
  }
  if (c.output_gate) out.push_back({"a gate of attention's output", ""});
  if (c.sinks) out.push_back({"attention sinks", ""});
  if (c.is_latent()) {
    out.push_back({"keys and values of latent vectors",
                   absl::StrCat(c.latent.kv_rank, " elements, cached as heads of ", c.head_dim)});
  }
  if (c.attention_softcap > 0) {
    out.push_back({"soft cap of attention scores", absl::StrCat(c.attention_softcap)});
  }
}

std::string RopeName(const RopeConfig& rope) {
  switch (rope.type) {
    case RopeConfig::Type::kDefault:
      return "RoPE";
    case RopeConfig::Type::kLinear:
      return "RoPE, linear";
    case RopeConfig::Type::kLlama3:
      return "RoPE, llama3";
    case RopeConfig::Type::kLong:
      return "RoPE, longrope";
    case RopeConfig::Type::kYarn:
      return "RoPE, yarn";
    case RopeConfig::Type::kProportional:
      return "RoPE, proportional";
    case RopeConfig::Type::kNone:
      return "no RoPE";
  }
  return "";
}

std::string RopeDetail(const RopeConfig& rope) {
  const std::string theta = absl::StrCat("theta ", rope.theta);
  switch (rope.type) {
    case RopeConfig::Type::kLinear:
    case RopeConfig::Type::kLlama3:
    case RopeConfig::Type::kYarn:
      return absl::StrCat(theta, ", factor ", rope.factor);
    case RopeConfig::Type::kLong:
      return absl::StrCat(theta, ", beyond ", rope.original_context, " tokens");
    case RopeConfig::Type::kProportional:
      return absl::StrCat(theta, ", ", 100 * rope.part, " % of each head");
    case RopeConfig::Type::kNone:
      return "";
    case RopeConfig::Type::kDefault:
      break;
  }
  return theta;
}

void AddRope(const ModelConfig& c, std::vector<Mechanism>& out) {
  for (size_t i = 0; i < c.ropes.size(); ++i) {
    const RopeConfig& rope = c.ropes[i];
    const auto layers = static_cast<size_t>(std::ranges::count(c.layer_ropes, i));
    const std::string where =
        c.ropes.size() == 1 ? "" : absl::StrCat("in ", Layers(layers, c.num_layers));
    const std::string detail = RopeDetail(rope);
    out.push_back(
        {RopeName(rope), absl::StrCat(detail, detail.empty() || where.empty() ? "" : " ", where)});
  }
  if (c.rotary_dim < c.head_dim) {
    out.push_back({"RoPE of a part of each head",
                   absl::StrCat(c.rotary_dim, " of ", c.head_dim, " elements")});
  }
  if (c.interleaved_rope) out.push_back({"rotated pairs side by side", ""});
  if (c.query_growth != 0) {
    out.push_back({c.grows_without_rope ? "queries without RoPE that grow with their position"
                                        : "queries that grow with their position",
                   absl::StrCat("every ", c.query_growth_period, " tokens")});
  }
}

void AddNorms(const ModelConfig& c, std::vector<Mechanism>& out) {
  if (c.norm == model::NormKind::kLayer) {
    out.push_back({c.norm_bias ? "LayerNorm with biases" : "LayerNorm", ""});
  }
  if (!c.input_norms) out.push_back({"no norms of the inputs of attention and MLP", ""});
  if (c.output_norms) out.push_back({"norms of the results of attention and MLP", ""});
  if (c.parallel) out.push_back({"attention and MLP side by side", ""});
}

void AddStates(const ModelConfig& c, std::vector<Mechanism>& out) {
  if (!c.has_states()) return;
  const model::StateConfig& s = c.states;
  const std::string where = Layers(static_cast<size_t>(c.num_state_layers()), c.num_layers);
  switch (s.kind) {
    case model::StateKind::kNone:
      break;
    case model::StateKind::kConv:
      out.push_back({"short convolutions in place of attention",
                     absl::StrCat("of ", s.conv_width, " rows in ", where)});
      break;
    case model::StateKind::kDelta:
      out.push_back(
          {"gated delta rule in place of attention",
           absl::StrCat(s.num_heads, " heads of ", s.key_dim, " x ", s.value_dim, " in ", where)});
      break;
    case model::StateKind::kSum:
      out.push_back(
          {c.num_kv_layers() > 0 ? "state space of Mamba-2 in place of attention"
                                 : "state space of Mamba-2, and no attention",
           absl::StrCat(s.num_heads, " heads of ", s.key_dim, " x ", s.value_dim, " in ", where)});
      break;
  }
}

void AddExperts(const ModelConfig& c, std::vector<Mechanism>& out) {
  const model::ExpertsConfig& experts = c.experts;
  if (experts.num_experts == 0) return;
  const auto with = std::count(experts.layers.begin(), experts.layers.end(), true);
  out.push_back({"experts", absl::StrCat(experts.per_token, " of ", experts.num_experts, " in ",
                                         Layers(static_cast<size_t>(with), c.num_layers))});
  if (experts.by_sigmoid) out.push_back({"sigmoid scores of experts", ""});
  if (experts.correction) out.push_back({"corrected scores of experts", ""});
  if (experts.num_groups > 1) {
    out.push_back(
        {"groups of experts", absl::StrCat(experts.top_groups, " of ", experts.num_groups)});
  }
  if (experts.beside_dense) out.push_back({"experts beside a dense MLP", ""});
  if (experts.weighs_inputs) out.push_back({"weighed inputs of experts", ""});
  if (experts.biases) out.push_back({"biases of experts", ""});
  if (experts.latent_size > 0) {
    out.push_back({"experts of a shorter vector", absl::StrCat(experts.latent_size, " elements")});
  }
  if (experts.shared_size > 0) {
    out.push_back({experts.shared_gate ? "a shared expert with a gate" : "a shared expert",
                   absl::StrCat(experts.shared_size, " columns")});
  }
}

void AddLayers(const ModelConfig& c, std::vector<Mechanism>& out) {
  const bool is_silu = c.activation == model::Activation::kSilu;
  const bool is_clamped = c.activation == model::Activation::kClampedSwiglu;
  const bool is_square = c.activation == model::Activation::kReluSquared;
  const bool has_mlp = std::ranges::count(c.parts, model::LayerParts::kMixer) < c.num_layers;
  if (!c.parts.empty()) out.push_back({"layers of one part each", ""});
  if (has_mlp) {
    out.push_back({is_clamped  ? "clamped SwiGLU"
                   : is_square ? "MLP with squared ReLU"
                   : c.gated   ? is_silu ? "SwiGLU" : "GeGLU"
                   : is_silu   ? "MLP with SiLU"
                               : "MLP with GELU",
                   ""});
  }
  if (c.mlp_bias) out.push_back({"biases of the MLP", ""});
  if (const auto wide = std::ranges::count(c.wide_mlps, true); wide > 0) {
    out.push_back({"wider MLPs in some layers",
                   absl::StrCat(c.wide_size, " columns in ",
                                Layers(static_cast<size_t>(wide), c.num_layers))});
  }
  AddExperts(c, out);
  AddNorms(c, out);
  if (c.per_layer_size > 0) {
    out.push_back({"embeddings for each layer", absl::StrCat(c.per_layer_size, " elements")});
  }
  if (c.layer_scales) out.push_back({"scaled layers", ""});
  if (c.embedding_scale != 1) {
    out.push_back({"scaled embedding", absl::StrCat(c.embedding_scale)});
  }
  if (c.residual_scale != 1) {
    out.push_back({"scaled residuals", absl::StrCat(c.residual_scale)});
  }
  if (c.logit_scale != 1) out.push_back({"scaled logits", absl::StrCat(c.logit_scale)});
  if (c.final_softcap > 0) out.push_back({"soft cap of logits", absl::StrCat(c.final_softcap)});
  if (c.tied_embeddings) out.push_back({"the head is the embedding", ""});
}

std::vector<Mechanism> AllOf(const ModelConfig& config) {
  std::vector<Mechanism> all;
  AddStates(config, all);
  if (config.num_kv_layers() > 0) {
    AddAttention(config, all);
    AddRope(config, all);
  }
  AddLayers(config, all);
  return all;
}

}  // namespace

std::vector<std::string> MechanismsOf(const ModelConfig& config) {
  std::vector<std::string> texts;
  for (const Mechanism& mechanism : AllOf(config)) {
    texts.push_back(mechanism.detail.empty()
                        ? mechanism.name
                        : absl::StrCat(mechanism.name, ": ", mechanism.detail));
  }
  return texts;
}

std::vector<std::string> MechanismNames(const ModelConfig& config) {
  std::vector<std::string> names;
  for (Mechanism& mechanism : AllOf(config)) names.push_back(std::move(mechanism.name));
  return names;
}

}  // namespace continuo::worker
