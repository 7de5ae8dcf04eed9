// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "services/worker/model/checkpoint/config.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights_cache.h"

namespace continuo::model {

// One rank's part of the experts of a layer, index by index. X: inner columns of an expert, of this
// rank.
struct ExpertsWeights {
  kernels::Weight router;                 // [num_experts, hidden]
  std::vector<kernels::Weight> gate, up;  // [X, hidden]
  std::vector<kernels::Weight> down;      // [hidden, X]
};

// One rank's part of a layer. Gains and biases are f32; whatever the model has none of is empty. H,
// D: heads and head_dim, I: inner columns, of this rank.
struct LayerWeights {
  kernels::Tensor attention_gain, mlp_gain;                // [hidden], of what goes in
  kernels::Tensor attention_output_gain, mlp_output_gain;  // [hidden], of what comes out
  kernels::Weight q, k, v;                                 // [H * D, hidden]
  kernels::Tensor q_bias, k_bias, v_bias;
  kernels::Tensor q_gain, k_gain;  // [D]
  kernels::Weight o;               // [hidden, H * D]
  kernels::Tensor o_bias;
  ExpertsWeights experts;    // or, in a dense layer:
  kernels::Weight gate, up;  // [I, hidden]
  kernels::Tensor gate_bias, up_bias;
  kernels::Weight down;  // [hidden, I]
  kernels::Tensor down_bias;
};

struct ModelWeights {
  kernels::Weight embedding;  // [V, hidden]: rows of this rank's part of the vocabulary
  std::vector<LayerWeights> layers;
  kernels::Tensor final_gain;  // [hidden]
  kernels::Weight head;        // [V, hidden]; the embedding itself where they are tied
};

// Which part of a stored tensor a rank takes.
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
};

// One tensor of the model, by the name of the stored tensor that it is, or is some rows of.
struct WeightSpec {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // as stored: [out, in] of a matrix, [n] of a gain or bias
  Range rows;                  // of the stored tensor, which this one is
  Cut cut = Cut::kWhole;       // of these rows
  // Its place in the ModelWeights that was passed: a matrix, or else a gain or bias.
  kernels::Weight* matrix = nullptr;
  kernels::Tensor* vector = nullptr;
  bool is_router = false;  // of experts
  bool less_one = false;   // a gain of which one was subtracted
};

// Every tensor that the model reads, in the order in which it reads them; those that lie in one
// stored tensor follow each other. Resizes the vectors in `weights`; the places stay valid as long
// as they are not resized again.
std::vector<WeightSpec> ListWeights(const ModelConfig& config, ModelWeights& weights);

// InvalidArgument naming the tensor that is missing, of another shape (both are told), or of a
// type that is not F32, F16 or BF16.
absl::Status CheckWeights(const ModelConfig& config, const Checkpoint& checkpoint);

// The type that `auto` computes in, and that activations have: bf16 where every matrix is stored
// so, else f32.
kernels::DType StoredType(const ModelConfig& config, const Checkpoint& checkpoint);

// Digests of the tensors that the model reads, by `num_threads` threads.
std::vector<TensorDigest> DigestWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                        int num_threads);

// Bytes that Weights::Load will ask such a backend for.
int64_t WeightBytes(const ModelConfig& config, const Shard& shard, kernels::WeightType type,
                    const kernels::Backend& backend);

// One rank's weights in the memory of its backend, its matrices as `type` says, in the backend's
// format. With int4 the vocabulary's matrices are int8; experts' routers are never less than bf16.
// A copy: the files may be replaced under a running worker.
class Weights {
 public:
  // `checkpoint` has passed CheckWeights; it is not read after the return. ResourceExhausted
  // where the backend has not enough memory, InvalidArgument where fp16 is too small for an
  // element. `backend` outlives the result. What has to be packed is read from `cache`, of this
  // checkpoint, or written to it; null: neither. Only on the CPU.
  static absl::StatusOr<std::unique_ptr<Weights>> Load(
      const ModelConfig& config, const Shard& shard, const Checkpoint& checkpoint,
      kernels::WeightType type, kernels::Backend& backend, const WeightsCache* cache = nullptr);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  const ModelWeights& model() const { return model_; }
  int64_t bytes() const { return bytes_; }
  bool is_from_cache() const { return is_from_cache_; }
  // Why the cache was of no use, though there is one: a damaged file, one that cannot be written.
  const absl::Status& cache_status() const { return cache_status_; }

 private:
  explicit Weights(kernels::Backend& backend) : backend_(backend) {}

  kernels::Backend& backend_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  bool is_from_cache_ = false;
  absl::Status cache_status_;
  ModelWeights model_;
};

}  // namespace continuo::model
