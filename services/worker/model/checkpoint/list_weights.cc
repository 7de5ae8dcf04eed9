// SPDX-License-Identifier: Apache-2.0
// ListWeights: the tensors that a model reads, by Hugging Face's names.
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::model {
namespace {

// Collects the specs, in the order of the calls.
class Lister {
 public:
  void Matrix(const std::string& name, int64_t out, int64_t in, Cut cut, kernels::Weight& w) {
    specs_.push_back({.name = absl::StrCat(name, ".weight"),
                      .shape = {out, in},
                      .rows = {0, out},
                      .cut = cut,
                      .matrix = &w});
  }
  void Vector(std::string name, int64_t n, Cut cut, kernels::Tensor& tensor) {
    specs_.push_back(
        {.name = std::move(name), .shape = {n}, .rows = {0, n}, .cut = cut, .vector = &tensor});
  }
  struct Rows {
    int64_t count;
    Cut cut;
    kernels::Weight& w;
  };
  // Adds several matrices that are stored as one, stacked as rows.
  void Joined(const std::string& name, int64_t in, std::initializer_list<Rows> parts) {
    int64_t out = 0, begin = 0;
    for (const Rows& part : parts) out += part.count;
    for (const Rows& part : parts) {
      specs_.push_back({.name = absl::StrCat(name, ".weight"),
                        .shape = {out, in},
                        .rows = {begin, begin + part.count},
                        .cut = part.cut,
                        .matrix = &part.w});
      begin += part.count;
    }
  }

  // Says where the last n specs lie if the device joins them.
  void JoinLast(size_t n, kernels::Weight& matrix, kernels::Tensor& vector) {
    for (WeightSpec& spec : std::span(specs_).last(n)) {
      if (spec.matrix != nullptr) {
        spec.joined_matrix = &matrix;
      } else {
        spec.joined_vector = &vector;
      }
    }
  }

  WeightSpec& last() { return specs_.back(); }
  std::vector<WeightSpec> Take() { return std::move(specs_); }

 private:
  std::vector<WeightSpec> specs_;
};

void ListAttention(const ModelConfig& c, const std::string& prefix, LayerWeights& w, Lister& list) {
  const int64_t hidden = c.hidden_size;
  const int64_t q = int64_t{c.num_heads} * c.head_dim, kv = c.kv_width();
  if (c.names == WeightNames::kFused) {
    list.Joined(
        prefix + "qkv_proj", hidden,
        {{q, Cut::kHeadRows, w.q}, {kv, Cut::kKvHeadRows, w.k}, {kv, Cut::kKvHeadRows, w.v}});
  } else {
    list.Matrix(prefix + "q_proj", q, hidden, Cut::kHeadRows, w.q);
    list.Matrix(prefix + "k_proj", kv, hidden, Cut::kKvHeadRows, w.k);
    list.Matrix(prefix + "v_proj", kv, hidden, Cut::kKvHeadRows, w.v);
  }
  if (c.qkv_bias) {
    list.Vector(prefix + "q_proj.bias", q, Cut::kHeadRows, w.q_bias);
    list.Vector(prefix + "k_proj.bias", kv, Cut::kKvHeadRows, w.k_bias);
    list.Vector(prefix + "v_proj.bias", kv, Cut::kKvHeadRows, w.v_bias);
  }
  list.JoinLast(c.qkv_bias ? 6 : 3, w.qkv, w.qkv_bias);
  if (c.qk_norm) {
    list.Vector(prefix + "q_norm.weight", c.head_dim, Cut::kWhole, w.q_gain);
    list.Vector(prefix + "k_norm.weight", c.head_dim, Cut::kWhole, w.k_gain);
  }
  list.Matrix(prefix + "o_proj", hidden, q, Cut::kHeadColumns, w.o);
  if (c.output_bias) list.Vector(prefix + "o_proj.bias", hidden, Cut::kWhole, w.o_bias);
}

void ListDense(const ModelConfig& c, const std::string& prefix, LayerWeights& w, Lister& list) {
  const int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  if (c.names == WeightNames::kFused) {
    list.Joined(prefix + "gate_up_proj", hidden,
                {{inner, Cut::kInnerRows, w.gate}, {inner, Cut::kInnerRows, w.up}});
  } else {
    list.Matrix(prefix + "gate_proj", inner, hidden, Cut::kInnerRows, w.gate);
    list.Matrix(prefix + "up_proj", inner, hidden, Cut::kInnerRows, w.up);
  }
  list.Matrix(prefix + "down_proj", hidden, inner, Cut::kInnerColumns, w.down);
  if (c.mlp_bias) {
    list.Vector(prefix + "gate_proj.bias", inner, Cut::kInnerRows, w.gate_bias);
    list.Vector(prefix + "up_proj.bias", inner, Cut::kInnerRows, w.up_bias);
    list.Vector(prefix + "down_proj.bias", hidden, Cut::kWhole, w.down_bias);
  }
}

void ListExperts(const ModelConfig& c, const std::string& layer, ExpertsWeights& w, Lister& list) {
  const int64_t hidden = c.hidden_size, inner = c.experts.intermediate_size;
  const bool is_mixtral = c.names == WeightNames::kMixtral;
  const std::string prefix = layer + (is_mixtral ? "block_sparse_moe." : "mlp.");
  const size_t count = static_cast<size_t>(c.experts.num_experts);
  w.gate.resize(count);
  w.up.resize(count);
  w.down.resize(count);
  list.Matrix(prefix + "gate", c.experts.num_experts, hidden, Cut::kWhole, w.router);
  list.last().is_router = true;
  for (size_t e = 0; e < count; ++e) {
    const std::string expert = absl::StrCat(prefix, "experts.", e, ".");
    list.Matrix(expert + (is_mixtral ? "w1" : "gate_proj"), inner, hidden, Cut::kExpertRows,
                w.gate[e]);
    list.Matrix(expert + (is_mixtral ? "w3" : "up_proj"), inner, hidden, Cut::kExpertRows, w.up[e]);
    list.Matrix(expert + (is_mixtral ? "w2" : "down_proj"), hidden, inner, Cut::kExpertColumns,
                w.down[e]);
  }
}

}  // namespace

std::vector<WeightSpec> ListWeights(const ModelConfig& c, ModelWeights& weights) {
  const int64_t hidden = c.hidden_size;
  Lister list;
  list.Matrix("model.embed_tokens", c.vocab_size, hidden, Cut::kVocabRows, weights.embedding);
  weights.layers.resize(static_cast<size_t>(c.num_layers));
  for (int i = 0; i < c.num_layers; ++i) {
    LayerWeights& w = weights.layers[static_cast<size_t>(i)];
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const auto norm = [&](const char* name, kernels::Tensor& gain) {
      list.Vector(absl::StrCat(layer, name, "_layernorm.weight"), hidden, Cut::kWhole, gain);
    };
    norm("input", w.attention_gain);
    ListAttention(c, layer + "self_attn.", w, list);
    if (c.output_norms) {
      norm("post_attention", w.attention_output_gain);
      norm("pre_feedforward", w.mlp_gain);
      norm("post_feedforward", w.mlp_output_gain);
    } else {
      norm("post_attention", w.mlp_gain);
    }
    if (c.has_experts(i)) {
      ListExperts(c, layer, w.experts, list);
    } else {
      ListDense(c, layer + "mlp.", w, list);
    }
  }
  list.Vector("model.norm.weight", hidden, Cut::kWhole, weights.final_gain);
  if (!c.tied_embeddings)
    list.Matrix("lm_head", c.vocab_size, hidden, Cut::kVocabRows, weights.head);
  std::vector<WeightSpec> specs = list.Take();
  if (c.gains_less_one) {  // such models have no biases
    for (WeightSpec& spec : specs) spec.less_one = spec.vector != nullptr;
  }
  return specs;
}

}  // namespace continuo::model
