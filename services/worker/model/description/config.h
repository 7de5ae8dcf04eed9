// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace continuo::model {

// Defaults of sampling from generation_config.json, for fields that a request does not set.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  // The end-of-sequence ids that config.json (its text_config too) and generation_config.json name,
  // ascending and distinct.
  std::vector<int32_t> eos_token_ids;
};

// RoPE: how positions become angles (Hugging Face's rope_type).
struct RopeConfig {
  enum class Type : uint8_t { kDefault, kLinear, kLlama3, kLong, kYarn, kNone, kProportional };
  Type type = Type::kDefault;  // kNone: nothing is rotated
  int rotary_dim = 0;          // elements of each head that are rotated; 0: ModelConfig::rotary_dim
  double theta = 10000;
  // Divisor of all frequencies with kLinear, of those of long waves with kLlama3 and kYarn.
  double factor = 1;
  // kLlama3 only. Waves shorter than original_context / high_freq_factor stay as they are, those
  // longer than original_context / low_freq_factor are scaled, and those in between are blended.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 0;
  // kLong only: divisors of the frequencies, [rotary_dim / 2] each. The long ones apply if the
  // served context is longer than original_context. All requests use the same ones, so that they
  // can share cached keys.
  std::vector<double> short_factors, long_factors;
  double attention_factor = 1;  // factor of cosines and sines
  // kYarn only. Waves that turn more than beta_fast times in original_context stay as they are,
  // those that turn less than beta_slow times are scaled, and those in between are blended;
  // `truncate` rounds the first and the last of these to whole frequencies, outwards.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  // kProportional only. Of the pairs of each head, which are those of all its elements, this part
  // is rotated: the first ones.
  double part = 1;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// The most kinds of RoPE that layers of one model have.
inline constexpr int kMaxRopes = 3;

// The MLP's activation function: silu, gelu in its tanh form, that of gpt-oss, the square of relu,
// or gelu by the error function (kernels::GateFunction).
enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSwiglu, kReluSquared, kGeluErf };

// The norms of layers' inputs and of the last one's result: RmsNorm, or LayerNorm, which has a bias
// in some models.
enum class NormKind : uint8_t { kRms, kLayer };

// The RmsNorm of queries and keys: of each head, before or after the rotation, or of all heads of a
// row together, before it.
enum class QueryKeyNorm : uint8_t { kNone, kHeads, kRotatedHeads, kWidth };

// The names of a layer's tensors in the files, and which of them are joined.
enum class WeightNames : uint8_t {
  kLlama,        // mlp.gate_proj …, mlp.experts.0.gate_proj …, mlp.gate for the router
  kMixtral,      // block_sparse_moe.experts.0.w1 (gate), w3 (up), w2 (down), block_sparse_moe.gate
  kFused,        // self_attn.qkv_proj and mlp.gate_up_proj: matrices stacked as rows
  kGlm,          // mlp.gate_up_proj stacked, norms' names of GLM-4
  kHunYuan,      // kLlama with self_attn.query_layernorm and key_layernorm
  kStarCoder,    // mlp.c_fc and c_proj
  kLfm2,         // kLlama with operator_norm, ffn_norm, feed_forward.w1 (gate), w3 (up), w2 (down)
  kHybrid,       // kLlama with shared_mlp.input_linear (gate and up as rows) and output_linear
  kHybridParts,  // the same with shared_mlp.gate_proj and up_proj
  kQwen3Next,    // kLlama with linear_attn.in_proj_qkvz and in_proj_ba, stacked by groups of heads
  kQwen3NextParts,  // kLlama with linear_attn.in_proj_qkv, in_proj_z and, by groups, in_proj_ba
  kInternLm2,  // attention.wqkv, stacked by groups of heads, feed_forward.w1 (gate), w3 (up), w2
  kMixer,   // a layer's one part is mixer, its norm is norm; an MLP's matrices up_proj, down_proj
  kLlama4,  // kLlama with feed_forward in place of mlp
  kBert,    // encoder.layer.0.attention.self.query …, intermediate.dense, output.dense
  kModernBert,  // layers.0.attn.Wqkv and Wo, mlp.Wi (gate and up as rows) and Wo
};

// The names of the tensors of a layer's experts.
enum class ExpertNames : uint8_t {
  kDeepSeek,      // mlp.gate, mlp.experts.0.gate_proj …, mlp.shared_experts.gate_proj …
  kQwen,          // the same with mlp.shared_expert and mlp.shared_expert_gate
  kMixtral,       // block_sparse_moe.gate, block_sparse_moe.experts.0.w1 (gate), w3 (up), w2 (down)
  kGranite,       // block_sparse_moe.router.layer, shared_mlp.input_linear, output_linear
  kGraniteParts,  // the same with shared_mlp.gate_proj and up_proj
  kErnie,         // kDeepSeek with mlp.moe_statics.e_score_correction_bias
  kGptOss,        // mlp.router, with a bias
  kLfm2,          // feed_forward.gate, feed_forward.experts.0.w1 (gate), w3 (up), w2 (down)
  kMixer,   // mixer.gate, mixer.experts.0.up_proj, down_proj, mixer.shared_experts.up_proj …
  kLlama4,  // feed_forward.router, experts.0.gate_proj …, feed_forward.shared_expert.gate_proj …
  kGemma4,  // router.proj, router.scale, router.per_expert_scale, experts.0.gate_proj …
};

// Layers whose MLP is a choice among many (a mixture of experts). The router's members are those of
// kernels::Routing.
struct ExpertsConfig {
  int num_experts = 0;  // 0: all MLPs are dense
  int per_token = 0;
  int intermediate_size = 0;  // of one expert
  // Layers with experts have a dense MLP, too. Router and experts read the residual stream through
  // norms of their own, and the results of both pass one more before they are added up. Experts
  // have factors of their weights.
  bool beside_dense = false;
  std::vector<bool> layers;  // [num_layers]: which have experts
  ExpertNames names = ExpertNames::kDeepSeek;
  bool biases = false;  // of the router and of the experts' matrices

  bool by_sigmoid = false;  // scores are sigmoids of the logits, else a softmax of all of them
  // The logits themselves choose. There is neither a correction nor are there groups then.
  bool chooses_by_logits = false;
  bool normalise = false;   // the chosen experts' weights are divided by their sum
  bool correction = false;  // the files have what is added to scores for the choice
  int num_groups = 1, top_groups = 1;
  bool by_top_two = false;
  double factor = 1;  // of the weights
  // Experts read the input times their weight, and their results are added up as they are.
  bool weighs_inputs = false;

  // Experts read a projection of the input to so many elements, and what they give is projected
  // back once it has been summed; 0: they read the input itself.
  int latent_size = 0;  // there are no biases and no shared_gate then

  // An MLP that all tokens pass, added to the chosen experts' sum: its inner columns, 0: there is
  // none.
  int shared_size = 0;
  bool shared_gate = false;  // it is multiplied by the sigmoid of a product with the input
};

// Attention with keys and values that are made of one short vector of a position (MLA). Heads have
// rotated elements, which all heads' keys share, and others.
struct LatentConfig {
  int kv_rank = 0;                     // elements of that vector; 0: attention is the usual one
  int q_rank = 0;                      // queries are made of such a vector, too; 0: of the input
  int rotated_dim = 0, plain_dim = 0;  // of queries and keys; together head_dim
  int value_dim = 0;                   // of a head's values, at most head_dim
  bool splits_kv = false;              // k_b_proj and v_b_proj instead of kv_b_proj
};

// The layers that have a recurrent state in place of keys and values (kernels::StateOps).
enum class StateKind : uint8_t {
  kNone,
  kConv,   // a short convolution of LFM2: out = W (c · conv(b · x)), b, c and x products of the
           // input
  kDelta,  // the gated delta rule of Qwen3.5, behind a convolution, with a gated norm of each head
  kSum,    // the state space of Mamba-2, behind a convolution, with a gated norm of all heads that
           // share keys
};

// The layers with state of a model; all are of one kind.
struct StateConfig {
  StateKind kind = StateKind::kNone;
  std::vector<bool> layers;  // [num_layers]: which have a state; empty: none
  int conv_width = 0;        // rows that a convolution sees
  // Of a convolution, and of kConv's products.
  bool conv_bias = false;
  // Heads share keys and queries in groups of neighbours. Channels of kConv are heads of value_dim.
  int num_heads = 0, num_key_heads = 0;
  int key_dim = 0, value_dim = 0;  // of one head
  // Of kSum: the bounds of a row's step (StateOps::StateDecay).
  float least_step = 0, most_step = std::numeric_limits<float>::infinity();
};

// Layers whose heads have other sizes than the model's num_kv_heads and head_dim.
struct OtherHeads {
  int num_kv_heads = 0, head_dim = 0;
  std::vector<bool> layers;  // [num_layers]: which; empty: none
  // Their values are what the keys are made of: the product before its norm and the rotation.
  bool values_are_keys = false;
};

// What encoders (BERT and its like) have and decoders do not.
struct EncoderConfig {
  // The model is one: a token sees the whole text, and a window reaches as far behind it as in
  // front of it. A text is computed in one step, and nothing samples.
  bool is_encoder = false;
  // Rows of a table of positions, whose vectors are added to the embedding; 0: there is none. The
  // first position of a text has row first_position.
  int num_positions = 0, first_position = 0;
  // Rows of a table of parts of a text, such as the two texts of a pair, whose vectors are added to
  // the embedding; 0: there is none.
  int num_token_types = 0;
  bool embedding_norm = false;       // the sum of these passes a norm
  bool stream_norms = false;         // the residual stream does, behind each addition (post-norm)
  bool final_norm = true;            // of the last layer's result
  bool first_layer_reads_x = false;  // the first layer's attention has no norm of its input
};

// How a model for sequence classification makes scores of final states. No step reads its tensors.
struct ScoreHeadConfig {
  // Modules in front of the product that gives the scores, each on what the one before gives.
  enum class Form : uint8_t {
    kNone,        // the model makes no scores
    kProduct,     // nothing: score.weight of decoders
    kPooler,      // BERT: pooler.dense, tanh
    kClassifier,  // RoBERTa: classifier.dense, tanh
    kPrediction   // ModernBERT: head.dense, an activation, head.norm
  };
  Form form = Form::kNone;
  // An encoder's head reads the mean of all states instead of the first one. A decoder's head reads
  // the last one.
  bool reads_mean = false;
  // What kPrediction has beside its form: a bias of head.dense, and the activation behind it.
  bool dense_bias = false;
  Activation activation = Activation::kGeluErf;
};

// The parts of a layer, each of which reads the residual stream through a norm of its own: a mixer,
// which is attention or a recurrent state, and then an MLP or experts.
enum class LayerParts : uint8_t { kBoth, kMixer, kMlp };

// The description of a decoder or an encoder, from the checked contents of config.json: what
// network/decoder composes its layers of. Sizes count elements.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", as family.cc knows it
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;      // first elements of each head that are rotated
  int context_length = 0;  // tokens of one sequence, prompt and answer together
  WeightNames names = WeightNames::kLlama;
  bool tied_embeddings = false;  // the head is the embedding

  std::vector<LayerParts> parts;  // [num_layers]; empty: all layers have both

  // Norms. `norm_eps` is that of all of them.
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  bool norm_bias = false;       // of a LayerNorm
  bool gains_less_one = false;  // the files store norms' gains minus one
  bool input_norms = true;      // attention and MLP read the residual stream through a norm
  // The results of attention and MLP pass an RmsNorm of their own before the residual addition.
  bool output_norms = false;
  // Attention and MLP read the same norm of the residual stream, and both are added to it.
  bool parallel = false;

  // Attention.
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  QueryKeyNorm qk_norm = QueryKeyNorm::kNone;
  bool qk_gains = true;         // of these norms
  bool norms_all_heads = true;  // else those of layers without RoPE are not normalised
  bool value_norm = false;      // values pass an RmsNorm of each head, without a gain
  // The kinds of RoPE, at most kMaxRopes, and which of them each layer has. The first is that of
  // layers that attend to the whole context, where there are any.
  std::vector<RopeConfig> ropes = {RopeConfig{}};
  std::vector<uint8_t> layer_ropes;  // [num_layers]
  // The files have rotated pairs side by side, 2i and 2i + 1; loading moves them to i and i + half.
  bool interleaved_rope = false;
  // A query at position p is multiplied by 1 + query_growth · ln(1 + ⌊(p + query_growth_offset) /
  // query_growth_period⌋), perhaps in layers without RoPE alone.
  double query_growth = 0;
  int64_t query_growth_period = 1, query_growth_offset = 0;
  bool grows_without_rope = false;
  OtherHeads other_heads;
  // The layer whose keys and values each layer reads: its own, or those of an earlier one with the
  // same heads. [num_layers], or empty: each has its own.
  std::vector<int> kv_layers;
  bool sinks = false;  // each head has a score without a value (kernels::AttentionParams)
  LatentConfig latent;
  // What attention gives is multiplied by the sigmoid of one more product of its input, whose rows
  // are stored behind the queries' of each head.
  bool output_gate = false;
  // Attention window of each layer, in tokens, the query's own included; 0: the whole context.
  std::vector<int> windows;  // [num_layers]
  // The context is cut into chunks of so many tokens, and a query sees its own chunk alone; 0: it
  // is not cut. [num_layers], or empty: that of no layer is.
  std::vector<int> chunks;

  // MLP.
  Activation activation = Activation::kSilu;
  bool gated = true;  // activation(gate) · up; else activation(gate), and there is no `up`
  bool mlp_bias = false;
  int wide_size = 0;  // inner columns of some layers' dense MLPs; 0: all are as the others
  std::vector<bool> wide_mlps;  // [num_layers]: which; empty: none
  ExpertsConfig experts;
  StateConfig states;

  // What a layer adds at its end, of a vector of so many elements that each token has for each
  // layer; 0: nothing. They are made of a second embedding and of the first one.
  int per_layer_size = 0;
  bool layer_scales = false;  // the residual stream is multiplied by a number at the end of a layer

  // Multipliers.
  double embedding_scale = 1;  // of the embedding, not of a tied head
  double attention_scale = 0;  // of q·k
  double residual_scale = 1;   // of what is added to the residual stream
  double logit_scale = 1;
  // Soft caps of attention scores and logits: x becomes cap · tanh(x / cap); 0: no cap.
  float attention_softcap = 0, final_softcap = 0;

  EncoderConfig encoder;

  // Layers behind the model's that predict further tokens, which are skipped.
  int num_predicting_layers = 0;
  // Files of the family may have a module for multi-token prediction (MTP) of Qwen's form: from the
  // hidden state of a position and the token behind it, one attention layer of the model's kind
  // makes the hidden state that the model's head guesses the token after next from. It is skipped,
  // unless it is read for speculation=mtp (AddMtpLayer).
  bool knows_mtp = false, reads_mtp = false;
  // The files have parts that this model is not made of, such as towers for images: their tensors
  // are skipped by name (tensor_names.h).
  bool is_text_part = false;
  // A class for sequence classification has this in place of the head of tokens.
  ScoreHeadConfig score_head;
  // Patterns of fields and tensors that may stay unread, as ReadModelConfig got them.
  std::string allow_unread;
  GenerationDefaults defaults;
  // For the log: values of the files that the model does not use as they are, such as defaults that
  // were clamped and ids that were left out.
  std::vector<std::string> warnings;

  bool has_score_head() const { return score_head.form != ScoreHeadConfig::Form::kNone; }
  bool has_mixer(int layer) const {
    return parts.empty() || parts[static_cast<size_t>(layer)] != LayerParts::kMlp;
  }
  bool has_mlp(int layer) const {
    return parts.empty() || parts[static_cast<size_t>(layer)] != LayerParts::kMixer;
  }
  int kv_width() const { return num_kv_heads * head_dim; }
  bool is_latent() const { return latent.kv_rank > 0; }
  // Elements of a head's values, which the cache fills up to head_dim.
  int value_dim() const { return is_latent() ? latent.value_dim : head_dim; }
  const RopeConfig& rope(int layer) const { return ropes[layer_ropes[static_cast<size_t>(layer)]]; }
  bool has_rope(int layer) const { return rope(layer).type != RopeConfig::Type::kNone; }
  // True if queries of layers with this kind of RoPE grow.
  bool grows(const RopeConfig& kind) const {
    return query_growth != 0 && (!grows_without_rope || kind.type == RopeConfig::Type::kNone);
  }
  int chunk(int layer) const { return chunks.empty() ? 0 : chunks[static_cast<size_t>(layer)]; }
  bool has_state(int layer) const {
    return !states.layers.empty() && states.layers[static_cast<size_t>(layer)];
  }
  // The numbers of layers with state, and of those that have keys and values, an MTP layer too.
  int num_state_layers() const {
    return static_cast<int>(std::count(states.layers.begin(), states.layers.end(), true));
  }
  bool has_states() const { return num_state_layers() > 0; }
  int num_kv_layers() const {
    const auto mlps = std::count(parts.begin(), parts.end(), LayerParts::kMlp);
    int others = 0;  // that read another layer's
    for (int i = 0; i < static_cast<int>(kv_layers.size()); ++i) others += has_own_kv(i) ? 0 : 1;
    return num_layers - static_cast<int>(mlps) - num_state_layers() - others + (reads_mtp ? 1 : 0);
  }
  bool has_own_kv(int layer) const {
    return kv_layers.empty() || kv_layers[static_cast<size_t>(layer)] == layer;
  }
  bool has_other_heads(int layer) const {
    return !other_heads.layers.empty() && other_heads.layers[static_cast<size_t>(layer)];
  }
  int head_dim_of(int layer) const {
    return has_other_heads(layer) ? other_heads.head_dim : head_dim;
  }
  int max_head_dim() const { return std::max(head_dim, other_heads.head_dim); }
  int rotary_dim_of(const RopeConfig& kind) const {
    return kind.rotary_dim > 0 ? kind.rotary_dim : rotary_dim;
  }
  bool has_wide_mlp(int layer) const {
    return !wide_mlps.empty() && wide_mlps[static_cast<size_t>(layer)];
  }
  // True if a layer ends otherwise than by adding what its MLP gives.
  bool has_layer_ends() const { return per_layer_size > 0 || layer_scales; }
  bool has_experts(int layer) const {
    return experts.num_experts > 0 && experts.layers[static_cast<size_t>(layer)];
  }
  // True if nothing but a norm of each head and one rotation of queries and keys alike lies between
  // their products and attention, so that a device may do it in one op (HeadRotation).
  bool has_plain_heads() const {
    return (qk_norm == QueryKeyNorm::kNone ||
            (qk_norm == QueryKeyNorm::kHeads && qk_gains && norms_all_heads)) &&
           query_growth == 0 && !is_latent() && !value_norm && other_heads.layers.empty() &&
           kv_layers.empty();
  }
};

// Lets the model read its MTP module, whose layer gets the number num_layers: it attends to the
// whole context, and has experts where the model has any. InvalidArgument where the family has no
// such module.
absl::Status AddMtpLayer(ModelConfig& config);

// Largest sizes accepted; errors name the field that is beyond.
inline constexpr int kMaxVocabSize = 1 << 22;
inline constexpr int kMaxHiddenSize = 1 << 17;
inline constexpr int kMaxIntermediateSize = 1 << 20;
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxHeads = 1024;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxContextLength = 1 << 24;
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsOfAllLayers = 1 << 16;

// Parses the texts of config.json and generation_config.json (empty: there is none). Of a model for
// text and more, text_config is what counts. InvalidArgument names the field, its value and the
// limit; Unimplemented names an architecture, rope type, activation or quantisation that is not
// known, or a field that nothing here reads and that may change the answer, unless `allow_unread`
// (known_fields.h) takes it. Defaults of sampling beyond their limits are warnings. Any bytes may
// be passed.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::string_view generation_config_json,
                                             std::string_view allow_unread = "");

// Does the same for the files of a folder, where generation_config.json may be absent, or for the
// metadata of a GGUF file. NotFound says what is there instead of a folder with config.json.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path,
                                            std::string_view allow_unread = "");

}  // namespace continuo::model
