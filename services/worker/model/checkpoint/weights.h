// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights_cache.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// One rank's part of the experts of a layer. X: this rank's inner columns of an expert, S: those of
// the shared one.
struct ExpertsWeights {
  kernels::Weight router;  // [num_experts, hidden]
  // Beside a dense MLP: the gain of the router's norm, and factors of the experts' weights.
  kernels::Tensor router_gain;            // [hidden]
  kernels::Tensor factors;                // [num_experts]
  kernels::Tensor router_bias;            // [num_experts]
  kernels::Tensor correction;             // [num_experts]
  std::vector<kernels::Weight> gate, up;  // [X, hidden]
  std::vector<kernels::Weight> down;      // [hidden, X]
  kernels::Tensor gate_bias, up_bias;     // [num_experts, X]
  kernels::Tensor down_bias;              // [num_experts, hidden]
  // These two project to a latent_size L and back, which is then the experts' hidden size; they are
  // empty where there is none.
  kernels::Weight latent_in;               // [L, hidden]
  kernels::Weight latent_out;              // [hidden, L]
  kernels::Weight shared_gate, shared_up;  // [S, hidden]
  kernels::Weight shared_down;             // [hidden, S]
  kernels::Weight shared_switch;           // [1, hidden]: of the shared one's sigmoid
};

// The weights that keys, values and, where there is q, queries are computed from (LatentConfig).
struct LatentWeights {
  kernels::Weight q, kv;            // [rank, hidden]
  kernels::Tensor q_gain, kv_gain;  // [rank]
  kernels::Weight rotated_k;        // [rotated_dim, hidden]
};

// One rank's part of a layer with state, the output projection aside (StateConfig). H, K: this
// rank's heads and key heads. A short convolution has b as q, x as v and c as z, of H * value_dim
// rows, and of convolutions q's alone.
struct StateWeights {
  kernels::Weight q, k;  // [K * key_dim, hidden]
  kernels::Weight v, z;  // [H * value_dim, hidden]
  kernels::Tensor q_bias, v_bias, z_bias;
  kernels::Tensor q_taps;          // [width, rows of q], the oldest row's first
  kernels::Tensor k_taps, v_taps;  // likewise
  kernels::Tensor taps_bias, k_taps_bias, v_taps_bias;
  kernels::Weight step, strength;   // [H, hidden]
  kernels::Tensor rate, step_bias;  // [H], as StateOps::StateDecay takes them
  kernels::Tensor skip;             // [H], of kSum
  kernels::Tensor gain;             // [value_dim], or [H * value_dim] of kSum
};

// One rank's part of a layer. Gains and biases are f32; tensors that the model does not have are
// empty. H: this rank's heads, D: head_dim, I: this rank's inner columns.
struct LayerWeights {
  kernels::Tensor attention_gain, mlp_gain;    // [hidden], before the block
  kernels::Tensor attention_shift, mlp_shift;  // biases of LayerNorms there
  // [hidden], after the block: of its result, or of the stream that it was added to (stream_norms),
  // with biases then.
  kernels::Tensor attention_output_gain, mlp_output_gain;
  kernels::Tensor attention_output_shift, mlp_output_shift;
  // [H * D, hidden]. Of latent vectors, which take the place of hidden: q [H * D], its heads'
  // rotated elements first, k [H * plain_dim], v [H * value_dim]. Or, with JoinsHeads:
  kernels::Weight q, k, v;
  kernels::Weight qkv;  // their rows, one after the other
  kernels::Tensor q_bias, k_bias, v_bias, qkv_bias;
  kernels::Tensor q_gain, k_gain;  // [D], or [H * D] of a norm over the whole width
  LatentWeights latent;
  kernels::Weight output_gate;  // [H * D, hidden]
  kernels::Tensor sinks;        // [H]
  StateWeights states;          // in place of all of attention's, of which `o` alone is there
  kernels::Weight o;            // [hidden, H * value_dim]
  kernels::Tensor o_bias;
  ExpertsWeights experts;    // or, in a dense layer, whose `up` is empty unless it is gated:
  kernels::Weight gate, up;  // [I, hidden]
  kernels::Tensor gate_bias, up_bias;
  kernels::Weight down;  // [hidden, I]
  kernels::Tensor down_bias;
  // [hidden], of a dense MLP beside experts: the norms of its result, and of the experts' input and
  // result.
  kernels::Tensor dense_output_gain, expert_gain, expert_output_gain;
  // What is added at the end of the layer (ModelConfig::per_layer_size, P), and the factor.
  kernels::Weight per_layer_gate;  // [P, hidden]
  kernels::Weight per_layer_out;   // [hidden, P]
  kernels::Tensor per_layer_gain;  // [hidden]
  kernels::Tensor layer_scale;     // [1]
};

// The module for multi-token prediction, whole on every rank but for its layer.
struct MtpWeights {
  kernels::Tensor embedding_gain, hidden_gain;  // [hidden]
  kernels::Weight join;  // [hidden, 2 * hidden], the embedding's columns first
  LayerWeights layer;
  kernels::Tensor final_gain;  // [hidden]
};

struct ModelWeights {
  kernels::Weight embedding;  // [V, hidden]: rows of this rank's part of the vocabulary
  std::vector<LayerWeights> layers;
  kernels::Tensor final_gain, final_shift;  // [hidden]
  kernels::Weight head;                     // [V, hidden]; the embedding itself where they are tied
  MtpWeights mtp;                           // empty unless ModelConfig::reads_mtp
  // Of vectors of P elements of each layer, L of them (ModelConfig::per_layer_size).
  kernels::Weight per_layer_embedding;  // [V, L * P]: rows of this rank's part of the vocabulary
  kernels::Weight per_layer_in;         // [L * P, hidden]
  kernels::Tensor per_layer_in_gain;    // [P]
  // Of encoders (EncoderConfig).
  kernels::Weight positions;                        // [num_positions, hidden]
  kernels::Weight token_types;                      // [num_token_types, hidden]
  kernels::Tensor embedding_gain, embedding_shift;  // [hidden]
};

// The part of a stored tensor that a rank takes.
enum class Cut : uint8_t {
  kWhole,
  kHeadRows,
  kKvHeadRows,
  kInnerRows,
  kVocabRows,
  kHeadColumns,
  kInnerColumns,
  kExpertRows,
  kExpertColumns,
  kSharedRows,
  kSharedColumns,
  kStateHeadRows,
  kStateKeyRows,
  kStateHeadColumns,
};

// The order in which a stored tensor has the rows of a tensor of the model, where it is another
// one.
struct RowOrder {
  // The first `rotated` of each `head` rows are stored as 0, half, 1, half + 1 …: a rotated pair is
  // side by side. 0: they are in order.
  int64_t head = 0, rotated = 0;
  bool rotated_last = false;  // they are stored behind the head's others
  // Each `group` rows of the model's are stored together, at group_begin + a multiple of
  // group_stride. 0: all are together.
  int64_t group = 0, group_begin = 0, group_stride = 0;

  bool is_plain() const { return head == 0 && group == 0; }
  int64_t StoredRow(int64_t row) const {
    if (head != 0) {
      const int64_t in_head = row % head, half = rotated / 2;
      const int64_t others = rotated_last ? head - rotated : 0;
      if (in_head < rotated) {
        row += others + in_head % half * 2 + in_head / half - in_head;
      } else if (rotated_last) {
        row -= rotated;
      }
    }
    if (group != 0) row = row / group * group_stride + group_begin + row % group;
    return row;
  }
};

// A tensor of the model: a stored tensor, or some rows of one.
struct WeightSpec {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // as stored: [out, in] of a matrix, [n] of a gain or bias
  Range rows;                  // of the stored tensor; with an order, from 0 on
  RowOrder order;              // of these rows
  int64_t column = -1;         // ≥ 0: of each row this element alone makes a vector
  Cut cut = Cut::kWhole;       // of these rows
  int64_t of_head = 0;         // rows, or columns, of each head; 0: the kind's own size
  bool is_other = false;       // of a layer with other_heads, or of a wide MLP
  // Its place in the ModelWeights passed to ListWeights: a matrix, or else a gain or bias.
  kernels::Weight* matrix = nullptr;
  kernels::Tensor* vector = nullptr;
  // Where JoinsHeads, the specs that follow one another and have the same joined place are rows of
  // what is placed there.
  kernels::Weight* joined_matrix = nullptr;
  kernels::Tensor* joined_vector = nullptr;
  // The specs that follow one another with this place are its rows, on every device.
  kernels::Tensor* stacked_vector = nullptr;
  bool is_router = false;     // of experts
  bool is_sensitive = false;  // to rounding: WeightScheme::sensitive
  bool is_table = false;      // its rows are looked up
  bool less_one = false;      // a gain that is stored minus one
  bool is_log_rate = false;   // a vector is stored as ln(-x)
  float scale = 1;            // factor of a bias or gain
};

// Returns every tensor that the model reads, in reading order; those of one stored tensor follow
// each other. Resizes the vectors in `weights`; the places stay valid until they are resized again.
std::vector<WeightSpec> ListWeights(const ModelConfig& config, ModelWeights& weights);

// Number of weights of the whole model, biases and norms included; a tied head counts once.
int64_t NumParameters(const ModelConfig& config);

// Tensors of the files that belong to parts which are skipped (SkippedPart), a sentence for the
// log; empty where there are none.
std::string DescribeSkipped(const ModelConfig& config, const Checkpoint& checkpoint);

// InvalidArgument names the tensor that is missing, has another shape (the message has both), has a
// type that FindStoredType does not know, or that the model would not read, buffers without effect
// aside and those that config.allow_unread takes (tensor_names.h).
absl::Status CheckWeights(const ModelConfig& config, const Checkpoint& checkpoint);

// Returns whether the files have a head of their own.
bool HasHead(const Checkpoint& checkpoint);

// The tensor whose rows are the tokens' of the head, [V, hidden]: the head, or the embedding where
// they are tied or the files have no head. Null where there is neither.
const StoredTensor* FindHead(const ModelConfig& config, const Checkpoint& checkpoint);

// The type that --weights=auto computes in: bf16 where every matrix is stored so, or in a quantised
// format whose values are, else f32.
kernels::DType AutoType(const ModelConfig& config, const Checkpoint& checkpoint);

// Computes the digests of the tensors that the model reads, by `num_threads` threads.
std::vector<TensorDigest> DigestWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                        int num_threads);

// Returns whether a rank's matrices of queries, keys and values, and their biases, are loaded as
// one. They have whole units of packed rows then, and none is empty.
bool JoinsHeads(const ModelConfig& config, const Shard& shard, const kernels::Device& device);

// Bytes that Weights::Load will allocate.
int64_t WeightBytes(const ModelConfig& config, const Shard& shard, const Checkpoint& checkpoint,
                    kernels::WeightType type, const kernels::Device& device);

// One rank's weights in its device's memory, in the device's formats. They are a copy: the files
// may be replaced under a running worker.
class Weights {
 public:
  // `type` is the dense type of a WeightScheme. `checkpoint` has passed CheckWeights, for kStored
  // CheckStored, too, and is not read after the return. ResourceExhausted where the device has not
  // enough memory, InvalidArgument where an element overflows fp16. `device` outlives the result.
  // On the CPU, packed weights are read from `cache`, which belongs to this checkpoint, or written
  // to it; null: neither.
  static absl::StatusOr<std::unique_ptr<Weights>> Load(
      const ModelConfig& config, const Shard& shard, const Checkpoint& checkpoint,
      kernels::WeightType type, kernels::Device& device, const WeightsCache* cache = nullptr);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  const ModelWeights& model() const { return model_; }
  int64_t bytes() const { return bytes_; }
  bool is_from_cache() const { return is_from_cache_; }
  // The error that made the cache useless: a damaged file, or one that cannot be written.
  const absl::Status& cache_status() const { return cache_status_; }

 private:
  explicit Weights(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  bool is_from_cache_ = false;
  absl::Status cache_status_;
  ModelWeights model_;
};

}  // namespace continuo::model
