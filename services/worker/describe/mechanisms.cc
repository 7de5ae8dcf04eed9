// SPDX-License-Identifier: Apache-2.0
#include "services/worker/describe/mechanisms.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace continuo::worker {
namespace {

using model::ModelConfig;
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
  if (c.qk_norm) out.push_back({"norms of queries and keys", ""});
  if (c.qkv_bias) {
    out.push_back(
        {c.output_bias ? "biases of attention" : "biases of queries, keys and values", ""});
  }
  if (c.attention_softcap > 0) {
    out.push_back({"soft cap of attention scores", absl::StrCat(c.attention_softcap)});
  }
}

void AddRope(const ModelConfig& c, std::vector<Mechanism>& out) {
  const std::string theta = absl::StrCat("theta ", c.rope.theta);
  switch (c.rope.type) {
    case RopeConfig::Type::kDefault:
      out.push_back({"RoPE", theta});
      break;
    case RopeConfig::Type::kLinear:
      out.push_back({"RoPE, linear", absl::StrCat(theta, ", factor ", c.rope.factor)});
      break;
    case RopeConfig::Type::kLlama3:
      out.push_back({"RoPE, llama3", absl::StrCat(theta, ", factor ", c.rope.factor)});
      break;
    case RopeConfig::Type::kLong:
      out.push_back(
          {"RoPE, longrope", absl::StrCat(theta, ", beyond ", c.rope.original_context, " tokens")});
      break;
  }
  if (c.rotary_dim < c.head_dim) {
    out.push_back({"RoPE of a part of each head",
                   absl::StrCat(c.rotary_dim, " of ", c.head_dim, " elements")});
  }
}

void AddLayers(const ModelConfig& c, std::vector<Mechanism>& out) {
  out.push_back({c.activation == model::Activation::kSilu ? "SwiGLU" : "GeGLU", ""});
  if (c.mlp_bias) out.push_back({"biases of the MLP", ""});
  if (c.experts.num_experts > 0) {
    const auto with = std::count(c.experts.layers.begin(), c.experts.layers.end(), true);
    out.push_back(
        {"experts", absl::StrCat(c.experts.per_token, " of ", c.experts.num_experts, " in ",
                                 Layers(static_cast<size_t>(with), c.num_layers))});
  }
  if (c.output_norms) out.push_back({"norms of the results of attention and MLP", ""});
  if (c.embedding_scale != 1) {
    out.push_back({"scaled embedding", absl::StrCat(c.embedding_scale)});
  }
  if (c.final_softcap > 0) out.push_back({"soft cap of logits", absl::StrCat(c.final_softcap)});
  if (c.tied_embeddings) out.push_back({"the head is the embedding", ""});
}

std::vector<Mechanism> AllOf(const ModelConfig& config) {
  std::vector<Mechanism> all;
  AddAttention(config, all);
  AddRope(config, all);
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
