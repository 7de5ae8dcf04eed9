// SPDX-License-Identifier: Apache-2.0
// ListWeights: the tensors that a model reads, by Hugging Face's names.
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/worker/model/checkpoint/weight_lister.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::model {
namespace {

// The names of a family's tensors, below those of the model or the layer.
struct Names {
  const char* embedding = "model.embed_tokens";
  const char* head = "lm_head";
  const char* attention = "self_attn.";
  const char *q = "q_proj", *k = "k_proj", *v = "v_proj", *o = "o_proj";
  const char* qkv = nullptr;  // all three in one, as rows
  bool by_group = false;      // of that: each KV head's queries, key and value are together
  const char *q_norm = "q_norm", *k_norm = "k_norm";
  const char* mlp = "mlp.";
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
  const char* gate_up = nullptr;  // both in one, as rows
  const char* attention_norm = "input_layernorm";
  const char* attention_output_norm = "post_attention_layernorm";
  const char* mlp_norm = nullptr;  // null: by Llama or by Gemma
  const char* mlp_output_norm = "post_feedforward_layernorm";
  const char* final_norm = "model.norm";
  const char* layers = "model.layers.";
};

Names NamesOf(const ModelConfig& c) {
  Names names;
  switch (c.names) {
    case WeightNames::kLlama:
    case WeightNames::kMixtral:
    case WeightNames::kQwen3Next:
    case WeightNames::kQwen3NextParts:
      break;
    case WeightNames::kHybrid:
      names.mlp = "shared_mlp.";
      names.gate_up = "input_linear";
      names.down = "output_linear";
      break;
    case WeightNames::kHybridParts:
      names.mlp = "shared_mlp.";
      names.down = "output_linear";
      break;
    case WeightNames::kLlama4:
      names.mlp = "feed_forward.";
      break;
    case WeightNames::kFused:
      names.qkv = "qkv_proj";
      names.gate_up = "gate_up_proj";
      break;
    case WeightNames::kGlm:
      names.gate_up = "gate_up_proj";
      names.attention_output_norm = "post_self_attn_layernorm";
      names.mlp_norm = "post_attention_layernorm";
      names.mlp_output_norm = "post_mlp_layernorm";
      break;
    case WeightNames::kHunYuan:
      names.q_norm = "query_layernorm";
      names.k_norm = "key_layernorm";
      break;
    case WeightNames::kStarCoder:
      names.gate = "c_fc";
      names.down = "c_proj";
      break;
    case WeightNames::kLfm2:
      names.o = "out_proj";
      names.q_norm = "q_layernorm";
      names.k_norm = "k_layernorm";
      names.mlp = "feed_forward.";
      names.gate = "w1";
      names.up = "w3";
      names.down = "w2";
      names.attention_norm = "operator_norm";
      names.mlp_norm = "ffn_norm";
      names.final_norm = "model.embedding_norm";
      break;
    case WeightNames::kInternLm2:
      names = {.embedding = "model.tok_embeddings",
               .head = "output",
               .attention = "attention.",
               .o = "wo",
               .qkv = "wqkv",
               .by_group = true,
               .mlp = "feed_forward.",
               .gate = "w1",
               .up = "w3",
               .down = "w2",
               .attention_norm = "attention_norm",
               .mlp_norm = "ffn_norm"};
      break;
    case WeightNames::kMixer:
      names = {.embedding = "model.embeddings",
               .attention = "mixer.",
               .mlp = "mixer.",
               .gate = "up_proj",
               .attention_norm = "norm",
               .mlp_norm = "norm",
               .final_norm = "model.norm_f"};
      break;
    case WeightNames::kBert:
      names = {.embedding = "model.embeddings.word_embeddings",
               .attention = "attention.",
               .q = "self.query",
               .k = "self.key",
               .v = "self.value",
               .o = "output.dense",
               .mlp = "",
               .gate = "intermediate.dense",
               .down = "output.dense",
               .attention_output_norm = "attention.output.LayerNorm",
               .mlp_output_norm = "output.LayerNorm",
               .layers = "model.encoder.layer."};
      break;
    case WeightNames::kModernBert:
      names = {.embedding = "model.embeddings.tok_embeddings",
               .attention = "attn.",
               .o = "Wo",
               .qkv = "Wqkv",
               .down = "Wo",
               .gate_up = "Wi",
               .attention_norm = "attn_norm",
               .mlp_norm = "mlp_norm",
               .final_norm = "model.final_norm"};
      break;
  }
  if (names.mlp_norm == nullptr) {
    names.mlp_norm = c.output_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  }
  return names;
}

// Adds matrices, or biases where `width` is 0, of queries, keys and values.
void ListHeads(const ModelConfig& c, const Names& names, const std::string& prefix, int64_t width,
               std::array<WeightSpec, 3> specs, Lister& list) {
  const int64_t dim = c.head_dim, group = c.num_heads / c.num_kv_heads;
  const int64_t rows[] = {int64_t{c.num_heads} * dim, c.kv_width(), c.kv_width()};
  const char* const own[] = {names.q, names.k, names.v};
  const int64_t all = rows[0] + rows[1] + rows[2];
  int64_t begin = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    WeightSpec& spec = specs[i];
    const int64_t stored = names.qkv == nullptr ? rows[i] : all;
    spec.name = absl::StrCat(prefix, names.qkv == nullptr ? own[i] : names.qkv,
                             width > 0 ? ".weight" : ".bias");
    spec.shape = {stored};
    if (width > 0) spec.shape.push_back(width);
    spec.cut = i == 0 ? Cut::kHeadRows : Cut::kKvHeadRows;
    spec.is_sensitive = i == 2;
    spec.rows = {0, rows[i]};
    if (names.by_group) {
      const int64_t before = i == 0 ? 0 : group + static_cast<int64_t>(i) - 1;  // heads
      spec.order.group = i == 0 ? group * dim : dim;
      spec.order.group_begin = before * dim;
      spec.order.group_stride = (group + 2) * dim;
    } else if (c.output_gate && i == 0) {
      spec.shape[0] = 2 * rows[0];
      spec.order.group = dim;
      spec.order.group_stride = 2 * dim;
    } else if (names.qkv != nullptr) {
      spec.rows = {begin, begin + rows[i]};
    }
    begin += rows[i];
    if (c.interleaved_rope && i < 2) {
      spec.order.head = dim;
      spec.order.rotated = c.rotary_dim;
    }
    list.Add(std::move(spec));
  }
}

// Attention by latent vectors. A head's rotated elements are stored behind its others, pairs side
// by side, and its keys before its values.
void ListLatent(const ModelConfig& c, const std::string& prefix, LayerWeights& w, Lister& list) {
  const LatentConfig& latent = c.latent;
  const int64_t hidden = c.hidden_size, heads = c.num_heads, dim = c.head_dim;
  const int64_t plain = latent.plain_dim, values = latent.value_dim, rank = latent.kv_rank;
  const int64_t rotated = latent.rotated_dim;
  int64_t q_width = hidden;
  if (latent.q_rank > 0) {
    q_width = latent.q_rank;
    list.Matrix(prefix + "q_a_proj", q_width, hidden, Cut::kWhole, w.latent.q);
    list.Vector(prefix + "q_a_layernorm.weight", q_width, Cut::kWhole, w.latent.q_gain);
  }
  list.Matrix(prefix + (latent.q_rank > 0 ? "q_b_proj" : "q_proj"), heads * dim, q_width,
              Cut::kHeadRows, w.q);
  list.last().order = {.head = dim, .rotated = rotated, .rotated_last = true};
  const std::string both = prefix + "kv_a_proj_with_mqa.weight";
  list.Add(
      {.name = both, .shape = {rank + rotated, hidden}, .rows = {0, rank}, .matrix = &w.latent.kv});
  list.Add({.name = both,
            .shape = {rank + rotated, hidden},
            .rows = {0, rotated},
            .order = {.head = rotated, .rotated = rotated, .group = rotated, .group_begin = rank},
            .matrix = &w.latent.rotated_k});
  list.Vector(prefix + "kv_a_layernorm.weight", rank, Cut::kWhole, w.latent.kv_gain);
  const auto part = [&](int64_t size, int64_t begin, kernels::Weight& weight) {
    list.Add({.name = prefix + "kv_b_proj.weight",
              .shape = {heads * (plain + values), rank},
              .rows = {0, heads * size},
              .order = {.group = size, .group_begin = begin, .group_stride = plain + values},
              .cut = Cut::kHeadRows,
              .of_head = size,
              .matrix = &weight});
  };
  if (latent.splits_kv) {
    const auto own = [&](const char* name, int64_t size, kernels::Weight& weight) {
      list.Matrix(prefix + name, heads * size, rank, Cut::kHeadRows, weight);
      list.last().of_head = size;
    };
    own("k_b_proj", plain, w.k);
    own("v_b_proj", values, w.v);
  } else {
    part(plain, 0, w.k);
    part(values, plain, w.v);
  }
  list.last().is_sensitive = true;
  list.Matrix(prefix + "o_proj", hidden, heads * values, Cut::kHeadColumns, w.o);
  list.last().of_head = values;
}

// Attention whose layers differ in their heads and in whose keys and values they read.
void ListShapedAttention(const ModelConfig& c, const Names& names, int i, const std::string& prefix,
                         LayerWeights& w, Lister& list) {
  const bool is_other = c.has_other_heads(i);
  const int64_t dim = c.head_dim_of(i), q = c.num_heads * dim;
  const int64_t kv = (is_other ? c.other_heads.num_kv_heads : c.num_kv_heads) * dim;
  const auto matrix = [&](const char* own, int64_t rows, Cut cut, kernels::Weight& weight) {
    list.Matrix(prefix + own, rows, c.hidden_size, cut, weight);
    list.last().of_head = dim;
    list.last().is_other = is_other;
  };
  const auto norm = [&](const char* own, kernels::Tensor& gain) {
    list.Vector(absl::StrCat(prefix, own, ".weight"), dim, Cut::kWhole, gain);
  };
  matrix(names.q, q, Cut::kHeadRows, w.q);
  if (c.has_own_kv(i)) {
    matrix(names.k, kv, Cut::kKvHeadRows, w.k);
    if (!is_other || !c.other_heads.values_are_keys) {
      matrix(names.v, kv, Cut::kKvHeadRows, w.v);
      list.last().is_sensitive = true;
    }
  }
  norm(names.q_norm, w.q_gain);
  if (c.has_own_kv(i)) norm(names.k_norm, w.k_gain);
  list.Matrix(prefix + names.o, c.hidden_size, q, Cut::kHeadColumns, w.o);
  list.last().of_head = dim;
  list.last().is_other = is_other;
}

void ListAttention(const ModelConfig& c, const Names& names, int i, const std::string& layer,
                   LayerWeights& w, Lister& list) {
  const int64_t hidden = c.hidden_size, q = int64_t{c.num_heads} * c.head_dim;
  const std::string prefix = layer + names.attention;
  if (c.is_latent()) return ListLatent(c, prefix, w, list);
  if (!c.other_heads.layers.empty()) return ListShapedAttention(c, names, i, prefix, w, list);
  if (c.output_gate) {
    list.Add(
        {.name = absl::StrCat(prefix, names.q, ".weight"),
         .shape = {2 * q, hidden},
         .rows = {0, q},
         .order = {.group = c.head_dim, .group_begin = c.head_dim, .group_stride = 2 * c.head_dim},
         .cut = Cut::kHeadRows,
         .matrix = &w.output_gate});
  }
  ListHeads(c, names, prefix, hidden, {{{.matrix = &w.q}, {.matrix = &w.k}, {.matrix = &w.v}}},
            list);
  if (c.qkv_bias) {
    ListHeads(c, names, prefix, 0,
              {{{.vector = &w.q_bias}, {.vector = &w.k_bias}, {.vector = &w.v_bias}}}, list);
  }
  list.JoinLast(c.qkv_bias ? 6 : 3, w.qkv, w.qkv_bias);
  if (c.qk_norm != QueryKeyNorm::kNone && c.qk_gains) {
    const bool is_wide = c.qk_norm == QueryKeyNorm::kWidth;
    list.Vector(absl::StrCat(prefix, names.q_norm, ".weight"), is_wide ? q : c.head_dim,
                is_wide ? Cut::kHeadRows : Cut::kWhole, w.q_gain);
    list.Vector(absl::StrCat(prefix, names.k_norm, ".weight"), is_wide ? c.kv_width() : c.head_dim,
                is_wide ? Cut::kKvHeadRows : Cut::kWhole, w.k_gain);
  }
  if (c.sinks) {
    list.Vector(prefix + "sinks", c.num_heads, Cut::kHeadRows, w.sinks);
    list.last().of_head = 1;
  }
  list.Matrix(prefix + names.o, hidden, q, Cut::kHeadColumns, w.o);
  if (c.output_bias) {
    list.Vector(absl::StrCat(prefix, names.o, ".bias"), hidden, Cut::kWhole, w.o_bias);
    list.last().scale = static_cast<float>(c.residual_scale);
  }
}

// Returns whether the last product of layer `i`'s MLP counts as sensitive to rounding. It does in
// the first and the last eighth of the layers and in a third of those between, as in llama.cpp's
// mixtures of k-quants. Counting all layers gains nothing more (docs/decisions, 0612).
bool EndsSensitively(int i, int num_layers) {
  const int eighth = num_layers / 8;
  return i < eighth || i >= num_layers - eighth || (i - eighth) % 3 == 2;
}

void ListDense(const ModelConfig& c, const Names& names, int i, const std::string& layer,
               LayerWeights& w, Lister& list) {
  const bool is_wide = c.has_wide_mlp(i);
  const int64_t hidden = c.hidden_size, inner = is_wide ? c.wide_size : c.intermediate_size;
  const std::string prefix = layer + names.mlp;
  const auto matrix = [&](const char* own, int64_t out, int64_t in, Cut cut, kernels::Weight& to) {
    list.Matrix(prefix + own, out, in, cut, to);
    list.last().is_other = is_wide;
  };
  if (names.gate_up != nullptr) {
    list.Joined(prefix + names.gate_up, hidden,
                {{inner, Cut::kInnerRows, w.gate}, {inner, Cut::kInnerRows, w.up}});
  } else {
    matrix(names.gate, inner, hidden, Cut::kInnerRows, w.gate);
    if (c.gated) matrix(names.up, inner, hidden, Cut::kInnerRows, w.up);
  }
  matrix(names.down, hidden, inner, Cut::kInnerColumns, w.down);
  list.last().is_sensitive = EndsSensitively(i, c.num_layers);
  if (!c.mlp_bias) return;
  list.Vector(absl::StrCat(prefix, names.gate, ".bias"), inner, Cut::kInnerRows, w.gate_bias);
  if (c.gated) {
    list.Vector(absl::StrCat(prefix, names.up, ".bias"), inner, Cut::kInnerRows, w.up_bias);
  }
  list.Vector(absl::StrCat(prefix, names.down, ".bias"), hidden, Cut::kWhole, w.down_bias);
  list.last().scale = static_cast<float>(c.residual_scale);
}

// Adds a norm's gain, and its bias where there is a place for one.
void ListNorm(const ModelConfig& c, const std::string& name, kernels::Tensor& gain,
              kernels::Tensor* shift, Lister& list) {
  list.Vector(name + ".weight", c.hidden_size, Cut::kWhole, gain);
  if (shift == nullptr || !c.norm_bias) return;
  list.Vector(name + ".bias", c.hidden_size, Cut::kWhole, *shift);
}

// Adds layer `i`, whose tensors are called `layer`, "model.layers.0.", and so on.
void ListLayer(const ModelConfig& c, const Names& names, int i, const std::string& layer,
               LayerWeights& w, Lister& list) {
  const auto norm = [&](const char* name, kernels::Tensor& gain, kernels::Tensor* shift) {
    ListNorm(c, layer + name, gain, shift, list);
  };
  if (c.has_mixer(i)) {
    const bool reads_x = c.encoder.first_layer_reads_x && i == 0;
    if (c.input_norms && !reads_x) {
      norm(names.attention_norm, w.attention_gain, &w.attention_shift);
    }
    if (c.has_state(i)) {
      ListStates(c, layer, w, list);
    } else {
      ListAttention(c, names, i, layer, w, list);
    }
    if (c.output_norms) norm(names.attention_output_norm, w.attention_output_gain, nullptr);
    if (c.encoder.stream_norms) {
      norm(names.attention_output_norm, w.attention_output_gain, &w.attention_output_shift);
    }
  }
  if (!c.has_mlp(i)) return;
  if (c.input_norms && !c.parallel) norm(names.mlp_norm, w.mlp_gain, &w.mlp_shift);
  if (c.output_norms) norm(names.mlp_output_norm, w.mlp_output_gain, nullptr);
  if (c.encoder.stream_norms) norm(names.mlp_output_norm, w.mlp_output_gain, &w.mlp_output_shift);
  if (c.has_experts(i)) ListExperts(c, layer, w.experts, list);
  if (c.has_experts(i) && c.experts.beside_dense) {
    norm("post_feedforward_layernorm_1", w.dense_output_gain, nullptr);
    norm("pre_feedforward_layernorm_2", w.expert_gain, nullptr);
    norm("post_feedforward_layernorm_2", w.expert_output_gain, nullptr);
  }
  if (!c.has_experts(i) || c.experts.beside_dense) ListDense(c, names, i, layer, w, list);
  if (c.per_layer_size > 0) {
    list.Matrix(layer + "per_layer_input_gate", c.per_layer_size, c.hidden_size, Cut::kWhole,
                w.per_layer_gate);
    list.Matrix(layer + "per_layer_projection", c.hidden_size, c.per_layer_size, Cut::kWhole,
                w.per_layer_out);
    norm("post_per_layer_input_norm", w.per_layer_gain, nullptr);
  }
  if (c.layer_scales) list.Vector(layer + "layer_scalar", 1, Cut::kWhole, w.layer_scale);
}

// Adds what the vectors of each layer are made of. The second embedding and the projection of the
// first one are added up times the root of a half; the root of P of the former is a factor of its
// lookup.
void ListPerLayer(const ModelConfig& c, ModelWeights& w, Lister& list) {
  const int64_t all = int64_t{c.num_layers} * c.per_layer_size;
  list.Matrix("model.embed_tokens_per_layer", c.vocab_size, all, Cut::kVocabRows,
              w.per_layer_embedding);
  list.Matrix("model.per_layer_model_projection", all, c.hidden_size, Cut::kWhole, w.per_layer_in);
  list.Vector("model.per_layer_projection_norm.weight", c.per_layer_size, Cut::kWhole,
              w.per_layer_in_gain);
  list.last().scale = static_cast<float>(std::sqrt(0.5));
}

// Adds what an encoder makes of tokens besides their embedding.
void ListTables(const ModelConfig& c, ModelWeights& w, Lister& list) {
  const bool is_bert = c.names == WeightNames::kBert;
  if (c.encoder.num_positions > 0) {
    list.Matrix("model.embeddings.position_embeddings", c.encoder.num_positions, c.hidden_size,
                Cut::kWhole, w.positions);
    list.last().is_table = true;
  }
  if (c.encoder.num_token_types > 0) {
    list.Matrix("model.embeddings.token_type_embeddings", c.encoder.num_token_types, c.hidden_size,
                Cut::kWhole, w.token_types);
    list.last().is_table = true;
  }
  if (!c.encoder.embedding_norm) return;
  ListNorm(c, is_bert ? "model.embeddings.LayerNorm" : "model.embeddings.norm", w.embedding_gain,
           &w.embedding_shift, list);
}

// Adds the MTP module. Source of names and order: vLLM's qwen3_next_mtp.py and qwen3_5_mtp.py.
void ListMtp(const ModelConfig& c, const Names& names, MtpWeights& w, Lister& list) {
  ListNorm(c, "mtp.pre_fc_norm_embedding", w.embedding_gain, nullptr, list);
  ListNorm(c, "mtp.pre_fc_norm_hidden", w.hidden_gain, nullptr, list);
  list.Matrix("mtp.fc", c.hidden_size, 2 * int64_t{c.hidden_size}, Cut::kWhole, w.join);
  ListLayer(c, names, c.num_layers, "mtp.layers.0.", w.layer, list);
  ListNorm(c, "mtp.norm", w.final_gain, nullptr, list);
}

// True for the gain of a norm, but for those of heads of states, which are stored as they are.
bool IsStoredLessOne(const std::string& name) {
  return (name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight")) ||
         name.starts_with("mtp.pre_fc_norm_");
}

}  // namespace

std::vector<WeightSpec> ListWeights(const ModelConfig& c, ModelWeights& weights) {
  const int64_t hidden = c.hidden_size;
  const Names names = NamesOf(c);
  Lister list;
  list.Matrix(names.embedding, c.vocab_size, hidden, Cut::kVocabRows, weights.embedding);
  if (c.encoder.is_encoder) ListTables(c, weights, list);
  weights.layers.resize(static_cast<size_t>(c.num_layers));
  for (int i = 0; i < c.num_layers; ++i) {
    ListLayer(c, names, i, absl::StrCat(names.layers, i, "."),
              weights.layers[static_cast<size_t>(i)], list);
  }
  if (c.encoder.final_norm) {
    ListNorm(c, names.final_norm, weights.final_gain, &weights.final_shift, list);
  }
  if (c.per_layer_size > 0) ListPerLayer(c, weights, list);
  if (!c.tied_embeddings) {
    list.Matrix(names.head, c.vocab_size, hidden, Cut::kVocabRows, weights.head);
  }
  if (c.reads_mtp) ListMtp(c, names, weights.mtp, list);
  std::vector<WeightSpec> specs = list.Take();
  if (c.gains_less_one) {
    for (WeightSpec& spec : specs) spec.less_one = IsStoredLessOne(spec.name);
  }
  return specs;
}

}  // namespace continuo::model
