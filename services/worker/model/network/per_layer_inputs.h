// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/communicator.h"
#include "kernels/ops.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/network/activations.h"

namespace continuo::model {

// The vectors that tokens have for each layer (per-layer embeddings of Gemma 4,
// ModelConfig::per_layer_size), and what layers add of them to the residual stream. Made once for a
// decoder.
class PerLayerInputs {
 public:
  // The references outlive the object.
  PerLayerInputs(const ModelConfig& config, const Shard& shard, const ModelWeights& weights,
                 const kernels::Ops& ops, kernels::Communicator& communicator);

  // Makes the vectors of a step's tokens, whose embeddings are in buffers.x: the sum of a second
  // embedding and of a projection of the first one, normalised for each layer.
  void Make(kernels::Tensor token_ids, const Activations& buffers);
  // Takes a layer's vectors out of them. Add reads these, unless rows are kept in between.
  void Take(int layer, const Activations& buffers);
  // Goes on with these rows of the layer's vectors.
  void Keep(kernels::Tensor rows, const Activations& buffers);
  // Adds to the residual stream what the layer makes of its vectors: the norm of a projection of
  // their product with a gate.
  void Add(const LayerWeights& w, const Activations& buffers);

 private:
  const ModelConfig& config_;
  const Shard& shard_;
  const ModelWeights& weights_;
  const kernels::Ops& ops_;
  kernels::Communicator& comm_;
  const kernels::GateFunction gate_function_;
  kernels::Tensor taken_;  // [rows, per_layer_size] of the current layer
};

}  // namespace continuo::model
