// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/llama.h"

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/exact_math.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo {
namespace {

// Activations of one pass, each [max_rows, …] in one arena; a step uses the first rows.
struct Buffers {
  Tensor x, h;         // [rows, hidden]: the residual stream and its norm
  Tensor q, k, v, a;   // [rows, heads * head_dim] of this rank
  Tensor sum;          // f32 [rows, hidden]: what the ranks add up
  Tensor gate, up;     // [rows, inner] of this rank
  Tensor angles;       // f32 [rows, head_dim]
  Tensor last;         // [kLogitRows, hidden]
  Tensor part;         // f32 [kLogitRows, vocab] of this rank
  Tensor logits;       // f32 [kLogitRows, vocab]; the same as `part` with one rank
  Tensor frequencies;  // f32 [head_dim / 2]
};

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

// Lays the buffers out from `base` (null: only to count) and returns their bytes.
int64_t LayOut(const ModelConfig& c, const Shard& s, DType activations, int64_t rows, uint8_t* base,
               Buffers* b) {
  int64_t offset = 0;
  const auto place = [&](Tensor& tensor, DType dtype, int64_t n, int64_t cols) {
    tensor = {base == nullptr ? nullptr : base + offset, dtype, {n, cols, 1}};
    offset += (static_cast<int64_t>(tensor.bytes()) + 63) / 64 * 64;
  };
  const int64_t hidden = c.hidden_size, dim = c.head_dim;
  place(b->x, activations, rows, hidden);
  place(b->h, activations, rows, hidden);
  place(b->q, activations, rows, s.heads.size() * dim);
  place(b->k, activations, rows, s.kv_heads.size() * dim);
  place(b->v, activations, rows, s.kv_heads.size() * dim);
  place(b->a, activations, rows, s.heads.size() * dim);
  place(b->sum, DType::kF32, rows, hidden);
  place(b->gate, activations, rows, s.inner.size());
  place(b->up, activations, rows, s.inner.size());
  place(b->angles, DType::kF32, rows, dim);
  place(b->last, activations, kLogitRows, hidden);
  place(b->part, DType::kF32, kLogitRows, s.vocab.size());
  if (s.size > 1) {
    place(b->logits, DType::kF32, kLogitRows, c.vocab_size);
  } else {
    b->logits = b->part;
  }
  place(b->frequencies, DType::kF32, 1, dim / 2);
  b->frequencies.shape = {dim / 2, 1, 1};
  return offset;
}

Tensor FirstRows(Tensor tensor, int64_t rows) {
  CONTINUO_CHECK(rows <= tensor.shape[0]);
  tensor.shape[0] = rows;
  return tensor;
}

class Llama : public Model {
 public:
  explicit Llama(const ModelParts& parts)
      : config_(parts.config),
        shard_(parts.shard),
        weights_(parts.weights),
        b_(parts.backend),
        comm_(parts.communicator),
        cache_(parts.cache) {
    attention_.num_heads = static_cast<int>(shard_.heads.size());
    attention_.num_kv_heads = static_cast<int>(shard_.kv_heads.size());
    attention_.head_dim = config_.head_dim;
    attention_.heads_per_kv_head = config_.num_heads / config_.num_kv_heads;
    attention_.first_head = static_cast<int>(shard_.heads.begin);
    attention_.first_kv_head = static_cast<int>(shard_.kv_heads.begin);
    attention_.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  }

  ~Llama() override {
    if (memory_ != nullptr) b_.Free(memory_);
  }

  absl::Status Allocate(DType activations, int max_rows) {
    const size_t bytes = static_cast<size_t>(ScratchBytes(config_, shard_, activations, max_rows));
    ASSIGN_OR_RETURN(memory_, b_.Allocate(bytes));
    LayOut(config_, shard_, activations, max_rows, static_cast<uint8_t*>(memory_), &all_);
    const std::vector<float> frequencies = RopeFrequencies(config_.rope, config_.head_dim);
    b_.CopyIn(all_.frequencies, frequencies.data());
    return b_.Synchronize();
  }

  void Forward(const DeviceStep& step) override {
    Cut(step.token_ids.rows());
    Embed(step.token_ids);
    b_.RopeAngles(now_.angles, step.positions, all_.frequencies, 1.0f);
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const LayerWeights& w = weights_.layers[i];
      Attention(w, static_cast<int>(i), step);
      Mlp(w);
    }
  }

  Tensor Logits(Tensor rows) override {
    const int64_t n = rows.rows();
    const Tensor last = FirstRows(all_.last, n);
    const Tensor part = FirstRows(all_.part, n), logits = FirstRows(all_.logits, n);
    b_.GatherRows(last, now_.x, rows);
    b_.RmsNorm(last, last, weights_.final_gain, config_.rms_norm_eps);
    b_.MatMul(part, last, weights_.head, Tensor{});
    if (shard_.size > 1) comm_.AllGather(logits, part, shard_.vocab_begin);
    return logits;
  }

 private:
  // Views of the buffers for this step's rows.
  void Cut(int64_t rows) {
    now_ = all_;
    for (Tensor* tensor : {&now_.x, &now_.h, &now_.q, &now_.k, &now_.v, &now_.a, &now_.sum,
                           &now_.gate, &now_.up, &now_.angles}) {
      *tensor = FirstRows(*tensor, rows);
    }
  }

  void Embed(Tensor token_ids) {
    if (shard_.size == 1) {
      b_.Embed(now_.x, weights_.embedding, token_ids, 0, 1.0f);
      return;
    }
    // Each id is in one rank's part, the others add -0.0.
    b_.Embed(now_.sum, weights_.embedding, token_ids, static_cast<int>(shard_.vocab.begin), 1.0f);
    comm_.AllReduceSum(now_.sum);
    // No id is in a part that begins beyond all of them: x is -0.0, to which the sum is added.
    b_.Embed(now_.x, weights_.embedding, token_ids, std::numeric_limits<int>::max(), 1.0f);
    b_.AddSum(now_.x, now_.sum, Tensor{});
  }

  void Attention(const LayerWeights& w, int layer, const DeviceStep& step) {
    const PagedKv kv = cache_.Layer(layer, step.kv);
    AttentionParams params = attention_;
    params.window = config_.windows[static_cast<size_t>(layer)];

    b_.RmsNorm(now_.h, now_.x, w.attention_gain, config_.rms_norm_eps);
    b_.MatMul(now_.q, now_.h, w.q, w.q_bias);
    b_.MatMul(now_.k, now_.h, w.k, w.k_bias);
    b_.MatMul(now_.v, now_.h, w.v, w.v_bias);
    if (config_.qk_norm) {
      b_.RmsNorm(now_.q, now_.q, w.q_gain, config_.rms_norm_eps);
      b_.RmsNorm(now_.k, now_.k, w.k_gain, config_.rms_norm_eps);
    }
    b_.Rope(now_.q, now_.angles, config_.head_dim);
    b_.Rope(now_.k, now_.angles, config_.head_dim);
    b_.WriteKv(kv, now_.k, now_.v, step.kv_slots);
    b_.PagedAttention(now_.a, now_.q, kv, params);
    b_.MatMulPieces(now_.sum, now_.a, w.o, shard_.head_pieces);
    comm_.AllReduceSum(now_.sum);
    b_.AddSum(now_.x, now_.sum, w.o_bias);
  }

  void Mlp(const LayerWeights& w) {
    b_.RmsNorm(now_.h, now_.x, w.mlp_gain, config_.rms_norm_eps);
    b_.MatMul(now_.gate, now_.h, w.gate, w.gate_bias);
    b_.MatMul(now_.up, now_.h, w.up, w.up_bias);
    b_.SiluMul(now_.gate, now_.gate, now_.up);
    b_.MatMulPieces(now_.sum, now_.gate, w.down, shard_.inner_pieces);
    comm_.AllReduceSum(now_.sum);
    b_.AddSum(now_.x, now_.sum, w.down_bias);
  }

  const ModelConfig& config_;
  const Shard& shard_;
  const ModelWeights& weights_;
  Backend& b_;
  Communicator& comm_;
  const KvCache& cache_;
  AttentionParams attention_;
  void* memory_ = nullptr;
  Buffers all_, now_;
};

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope, int head_dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * i / head_dim;
    double frequency = ExactPow(rope.theta, exponent);
    if (rope.type == RopeConfig::Type::kLinear) {
      frequency /= rope.factor;
    } else if (rope.type == RopeConfig::Type::kLlama3) {
      // How many turns the wave makes in the context that the model was first trained with.
      const double turns = static_cast<double>(rope.original_context) * frequency / kTwoPi;
      if (turns < rope.low_freq_factor) {
        frequency /= rope.factor;
      } else if (turns <= rope.high_freq_factor) {
        const double keep =
            (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        frequency = (1.0 - keep) * frequency / rope.factor + keep * frequency;
      }
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

int64_t ScratchBytes(const ModelConfig& config, const Shard& shard, DType activations,
                     int max_rows) {
  Buffers buffers;
  return LayOut(config, shard, activations, max_rows, nullptr, &buffers);
}

absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const ModelParts& parts) {
  auto model = std::make_unique<Llama>(parts);
  RETURN_IF_ERROR(model->Allocate(parts.activations, parts.max_rows));
  return model;
}

}  // namespace continuo
