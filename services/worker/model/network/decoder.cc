// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/decoder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "kernels/math/bfloat16.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/network/activations.h"
#include "services/worker/model/network/adapter_layers.h"
#include "services/worker/model/network/attention_layers.h"
#include "services/worker/model/network/mlp_layers.h"
#include "services/worker/model/network/per_layer_inputs.h"
#include "services/worker/model/network/state_layers.h"

namespace continuo::model {
namespace {

// The sizes of a pass's buffers.
ActivationSizes SizesOf(const ModelConfig& config, const Shard& shard, kernels::WeightType weights,
                        kernels::DType activations, int max_rows, bool has_adapters,
                        const kernels::Device& device) {
  const kernels::MatMulOps& matmul = device.ops().matmul;
  const int64_t k = std::max<int64_t>(
      {config.hidden_size, shard.inner.size(), shard.wide_inner.size(), shard.shared_inner.size()});
  return {.activations = activations,
          .rows = max_rows,
          .logit_rows = std::min(LogitRows(device), max_rows),
          .prepared_bytes =
              static_cast<int64_t>(matmul.PreparedBytes(matmul.FormatOf(weights), max_rows, k)),
          .joins_heads = JoinsHeads(config, shard, device),
          .adapter_width = has_adapters ? kMaxAdapterWidth : 0};
}

class Decoder : public Model {
 public:
  explicit Decoder(const ModelDependencies& parts)
      : config_(parts.config),
        shard_(parts.shard),
        weights_(parts.weights),
        device_(parts.device),
        ops_(parts.device.ops()),
        comm_(parts.communicator),
        states_(parts.states),
        adapters_(parts.device, parts.communicator),
        attention_(parts, adapters_),
        state_layers_(parts.config, parts.shard, parts.device, parts.communicator),
        mlps_(parts.config, parts.shard, parts.device, parts.communicator, adapters_),
        per_layer_(parts.config, parts.shard, parts.weights, parts.device.ops(),
                   parts.communicator) {
    int num_states = 0;
    for (int i = 0; i < config_.num_layers; ++i) {
      state_places_.push_back(config_.has_state(i) ? num_states++ : -1);
      if (config_.has_mixer(i)) last_mixer_ = i;
    }
    CONTINUO_CHECK(num_states == 0 || states_ != nullptr);
    // Models are trained with the scale in the activations' type.
    embedding_scale_ = static_cast<float>(config_.embedding_scale);
    if (parts.activations == kernels::DType::kBF16) {
      embedding_scale_ = kernels::FromBF16(kernels::ToBF16(embedding_scale_));
    } else if (parts.activations == kernels::DType::kF16) {
      embedding_scale_ = kernels::FromF16(kernels::ToF16(embedding_scale_));
    }
  }

  ~Decoder() override {
    if (memory_ != nullptr) device_.Free(memory_);
  }

  absl::Status Allocate(const ModelDependencies& parts) {
    const ActivationSizes sizes = SizesOf(config_, shard_, parts.weight_type, parts.activations,
                                          parts.max_rows, parts.has_adapters, device_);
    Activations counted;
    const int64_t bytes = LayOut(config_, shard_, sizes, nullptr, &counted);
    ASSIGN_OR_RETURN(memory_, device_.Allocate(static_cast<size_t>(bytes)));
    LayOut(config_, shard_, sizes, static_cast<uint8_t*>(memory_), &all_);
    adapters_.SetMemory(all_.adapted);
    RETURN_IF_ERROR(attention_.Prepare(all_));
    if (config_.num_state_layers() > 0) RETURN_IF_ERROR(state_layers_.Prepare(all_));
    RETURN_IF_ERROR(mlps_.Prepare(all_));
    return absl::OkStatus();
  }

  absl::Status Forward(const DeviceStep& step) override {
    // A replayed graph does not ask.
    RETURN_IF_ERROR(comm_.status());
    const int64_t rows = step.token_ids.rows(), wanted = step.wanted_rows.rows();
    CONTINUO_CHECK(wanted <= rows);
    buffers_ = all_.First(rows);
    if (step.hidden_rows.size() > 0) return EnqueueMtp(step);
    const kernels::Tensor& every = config_.reads_mtp ? all_.final_hidden : all_.x;
    hidden_ = RowsOf(wanted < rows ? all_.h : every, 0, wanted);
    if (!step.is_capturable || !IsCapturable(rows)) return Enqueue(step);
    std::array<int64_t, 25> key;
    auto at = key.begin();
    for (const kernels::Tensor& t :
         {step.token_ids, step.positions, step.kv_slots, step.kv.block_tables, step.kv.kv_len,
          step.kv.query_begin, step.states.from, step.states.to}) {
      for (const int64_t part : {reinterpret_cast<intptr_t>(t.data), t.shape[0], t.shape[1]}) {
        *at++ = part;
      }
    }
    *at = step.kv.num_decodes;
    return device_.RunGraph(key, [&] { return Enqueue(step); });
  }

  kernels::Tensor FinalStates(int64_t first, int64_t n) override {
    const kernels::Tensor hidden = RowsOf(hidden_, first, n);
    // They are normalised already.
    if (config_.reads_mtp || !config_.encoder.final_norm) return hidden;
    const kernels::Tensor last = RowsOf(all_.last, 0, n);
    Normalise(last, hidden, {weights_.final_gain, weights_.final_shift});
    return last;
  }

  kernels::Tensor Logits(int64_t first, int64_t n) override {
    const kernels::Tensor last = FinalStates(first, n);
    const kernels::Tensor part = RowsOf(all_.part, 0, n), logits = RowsOf(all_.logits, 0, n);
    ops_.matmul.MatMul(part, last, weights_.head, kernels::Tensor{});
    if (config_.logit_scale != 1) {
      ops_.rows.Scale(part, static_cast<float>(config_.logit_scale));
    }
    if (config_.final_softcap > 0) ops_.rows.SoftCap(part, config_.final_softcap);
    if (shard_.size > 1) comm_.AllGather(logits, part, shard_.vocab_begin);
    return logits;
  }

  // A step is not captured where the host waits to know how many rows each expert has, nor with
  // collectives that gather.
  bool IsCapturable(int64_t rows) const override {
    const bool gathers =
        config_.qk_norm == QueryKeyNorm::kWidth || config_.states.kind == StateKind::kSum;
    if (gathers && shard_.size > 1) return false;
    for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      if (!config_.has_experts(static_cast<int>(layer))) continue;
      const ExpertsWeights& experts = weights_.layers[layer].experts;
      const int64_t entries = rows * config_.experts.per_token;
      return !ops_.experts.NeedsHostRoutes(all_.h.dtype, experts.gate, entries);
    }
    return true;
  }

 private:
  // A norm of the residual stream; without a gain there is none.
  struct Norm {
    kernels::Tensor gain, shift;
  };

  // Enqueues the layers. Returns the error of a collective, after which the step is of no use.
  absl::Status Enqueue(const DeviceStep& step) {
    adapters_.Begin(step.adapters);
    Embed(step.token_ids);
    if (config_.encoder.is_encoder) FinishEmbedding(step);
    if (config_.per_layer_size > 0) per_layer_.Make(step.token_ids, buffers_);
    attention_.ComputeAngles(step.positions, buffers_);
    const int num_layers = static_cast<int>(weights_.layers.size());
    BeginLayers(0);
    for (int layer = 0; layer < num_layers; ++layer) {
      const Norm next = layer + 1 == num_layers ? Norm{} : FirstNorm(layer + 1);
      const bool keeps_wanted = layer == last_mixer_ && !config_.reads_mtp;
      if (!EnqueueLayer(layer, next, keeps_wanted, step)) break;
    }
    if (config_.reads_mtp) {
      // The module reads every row.
      Normalise(buffers_.final_hidden, buffers_.x, {weights_.final_gain, weights_.final_shift});
      if (hidden_.rows() > 0 && hidden_.rows() < buffers_.x.rows()) {
        ops_.rows.GatherRows(hidden_, buffers_.final_hidden, step.wanted_rows);
      }
    }
    return comm_.status();
  }

  // Enqueues the MTP module: one more layer, which reads the hidden states of the last pass.
  absl::Status EnqueueMtp(const DeviceStep& step) {
    adapters_.Begin(nullptr);
    const MtpWeights& w = weights_.mtp;
    const int hidden = config_.hidden_size;
    const auto join = [&](const kernels::Tensor& gain, int64_t begin) {
      Normalise(buffers_.h, buffers_.x, {gain, {}});
      ops_.rows.CopyHeads(buffers_.joined, buffers_.h,
                          {.num_heads = 1,
                           .count = hidden,
                           .out_stride = 2 * hidden,
                           .out_begin = begin,
                           .x_stride = hidden});
    };
    Embed(step.token_ids);
    join(w.embedding_gain, 0);
    ops_.rows.GatherRows(buffers_.x, all_.final_hidden, step.hidden_rows);
    join(w.hidden_gain, hidden);
    ops_.matmul.MatMul(buffers_.x, buffers_.joined, w.join, {});
    attention_.ComputeAngles(step.positions, buffers_);
    BeginLayers(config_.num_layers);
    if (EnqueueLayer(config_.num_layers, Norm{}, /*keeps_wanted=*/true, step)) {
      hidden_ = RowsOf(all_.final_hidden, 0, buffers_.x.rows());
      Normalise(hidden_, buffers_.x, {w.final_gain, {}});
    }
    return comm_.status();
  }

  // The residual stream, normalised for the first of some layers, becomes the input.
  void BeginLayers(int layer) { NormaliseInput(FirstNorm(layer)); }

  // Enqueues a layer, behind whose mixer the wanted rows alone are kept if `keeps_wanted`. Returns
  // false where no row is left.
  bool EnqueueLayer(int layer, const Norm& next, bool keeps_wanted, const DeviceStep& step) {
    const LayerWeights& w = LayerAt(layer);
    attention_.SelectHeads(layer, buffers_);
    if (config_.per_layer_size > 0) per_layer_.Take(layer, buffers_);
    if (config_.has_mixer(layer)) {
      const int64_t wanted = step.wanted_rows.rows();
      if (config_.has_state(layer)) {
        // The states change even where no row is wanted.
        const StateCache::Layer states =
            states_->LayerAt(state_places_[static_cast<size_t>(layer)]);
        mixed_ = state_layers_.Mix(w.states, states, input_, buffers_, step.states);
      } else {
        attention_.WriteKeysAndValues(w, layer, input_, step, buffers_);
      }
      if (keeps_wanted && wanted == 0) return false;
      if (!config_.has_state(layer)) mixed_ = attention_.Attend(w, layer, step, buffers_);
      if (keeps_wanted && wanted < step.token_ids.rows()) {
        KeepRows(step.wanted_rows, layer);
        adapters_.Begin(step.wanted_adapters);
      }
      AddMixed(w, layer, config_.has_mlp(layer) ? Norm{w.mlp_gain, w.mlp_shift} : next);
    }
    if (!config_.has_mlp(layer)) return true;
    // The input becomes that of the next layer, normalised with `next`.
    kernels::Tensor bias;
    if (!config_.has_experts(layer)) {
      mlps_.Dense(w, layer, input_, buffers_);
      bias = w.down_bias;
    } else if (config_.experts.beside_dense) {
      mlps_.SideBySide(w, layer, input_, buffers_);
    } else {
      mlps_.Experts(w.experts, input_, buffers_);
    }
    if (config_.has_layer_ends()) {
      EndLayer(w, bias, next);
    } else if (config_.encoder.stream_norms) {
      NextStream(bias, {w.mlp_output_gain, w.mlp_output_shift});
    } else {
      NextInput(bias, w.mlp_output_gain, next);
    }
    return true;
  }

  // Adds `sum` to the residual stream, and ends the layer there.
  void EndLayer(const LayerWeights& w, kernels::Tensor bias, const Norm& next) {
    AddToStream(bias, w.mlp_output_gain);
    if (config_.per_layer_size > 0) per_layer_.Add(w, buffers_);
    if (config_.layer_scales) ops_.rows.ScaleBy(buffers_.x, w.layer_scale);
    NormaliseInput(next);
  }

  const LayerWeights& LayerAt(int layer) const {
    return layer == config_.num_layers ? weights_.mtp.layer
                                       : weights_.layers[static_cast<size_t>(layer)];
  }

  Norm FirstNorm(int layer) const {
    const LayerWeights& w = LayerAt(layer);
    if (!config_.has_mixer(layer)) return {w.mlp_gain, w.mlp_shift};
    return {w.attention_gain, w.attention_shift};
  }

  void Normalise(kernels::Tensor out, kernels::Tensor x, const Norm& norm) {
    if (config_.norm == NormKind::kLayer) {
      ops_.rows.LayerNorm(out, x, norm.gain, norm.shift, config_.norm_eps);
    } else {
      ops_.rows.RmsNorm(out, x, norm.gain, config_.norm_eps);
    }
  }

  void Embed(kernels::Tensor token_ids) {
    if (shard_.size == 1) {
      ops_.rows.Embed(buffers_.x, weights_.embedding, token_ids, 0, embedding_scale_);
      return;
    }
    // Each id is in one rank's part of the table; the others add -0.0.
    ops_.rows.Embed(buffers_.sum, weights_.embedding, token_ids,
                    static_cast<int>(shard_.vocab.begin), embedding_scale_);
    comm_.AllReduceSum(buffers_.sum);
    // No id is in a part that begins beyond all of them, so x becomes -0.0, to which the sum is
    // added.
    ops_.rows.Embed(buffers_.x, weights_.embedding, token_ids, std::numeric_limits<int>::max(),
                    1.0f);
    ops_.rows.AddSum(buffers_.x, buffers_.sum, kernels::Tensor{});
  }

  // Adds the vectors of positions and of parts of a text, and normalises the sum. Every rank has
  // the whole tables.
  void FinishEmbedding(const DeviceStep& step) {
    const EncoderConfig& encoder = config_.encoder;
    const Norm norm = {weights_.embedding_gain, weights_.embedding_shift};
    if (encoder.num_positions > 0) {
      ops_.rows.Embed(buffers_.sum, weights_.positions, step.positions, -encoder.first_position,
                      1.0f);
      ops_.rows.AddSum(buffers_.x, buffers_.sum, kernels::Tensor{});
    }
    if (encoder.num_token_types > 0) {
      ops_.rows.Embed(buffers_.sum, weights_.token_types, step.token_types, 0, 1.0f);
      ops_.rows.AddSum(buffers_.x, buffers_.sum, kernels::Tensor{});
    }
    if (encoder.embedding_norm) Normalise(buffers_.x, buffers_.x, norm);
  }

  // Goes on with these rows alone, in memory that is free by now. Where the MLP reads what
  // attention read, that is computed again.
  void KeepRows(kernels::Tensor rows, int layer) {
    const kernels::Tensor mixed = mixed_, x = buffers_.x;
    buffers_ = all_.First(rows.rows());
    attention_.SelectHeads(layer, buffers_);
    if (config_.per_layer_size > 0) per_layer_.Keep(rows, buffers_);
    mixed_ = config_.has_state(layer) ? buffers_.states.v : buffers_.q;
    ops_.rows.GatherRows(mixed_, mixed, rows);
    ops_.rows.GatherRows(buffers_.h, x, rows);
    std::swap(buffers_.x, buffers_.h);
    if (!config_.parallel) return;
    Normalise(buffers_.h, buffers_.x, FirstNorm(layer));
    input_ = buffers_.h;
  }

  // Adds the output projection of `mixed_`. The input becomes that of the next part, normalised
  // with `next`.
  void AddMixed(const LayerWeights& w, int layer, const Norm& next) {
    kernels::Tensor heads = mixed_;
    const bool has_state = config_.has_state(layer);
    if (!has_state && config_.value_dim() < config_.head_dim) {
      heads = buffers_.short_a;
      ops_.rows.CopyHeads(heads, mixed_,
                          {.num_heads = static_cast<int>(shard_.heads.size()),
                           .count = config_.value_dim(),
                           .out_stride = config_.value_dim(),
                           .x_stride = config_.head_dim});
    }
    const std::vector<int64_t>& splits =
        has_state ? shard_.state_splits : shard_.head_splits_of(config_.has_other_heads(layer));
    ops_.matmul.MatMulSplitK(buffers_.sum, heads, w.o, splits);
    comm_.AllReduceSum(buffers_.sum);
    adapters_.AddSplitK(layer, AdaptedMatrix::kO, heads, splits, buffers_.sum);
    if (config_.parallel) {
      AddToStream(w.o_bias, {});
    } else if (config_.encoder.stream_norms) {
      NextStream(w.o_bias, {w.attention_output_gain, w.attention_output_shift});
    } else {
      NextInput(w.o_bias, w.attention_output_gain, next);
    }
  }

  // Makes `sum` what is added to the residual stream: normalised with output_gain, unless that is
  // empty, and multiplied. Biases were multiplied at load.
  void FinishSum(kernels::Tensor output_gain) {
    if (output_gain.size() > 0) {
      ops_.rows.RmsNorm(buffers_.sum, buffers_.sum, output_gain, config_.norm_eps);
    }
    if (config_.residual_scale != 1) {
      ops_.rows.Scale(buffers_.sum, static_cast<float>(config_.residual_scale));
    }
  }

  // Adds `sum` to the residual stream; the input stays as it is.
  void AddToStream(kernels::Tensor bias, kernels::Tensor output_gain) {
    FinishSum(output_gain);
    ops_.rows.AddSum(buffers_.x, buffers_.sum, bias);
  }

  // The same, and the next input becomes the stream, normalised with `next` where that has a gain.
  void NextInput(kernels::Tensor bias, kernels::Tensor output_gain, const Norm& next) {
    if (next.gain.size() > 0 && config_.norm == NormKind::kRms) {
      FinishSum(output_gain);
      input_ = ops_.rows.AddSumNorm(buffers_.h, buffers_.x, buffers_.sum, bias, next.gain,
                                    config_.norm_eps, all_.prepared);
      return;
    }
    AddToStream(bias, output_gain);
    NormaliseInput(next);
  }

  // Adds `sum` to the residual stream and normalises that, which is the next input.
  void NextStream(kernels::Tensor bias, const Norm& norm) {
    ops_.rows.AddSum(buffers_.x, buffers_.sum, bias);
    Normalise(buffers_.x, buffers_.x, norm);
    input_ = buffers_.x;
  }

  // The input becomes the residual stream, normalised with `norm` where that has a gain.
  void NormaliseInput(const Norm& norm) {
    input_ = buffers_.x;
    if (norm.gain.size() == 0) return;
    Normalise(buffers_.h, buffers_.x, norm);
    input_ = buffers_.h;
  }

  const ModelConfig& config_;
  const Shard& shard_;
  const ModelWeights& weights_;
  kernels::Device& device_;
  const kernels::Ops& ops_;
  kernels::Communicator& comm_;
  const StateCache* const states_;
  AdapterLayers adapters_;
  AttentionLayers attention_;
  StateLayers state_layers_;
  MlpLayers mlps_;
  PerLayerInputs per_layer_;
  std::vector<int> state_places_;  // of each layer in states_; -1: it has none
  int last_mixer_ = 0;
  float embedding_scale_ = 1;
  void* memory_ = nullptr;
  Activations all_;             // of max_rows
  Activations buffers_;         // the first rows of all_, those of the current pass
  kernels::MatMulInput input_;  // the current layer's input, normalised; h
  kernels::Tensor mixed_;       // the input of the current layer's output projection
  kernels::Tensor hidden_;      // of the last pass's wanted rows
};

}  // namespace

int64_t ScratchBytes(const ModelConfig& config, const Shard& shard, kernels::WeightType weights,
                     kernels::DType activations, int max_rows, bool has_adapters,
                     const kernels::Device& device) {
  Activations buffers;
  return LayOut(config, shard,
                SizesOf(config, shard, weights, activations, max_rows, has_adapters, device),
                nullptr, &buffers);
}

absl::StatusOr<std::unique_ptr<Model>> MakeDecoder(const ModelDependencies& parts) {
  auto model = std::make_unique<Decoder>(parts);
  RETURN_IF_ERROR(model->Allocate(parts));
  return model;
}

}  // namespace continuo::model
