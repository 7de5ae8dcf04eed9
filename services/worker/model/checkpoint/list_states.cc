// SPDX-License-Identifier: Apache-2.0
// ListStates: the tensors of layers with a recurrent state.
#include <string>

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

void ListConv(const ModelConfig& c, const std::string& layer, LayerWeights& w, Lister& list) {
  const int64_t hidden = c.hidden_size, dim = c.states.value_dim;
  const std::string prefix = layer + "conv.";
  const Cut cut = Cut::kStateHeadRows;
  list.Joined(prefix + "in_proj", hidden,
              {{hidden, cut, w.states.q}, {hidden, cut, w.states.z}, {hidden, cut, w.states.v}});
  ListTaps(prefix + "conv.weight", hidden, c.states.conv_width,
           {0, hidden, cut, dim, w.states.q_taps}, list);
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

void ListDelta(const ModelConfig& c, const std::string& layer, LayerWeights& w, Lister& list) {
  const StateConfig& s = c.states;
  const int64_t hidden = c.hidden_size, heads = s.num_heads, values = heads * s.value_dim;
  const int64_t keys = int64_t{s.num_key_heads} * s.key_dim, all = 2 * keys + values;
  const std::string prefix = layer + "linear_attn.";
  StateWeights& to = w.states;
  list.Joined(prefix + "in_proj_qkv", hidden,
              {{keys, Cut::kStateKeyRows, to.q},
               {keys, Cut::kStateKeyRows, to.k},
               {values, Cut::kStateHeadRows, to.v}});
  const Channels parts[] = {{0, keys, Cut::kStateKeyRows, 0, to.q_taps},
                            {keys, keys, Cut::kStateKeyRows, 0, to.k_taps},
                            {2 * keys, values, Cut::kStateHeadRows, 0, to.v_taps}};
  for (const Channels& part : parts) {
    ListTaps(prefix + "conv1d.weight", all, s.conv_width, part, list);
  }
  list.Matrix(prefix + "in_proj_z", values, hidden, Cut::kStateHeadRows, to.z);
  list.Matrix(prefix + "in_proj_a", heads, hidden, Cut::kStateHeadRows, to.step);
  list.last().of_head = 1;
  list.Matrix(prefix + "in_proj_b", heads, hidden, Cut::kStateHeadRows, to.strength);
  list.last().of_head = 1;
  list.Vector(prefix + "A_log", heads, Cut::kStateHeadRows, to.rate);
  list.last().of_head = 1;
  list.last().is_log_rate = true;
  list.Vector(prefix + "dt_bias", heads, Cut::kStateHeadRows, to.step_bias);
  list.last().of_head = 1;
  // This gain is stored as it is, whatever those of the other norms are.
  list.Vector(prefix + "norm.weight", s.value_dim, Cut::kWhole, to.gain);
  list.Matrix(prefix + "out_proj", hidden, values, Cut::kStateHeadColumns, w.o);
}

}  // namespace

void ListStates(const ModelConfig& config, const std::string& layer, LayerWeights& weights,
                Lister& list) {
  if (config.states.kind == StateKind::kConv) {
    ListConv(config, layer, weights, list);
  } else {
    ListDelta(config, layer, weights, list);
  }
}

}  // namespace continuo::model
