// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/math/arithmetic.h"

namespace continuo::model {
namespace {

// Joins fields so that no two lists give the same text.
void Append(std::string* text, const std::string& field) {
  absl::StrAppend(text, field.size(), ":", field, ";");
}

// The exact bits of a value, unlike decimals.
std::string Bits(double value) { return absl::StrCat(absl::Hex(std::bit_cast<uint64_t>(value))); }

std::string Bits(const std::optional<float>& value) {
  return value.has_value() ? Bits(static_cast<double>(*value)) : "-";
}

std::string BitsOf(const std::vector<double>& values) {
  return absl::StrJoin(values, "/",
                       [](std::string* out, double value) { absl::StrAppend(out, Bits(value)); });
}

}  // namespace

Digest128 DigestOf(std::span<const uint8_t> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Digest128 DigestOf(std::string_view text) {
  return DigestOf(
      std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string ToHex(const Digest128& digest) {
  return absl::StrFormat("%016x%016x", digest.high, digest.low);
}

Digest128 WeightsDigest(std::vector<TensorDigest> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.name < b.name; });
  std::string text;
  for (const TensorDigest& tensor : tensors) {
    Append(&text, tensor.name);
    Append(&text, tensor.dtype);
    Append(&text, absl::StrJoin(tensor.shape, ","));
    Append(&text, ToHex(tensor.bytes));
  }
  return DigestOf(text);
}

namespace {

std::string SummaryOf(const RopeConfig& rope) {
  return absl::StrCat(static_cast<int>(rope.type), ",", Bits(rope.theta), ",", Bits(rope.factor),
                      ",", Bits(rope.low_freq_factor), ",", Bits(rope.high_freq_factor), ",",
                      rope.original_context, ",", BitsOf(rope.short_factors), ",",
                      BitsOf(rope.long_factors), ",", Bits(rope.attention_factor));
}

// Facts that are told only where they are not those of most families, so that models of those keep
// their fingerprints.
std::string RareSummary(const ModelConfig& c) {
  std::string text;
  for (const RopeConfig& rope : c.ropes) {
    if (rope.type == RopeConfig::Type::kYarn) {
      absl::StrAppend(&text, " yarn=", Bits(rope.beta_fast), ",", Bits(rope.beta_slow), ",",
                      rope.truncate);
    }
  }
  for (const RopeConfig& rope : c.ropes) {
    if (rope.type == RopeConfig::Type::kProportional || rope.rotary_dim != 0) {
      absl::StrAppend(&text, " part=", Bits(rope.part), ",", rope.rotary_dim);
    }
  }
  if (!c.other_heads.layers.empty()) {
    const OtherHeads& other = c.other_heads;
    absl::StrAppend(&text, " heads=", other.num_kv_heads, "x", other.head_dim, ",",
                    other.values_are_keys, " in ", absl::StrJoin(other.layers, ","));
  }
  if (!c.kv_layers.empty()) absl::StrAppend(&text, " kv=", absl::StrJoin(c.kv_layers, ","));
  if (c.value_norm) absl::StrAppend(&text, " value_norm");
  if (c.wide_size > 0) {
    absl::StrAppend(&text, " wide=", c.wide_size, " in ", absl::StrJoin(c.wide_mlps, ","));
  }
  if (c.has_layer_ends()) {
    absl::StrAppend(&text, " per_layer=", c.per_layer_size, ",", c.layer_scales);
  }
  if (c.experts.beside_dense) absl::StrAppend(&text, " beside_dense");
  if (c.ropes.size() > 1) {
    for (const RopeConfig& rope : std::span(c.ropes).subspan(1)) {
      absl::StrAppend(&text, " rope=", SummaryOf(rope));
    }
    absl::StrAppend(&text, " layer_ropes=", absl::StrJoin(c.layer_ropes, ","));
  }
  if (c.interleaved_rope) absl::StrAppend(&text, " interleaved");
  if (c.query_growth != 0) {
    absl::StrAppend(&text, " growth=", Bits(c.query_growth), ",", c.query_growth_period);
  }
  if (c.query_growth_offset != 0 || c.grows_without_rope) {
    absl::StrAppend(&text, " growth_from=", c.query_growth_offset, ",", c.grows_without_rope);
  }
  if (!c.qk_gains || !c.norms_all_heads) {
    absl::StrAppend(&text, " qk_gains=", c.qk_gains, ",", c.norms_all_heads);
  }
  if (std::ranges::any_of(c.chunks, [](int chunk) { return chunk > 0; })) {
    absl::StrAppend(&text, " chunks=", absl::StrJoin(c.chunks, ","));
  }
  if (!c.has_plain_heads()) absl::StrAppend(&text, " qk_norm=", static_cast<int>(c.qk_norm));
  if (c.norm != NormKind::kRms) absl::StrAppend(&text, " norm=", static_cast<int>(c.norm));
  if (!c.input_norms) absl::StrAppend(&text, " no_input_norms");
  if (c.parallel) absl::StrAppend(&text, " parallel");
  if (!c.gated) absl::StrAppend(&text, " plain_mlp");
  if (c.sinks) absl::StrAppend(&text, " sinks");
  if (c.output_gate) absl::StrAppend(&text, " output_gate");
  if (const StateConfig& s = c.states; s.kind != StateKind::kNone) {
    absl::StrAppend(&text, " states=", static_cast<int>(s.kind), ",", s.conv_width, ",",
                    s.conv_bias, ",", s.num_heads, ",", s.num_key_heads, ",", s.key_dim, ",",
                    s.value_dim, " in ", absl::StrJoin(s.layers, ","));
    if (s.kind == StateKind::kSum) {
      absl::StrAppend(&text, " steps=", s.least_step, ",", s.most_step);
    }
  }
  if (c.is_latent()) {
    absl::StrAppend(&text, " latent=", c.latent.kv_rank, ",", c.latent.q_rank, ",",
                    c.latent.rotated_dim, ",", c.latent.value_dim);
  }
  const ExpertsConfig& e = c.experts;
  if (e.by_sigmoid || e.correction || e.num_groups > 1 || e.factor != 1 || e.biases) {
    absl::StrAppend(&text, " router=", e.by_sigmoid, ",", e.correction, ",", e.num_groups, ",",
                    e.top_groups, ",", e.by_top_two, ",", Bits(e.factor), ",", e.biases);
  }
  if (e.chooses_by_logits || e.weighs_inputs) {
    absl::StrAppend(&text, " weighed=", e.chooses_by_logits, ",", e.weighs_inputs);
  }
  if (e.latent_size > 0) absl::StrAppend(&text, " latent_experts=", e.latent_size);
  if (e.shared_size > 0) absl::StrAppend(&text, " shared=", e.shared_size, ",", e.shared_gate);
  if (const EncoderConfig& encoder = c.encoder; encoder.is_encoder) {
    absl::StrAppend(&text, " encoder=", encoder.num_positions, ",", encoder.first_position, ",",
                    encoder.num_token_types, ",", encoder.embedding_norm, ",", encoder.stream_norms,
                    ",", encoder.final_norm, ",", encoder.first_layer_reads_x);
  }
  if (c.residual_scale != 1 || c.logit_scale != 1) {
    absl::StrAppend(&text, " multipliers=", Bits(c.residual_scale), ",", Bits(c.logit_scale));
  }
  return text;
}

}  // namespace

std::string ConfigSummary(const ModelConfig& c) {
  const GenerationDefaults& d = c.defaults;
  return absl::StrCat(c.architecture, " context=", c.context_length, " heads=", c.num_heads, "/",
                      c.num_kv_heads, "x", c.head_dim, " eps=", Bits(c.norm_eps),
                      " rope=", SummaryOf(c.ropes[0]), " rotary=", c.rotary_dim,
                      " activation=", static_cast<int>(c.activation),
                      " experts=", c.experts.num_experts, ",", c.experts.per_token, ",",
                      c.experts.normalise, " less_one=", c.gains_less_one,
                      " output_norms=", c.output_norms, " scales=", Bits(c.embedding_scale), ",",
                      Bits(c.attention_scale), " caps=", Bits(c.attention_softcap), ",",
                      Bits(c.final_softcap), " windows=", absl::StrJoin(c.windows, ","),
                      " tied=", c.tied_embeddings, " temperature=", Bits(d.temperature),
                      " top_k=", d.top_k.has_value() ? *d.top_k : -1, " top_p=", Bits(d.top_p),
                      " min_p=", Bits(d.min_p), " repetition_penalty=", Bits(d.repetition_penalty),
                      " eos=", absl::StrJoin(d.eos_token_ids, ","), RareSummary(c));
}

std::string MakeFingerprint(const FingerprintParts& parts,
                            std::span<const std::string> text_parts) {
  std::string text;
  Append(&text, absl::StrCat("arithmetic ", kernels::kArithmeticVersion));
  Append(&text, ToHex(parts.weights));
  Append(&text, parts.config);
  Append(&text, parts.weight_format);
  Append(&text, parts.kv_format);
  Append(&text, parts.backend);
  for (const std::string& part : text_parts) Append(&text, part);
  return ToHex(DigestOf(text));
}

}  // namespace continuo::model
