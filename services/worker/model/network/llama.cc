// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/llama.h"

#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/network/activations.h"
#include "services/worker/model/network/rope.h"

namespace continuo::model {
namespace {

class Llama : public Model {
 public:
  explicit Llama(const ModelParts& parts)
      : config_(parts.config),
        shard_(parts.shard),
        weights_(parts.weights),
        b_(parts.backend),
        comm_(parts.communicator),
        cache_(parts.cache),
        gate_function_(parts.config.activation == Activation::kGeluTanh
                           ? kernels::GateFunction::kGelu
                           : kernels::GateFunction::kSilu) {
    attention_.num_heads = static_cast<int>(shard_.heads.size());
    attention_.num_kv_heads = static_cast<int>(shard_.kv_heads.size());
    attention_.head_dim = config_.head_dim;
    attention_.heads_per_kv_head = config_.num_heads / config_.num_kv_heads;
    attention_.first_head = static_cast<int>(shard_.heads.begin);
    attention_.first_kv_head = static_cast<int>(shard_.kv_heads.begin);
    attention_.scale = static_cast<float>(config_.attention_scale);
    attention_.softcap = config_.attention_softcap;
    // Models are trained with the scale in the activations' type.
    embedding_scale_ = static_cast<float>(config_.embedding_scale);
    if (parts.activations == kernels::DType::kBF16) {
      embedding_scale_ = kernels::FromBF16(kernels::ToBF16(embedding_scale_));
    } else if (parts.activations == kernels::DType::kF16) {
      embedding_scale_ = kernels::FromF16(kernels::ToF16(embedding_scale_));
    }
  }

  ~Llama() override {
    if (memory_ != nullptr) b_.Free(memory_);
  }

  absl::Status Allocate(kernels::DType activations, int max_rows) {
    const size_t bytes =
        static_cast<size_t>(ScratchBytes(config_, shard_, activations, max_rows, b_));
    ASSIGN_OR_RETURN(memory_, b_.Allocate(bytes));
    LayOut(config_, shard_, activations, max_rows, LogitRows(b_), static_cast<uint8_t*>(memory_),
           &all_);
    const std::vector<float> frequencies =
        RopeFrequencies(config_.rope, config_.rotary_dim, config_.context_length);
    b_.CopyIn(all_.frequencies, frequencies.data());
    return b_.Synchronize();
  }

  absl::Status Forward(const DeviceStep& step) override {
    // What is repeated does not ask again.
    RETURN_IF_ERROR(comm_.status());
    const int64_t rows = step.token_ids.rows(), wanted = step.wanted_rows.rows();
    CONTINUO_CHECK(wanted <= rows);
    now_ = all_.First(rows);
    hidden_ = RowsOf(wanted < rows ? all_.h : all_.x, 0, wanted);
    if (!step.recurs || !Repeats(rows)) return Enqueue(step);
    std::array<int64_t, 19> key;
    auto at = key.begin();
    for (const kernels::Tensor& t : {step.token_ids, step.positions, step.kv_slots,
                                     step.kv.block_tables, step.kv.kv_len, step.kv.query_begin}) {
      for (const int64_t part : {reinterpret_cast<intptr_t>(t.data), t.shape[0], t.shape[1]}) {
        *at++ = part;
      }
    }
    *at = step.kv.num_single;
    return b_.Repeat(key, [&] { return Enqueue(step); });
  }

  kernels::Tensor Logits(int64_t first, int64_t n) override {
    const kernels::Tensor last = RowsOf(all_.last, 0, n);
    const kernels::Tensor part = RowsOf(all_.part, 0, n), logits = RowsOf(all_.logits, 0, n);
    b_.RmsNorm(last, RowsOf(hidden_, first, n), weights_.final_gain, config_.rms_norm_eps);
    b_.MatMul(part, last, weights_.head, kernels::Tensor{});
    if (config_.final_softcap > 0) b_.SoftCap(part, config_.final_softcap);
    if (shard_.size > 1) comm_.AllGather(logits, part, shard_.vocab_begin);
    return logits;
  }

  // Not where the host waits for the experts' numbers of rows.
  bool Repeats(int64_t rows) const override {
    for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      if (!config_.has_experts(static_cast<int>(layer))) continue;
      const ExpertsWeights& experts = weights_.layers[layer].experts;
      const int64_t entries = rows * config_.experts.per_token;
      return !b_.WaitsForExperts(all_.h.dtype, experts.gate, entries);
    }
    return true;
  }

 private:
  // The error of a collective, after which nothing of the step is of use.
  absl::Status Enqueue(const DeviceStep& step) {
    Embed(step.token_ids);
    b_.RopeAngles(now_.angles, step.positions, all_.frequencies,
                  static_cast<float>(config_.rope.attention_factor));
    const int num_layers = static_cast<int>(weights_.layers.size());
    b_.RmsNorm(now_.h, now_.x, weights_.layers[0].attention_gain, config_.rms_norm_eps);
    for (int layer = 0; layer < num_layers; ++layer) {
      const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
      const bool is_last = layer + 1 == num_layers;
      KeysAndValues(w, layer, step);
      // From here on the last layer is for the wanted rows alone.
      if (is_last && step.wanted_rows.rows() == 0) break;
      Attention(layer, step);
      if (is_last && step.wanted_rows.rows() < step.token_ids.rows()) Keep(step.wanted_rows);
      AddAttention(w);
      const kernels::Tensor next_gain =
          is_last ? kernels::Tensor{}
                  : weights_.layers[static_cast<size_t>(layer) + 1].attention_gain;
      if (config_.has_experts(layer)) {
        Experts(w, next_gain);
      } else {
        Mlp(w, next_gain);
      }
    }
    return comm_.status();
  }

  void Embed(kernels::Tensor token_ids) {
    if (shard_.size == 1) {
      b_.Embed(now_.x, weights_.embedding, token_ids, 0, embedding_scale_);
      return;
    }
    // Each id is in one rank's part, the others add -0.0.
    b_.Embed(now_.sum, weights_.embedding, token_ids, static_cast<int>(shard_.vocab.begin),
             embedding_scale_);
    comm_.AllReduceSum(now_.sum);
    // No id is in a part that begins beyond all of them: x is -0.0, to which the sum is added.
    b_.Embed(now_.x, weights_.embedding, token_ids, std::numeric_limits<int>::max(), 1.0f);
    b_.AddSum(now_.x, now_.sum, kernels::Tensor{});
  }

  // h is the layer's input, normalised.
  void KeysAndValues(const LayerWeights& w, int layer, const DeviceStep& step) {
    b_.MatMuls(now_.h,
               std::array<kernels::Product, 3>{
                   {{now_.q, w.q, w.q_bias}, {now_.k, w.k, w.k_bias}, {now_.v, w.v, w.v_bias}}});
    kernels::HeadRotation rotation = {
        .eps = config_.rms_norm_eps, .angles = now_.angles, .head_dim = config_.head_dim};
    if (config_.qk_norm) {
      rotation.q_gain = w.q_gain;
      rotation.k_gain = w.k_gain;
    }
    b_.RotateAndWriteKv(cache_.Layer(layer, step.kv), now_.q, now_.k, now_.v, step.kv_slots,
                        rotation);
  }

  void Attention(int layer, const DeviceStep& step) {
    kernels::AttentionParams params = attention_;
    params.window = config_.windows[static_cast<size_t>(layer)];
    b_.PagedAttention(now_.a, now_.q, cache_.Layer(layer, step.kv), params);
  }

  // Goes on with these rows alone, in memory that is free by now.
  void Keep(kernels::Tensor rows) {
    const kernels::Tensor a = now_.a, x = now_.x;
    now_ = all_.First(rows.rows());
    b_.GatherRows(now_.q, a, rows);
    b_.GatherRows(now_.h, x, rows);
    std::swap(now_.a, now_.q);
    std::swap(now_.x, now_.h);
  }

  void AddAttention(const LayerWeights& w) {
    b_.MatMulPieces(now_.sum, now_.a, w.o, shard_.head_pieces);
    comm_.AllReduceSum(now_.sum);
    AddToStream(w.o_bias, w.attention_output_gain, w.mlp_gain);
  }

  // h is the input, normalised, and then that of the next layer, with next_gain.
  void Mlp(const LayerWeights& w, kernels::Tensor next_gain) {
    b_.GatedMatMul(now_.h, {now_.gate, w.gate, w.gate_bias}, {now_.up, w.up, w.up_bias},
                   gate_function_);
    b_.MatMulPieces(now_.sum, now_.gate, w.down, shard_.inner_pieces);
    comm_.AllReduceSum(now_.sum);
    AddToStream(w.down_bias, w.mlp_output_gain, next_gain);
  }

  // Every rank picks the same experts and holds a part of each. An expert's pieces meet before the
  // experts do: what each gives is rounded once, whatever the number of ranks.
  void Experts(const LayerWeights& w, kernels::Tensor next_gain) {
    b_.MatMul(now_.router_logits, now_.h, w.experts.router, kernels::Tensor{});
    b_.RouteExperts(now_.routes, now_.router_logits, config_.experts.normalise);
    b_.GatedExpertMatMul(now_.expert_gate, now_.expert_up, now_.h, w.experts.gate, w.experts.up,
                         now_.routes, gate_function_);
    b_.ExpertMatMulPieces(now_.expert_sum, now_.expert_gate, w.experts.down, now_.routes,
                          shard_.expert_pieces);
    comm_.AllReduceSum(now_.expert_sum);
    b_.CombineExperts(now_.sum, now_.expert_sum, now_.routes);
    AddToStream(kernels::Tensor{}, w.mlp_output_gain, next_gain);
  }

  // Adds `sum`, through its norm where there is one, to the residual stream; h becomes that with
  // next_gain, unless it is empty.
  void AddToStream(kernels::Tensor bias, kernels::Tensor output_gain, kernels::Tensor next_gain) {
    if (config_.output_norms) b_.RmsNorm(now_.sum, now_.sum, output_gain, config_.rms_norm_eps);
    if (next_gain.size() == 0) {
      b_.AddSum(now_.x, now_.sum, bias);
    } else {
      b_.AddSumNorm(now_.h, now_.x, now_.sum, bias, next_gain, config_.rms_norm_eps);
    }
  }

  const ModelConfig& config_;
  const Shard& shard_;
  const ModelWeights& weights_;
  kernels::Backend& b_;
  kernels::Communicator& comm_;
  const KvCache& cache_;
  const kernels::GateFunction gate_function_;
  kernels::AttentionParams attention_;
  float embedding_scale_ = 1;
  void* memory_ = nullptr;
  Activations all_, now_;
  kernels::Tensor hidden_;  // of the last pass's wanted rows
};

}  // namespace

int64_t ScratchBytes(const ModelConfig& config, const Shard& shard, kernels::DType activations,
                     int max_rows, const kernels::Backend& backend) {
  Activations buffers;
  return LayOut(config, shard, activations, max_rows, LogitRows(backend), nullptr, &buffers);
}

absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const ModelParts& parts) {
  auto model = std::make_unique<Llama>(parts);
  RETURN_IF_ERROR(model->Allocate(parts.activations, parts.max_rows));
  return model;
}

}  // namespace continuo::model
