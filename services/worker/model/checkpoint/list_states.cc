// SPDX-License-Identifier: Apache-2.0
// ListStates: the tensors of layers with a recurrent state.
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/worker/model/checkpoint/weight_lister.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::model {
namespace {

// A part of a convolution's channels, which are stored one after the other.
struct Channels {
  int64_t begin, count;
  Cut cut;
  int64_t of_head;
  kernels::Tensor& taps;
  kernels::Tensor& bias;
};

// Adds a convolution's weights, stored [channels, 1, width], as rows of one tap each.
void ListTaps(const std::string& name, int64_t all, int64_t width, const Channels& channels,
              Lister& list) {
  for (int64_t tap = 0; tap < width; ++tap) {
    list.Add({.name = name,
              .shape = {all, 1, width},
              .rows = {channels.begin, channels.begin + channels.count},
              .column = tap,
              .cut = channels.cut,
              .of_head = channels.of_head,
              .vector = &channels.taps,
              .stacked_vector = &channels.taps});
  }
}

void ListTapsBias(const std::string& name, int64_t all, const Channels& channels, Lister& list) {
  list.Add({.name = name,
            .shape = {all},
            .rows = {channels.begin, channels.begin + channels.count},
            .cut = channels.cut,
            .of_head = channels.of_head,
            .vector = &channels.bias});
}

void ListConv(const ModelConfig& c, const std::string& layer, LayerWeights& w, Lister& list) {
  const int64_t hidden = c.hidden_size, dim = c.states.value_dim;
  const std::string prefix = layer + "conv.";
  const Cut cut = Cut::kStateHeadRows;
  list.Joined(prefix + "in_proj", hidden,
              {{hidden, cut, w.states.q}, {hidden, cut, w.states.z}, {hidden, cut, w.states.v}});
  ListTaps(prefix + "conv.weight", hidden, c.states.conv_width,
           {0, hidden, cut, dim, w.states.q_taps, w.states.taps_bias}, list);
  list.Matrix(prefix + "out_proj", hidden, hidden, Cut::kStateHeadColumns, w.o);
  if (!c.states.conv_bias) return;
  kernels::Tensor* const biases[] = {&w.states.q_bias, &w.states.z_bias, &w.states.v_bias};
  for (int64_t i = 0; i < 3; ++i) {
    list.Add({.name = prefix + "in_proj.bias",
              .shape = {3 * hidden},
              .rows = {i * hidden, (i + 1) * hidden},
              .cut = cut,
              .vector = biases[i]});
  }
  list.Vector(prefix + "conv.bias", hidden, cut, w.states.taps_bias);
  list.Vector(prefix + "out_proj.bias", hidden, Cut::kWhole, w.o_bias);
  list.last().scale = static_cast<float>(c.residual_scale);
}

// Adds queries, keys and values, which are one tensor, and z.
void ListQueriesToZ(const StateConfig& s, const std::string& prefix, int64_t hidden,
                    StateWeights& to, Lister& list) {
  const int64_t values = int64_t{s.num_heads} * s.value_dim;
  const int64_t keys = int64_t{s.num_key_heads} * s.key_dim;
  list.Joined(prefix + "in_proj_qkv", hidden,
              {{keys, Cut::kStateKeyRows, to.q},
               {keys, Cut::kStateKeyRows, to.k},
               {values, Cut::kStateHeadRows, to.v}});
  list.Matrix(prefix + "in_proj_z", values, hidden, Cut::kStateHeadRows, to.z);
}

// Adds the two products that give a number for each head.
void ListSteps(const StateConfig& s, const std::string& prefix, int64_t hidden, StateWeights& to,
               Lister& list) {
  list.Matrix(prefix + "in_proj_a", s.num_heads, hidden, Cut::kStateHeadRows, to.step);
  list.last().of_head = 1;
  list.Matrix(prefix + "in_proj_b", s.num_heads, hidden, Cut::kStateHeadRows, to.strength);
  list.last().of_head = 1;
}

// A part of a tensor in which the rows of each key head, and of the heads that share it, are
// together.
struct GroupedPart {
  int64_t begin, count;  // of a group's rows
  Cut cut;
  int64_t of_head;
  kernels::Weight& matrix;
};

// Adds the parts of a tensor of `groups` groups, each of `stride` rows.
void ListGrouped(const std::string& name, int64_t groups, int64_t stride, int64_t hidden,
                 std::initializer_list<GroupedPart> parts, Lister& list) {
  for (const GroupedPart& part : parts) {
    list.Add({.name = name,
              .shape = {groups * stride, hidden},
              .rows = {0, groups * part.count},
              .order = {.group = part.count, .group_begin = part.begin, .group_stride = stride},
              .cut = part.cut,
              .of_head = part.of_head,
              .matrix = &part.matrix});
  }
}

void ListGroupedQueriesToZ(const StateConfig& s, const std::string& prefix, int64_t hidden,
                           StateWeights& to, Lister& list) {
  const int64_t groups = s.num_key_heads, keys = s.key_dim;
  const int64_t values = s.num_heads / groups * s.value_dim;
  ListGrouped(prefix + "in_proj_qkvz.weight", groups, 2 * keys + 2 * values, hidden,
              {{0, keys, Cut::kStateKeyRows, 0, to.q},
               {keys, keys, Cut::kStateKeyRows, 0, to.k},
               {2 * keys, values, Cut::kStateHeadRows, 0, to.v},
               {2 * keys + values, values, Cut::kStateHeadRows, 0, to.z}},
              list);
}

void ListGroupedSteps(const StateConfig& s, const std::string& prefix, int64_t hidden,
                      StateWeights& to, Lister& list) {
  const int64_t groups = s.num_key_heads, sharing = s.num_heads / groups;
  ListGrouped(prefix + "in_proj_ba.weight", groups, 2 * sharing, hidden,
              {{0, sharing, Cut::kStateHeadRows, 1, to.strength},
               {sharing, sharing, Cut::kStateHeadRows, 1, to.step}},
              list);
}

void ListDelta(const ModelConfig& c, const std::string& layer, LayerWeights& w, Lister& list) {
  const StateConfig& s = c.states;
  const int64_t hidden = c.hidden_size, heads = s.num_heads, values = heads * s.value_dim;
  const int64_t keys = int64_t{s.num_key_heads} * s.key_dim, all = 2 * keys + values;
  const std::string prefix = layer + "linear_attn.";
  StateWeights& to = w.states;
  if (c.names == WeightNames::kQwen3Next) {
    ListGroupedQueriesToZ(s, prefix, hidden, to, list);
  } else {
    ListQueriesToZ(s, prefix, hidden, to, list);
  }
  if (c.names == WeightNames::kQwen3Next || c.names == WeightNames::kQwen3NextParts) {
    ListGroupedSteps(s, prefix, hidden, to, list);
  } else {
    ListSteps(s, prefix, hidden, to, list);
  }
  const Channels parts[] = {{0, keys, Cut::kStateKeyRows, 0, to.q_taps, to.taps_bias},
                            {keys, keys, Cut::kStateKeyRows, 0, to.k_taps, to.k_taps_bias},
                            {2 * keys, values, Cut::kStateHeadRows, 0, to.v_taps, to.v_taps_bias}};
  for (const Channels& part : parts) {
    ListTaps(prefix + "conv1d.weight", all, s.conv_width, part, list);
  }
  list.Vector(prefix + "A_log", heads, Cut::kStateHeadRows, to.rate);
  list.last().of_head = 1;
  list.last().is_log_rate = true;
  list.Vector(prefix + "dt_bias", heads, Cut::kStateHeadRows, to.step_bias);
  list.last().of_head = 1;
  // This gain is stored as it is, whatever those of the other norms are.
  list.Vector(prefix + "norm.weight", s.value_dim, Cut::kWhole, to.gain);
  list.Matrix(prefix + "out_proj", hidden, values, Cut::kStateHeadColumns, w.o);
}

// The products are stored as one: z, and behind it what the convolution takes, x (values), B (keys)
// and C (queries), and the steps.
void ListSum(const ModelConfig& c, const std::string& layer, LayerWeights& w, Lister& list) {
  const StateConfig& s = c.states;
  const int64_t hidden = c.hidden_size, heads = s.num_heads, values = heads * s.value_dim;
  const int64_t keys = int64_t{s.num_key_heads} * s.key_dim, all = values + 2 * keys;
  const std::string prefix = layer + (c.names == WeightNames::kMixer ? "mixer." : "mamba.");
  StateWeights& to = w.states;
  list.Joined(prefix + "in_proj", hidden,
              {{values, Cut::kStateHeadRows, to.z},
               {values, Cut::kStateHeadRows, to.v},
               {keys, Cut::kStateKeyRows, to.k},
               {keys, Cut::kStateKeyRows, to.q},
               {heads, Cut::kStateHeadRows, to.step}});
  list.last().of_head = 1;
  const Channels parts[] = {{0, values, Cut::kStateHeadRows, 0, to.v_taps, to.v_taps_bias},
                            {values, keys, Cut::kStateKeyRows, 0, to.k_taps, to.k_taps_bias},
                            {values + keys, keys, Cut::kStateKeyRows, 0, to.q_taps, to.taps_bias}};
  for (const Channels& part : parts) {
    ListTaps(prefix + "conv1d.weight", all, s.conv_width, part, list);
  }
  if (s.conv_bias) {
    for (const Channels& part : parts) ListTapsBias(prefix + "conv1d.bias", all, part, list);
  }
  list.Vector(prefix + "A_log", heads, Cut::kStateHeadRows, to.rate);
  list.last().of_head = 1;
  list.last().is_log_rate = true;
  list.Vector(prefix + "dt_bias", heads, Cut::kStateHeadRows, to.step_bias);
  list.last().of_head = 1;
  list.Vector(prefix + "D", heads, Cut::kStateHeadRows, to.skip);
  list.last().of_head = 1;
  list.Vector(prefix + "norm.weight", values, Cut::kStateHeadRows, to.gain);
  list.Matrix(prefix + "out_proj", hidden, values, Cut::kStateHeadColumns, w.o);
}

}  // namespace

void ListStates(const ModelConfig& config, const std::string& layer, LayerWeights& weights,
                Lister& list) {
  switch (config.states.kind) {
    case StateKind::kNone:
      break;
    case StateKind::kConv:
      return ListConv(config, layer, weights, list);
    case StateKind::kDelta:
      return ListDelta(config, layer, weights, list);
    case StateKind::kSum:
      return ListSum(config, layer, weights, list);
  }
}

}  // namespace continuo::model
