// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/network/activations.h"
#include "services/worker/model/network/state_cache.h"

namespace continuo::model {

// What a layer with state does in place of attention: products of its input, then rows in order
// (exactness: rows-in-order). It is the decoder's, and enqueues like it.
class StateLayers {
 public:
  // The references outlive the object.
  StateLayers(const ModelConfig& config, const Shard& shard, kernels::Device& device,
              kernels::Communicator& communicator)
      : config_(config), shard_(shard), device_(device), ops_(device.ops()), comm_(communicator) {}

  // Fills what is the same in all steps. The activations' memory is there.
  absl::Status Prepare(const Activations& all);

  // Enqueues a layer up to its output projection, whose input [rows, heads * value_dim] it
  // returns: a part of `buffers` that lives until the next layer. The states behind the rows that
  // `places` names are kept.
  kernels::Tensor Mix(const StateWeights& w, const StateCache::Layer& states,
                      const kernels::MatMulInput& input, const Activations& buffers,
                      const kernels::StatePlaces& places);

 private:
  kernels::Tensor MixConv(const StateWeights& w, const StateCache::Layer& states,
                          const kernels::MatMulInput& input, const StateBuffers& b,
                          const kernels::StatePlaces& places);
  kernels::Tensor MixDelta(const StateWeights& w, const StateCache::Layer& states,
                           const kernels::MatMulInput& input, const StateBuffers& b,
                           const kernels::StatePlaces& places);
  kernels::Tensor MixSum(const StateWeights& w, const StateCache::Layer& states,
                         const kernels::MatMulInput& input, const StateBuffers& b,
                         const kernels::StatePlaces& places);

  const ModelConfig& config_;
  const Shard& shard_;
  kernels::Device& device_;
  const kernels::Ops& ops_;
  kernels::Communicator& comm_;
};

}  // namespace continuo::model
