// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention_ops.h"
#include "kernels/device.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/network/activations.h"
#include "services/worker/model/network/adapter_layers.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {

// Attention of a decoder's layers, the output projection aside: products of queries, keys and
// values, their norms and rotations, the KV cache, and attention over it. Made once for a decoder.
class AttentionLayers {
 public:
  // The references in `parts`, and `adapters`, outlive the object.
  AttentionLayers(const ModelDependencies& parts, AdapterLayers& adapters);

  // Fills what is the same in all steps. The activations' memory is there.
  absl::Status Prepare(const Activations& all);
  // Enqueues the angles of each kind of RoPE, once a step.
  void ComputeAngles(kernels::Tensor positions, const Activations& buffers);
  // Makes the buffers of heads as wide as the layer's.
  void SelectHeads(int layer, Activations& buffers) const;
  // Writes the keys and values of the layer's input, unless it reads another layer's, and leaves
  // its queries in buffers.q.
  void WriteKeysAndValues(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
                          const DeviceStep& step, const Activations& buffers);
  // Returns what the output projection takes, in buffers.
  kernels::Tensor Attend(const LayerWeights& w, int layer, const DeviceStep& step,
                         const Activations& buffers);

 private:
  kernels::AttentionParams ParamsOf(int num_kv_heads, int head_dim, const Range& kv_heads) const;
  kernels::PagedKv Kv(int layer, const DeviceStep& step) const;
  // WriteKeysAndValues of latent vectors, which every rank computes whole. The heads' rotated
  // elements come first.
  void WriteLatent(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
                   const DeviceStep& step, const Activations& b);
  // The same of layers that differ in their heads, and in whose keys and values they read.
  void WriteShaped(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
                   const DeviceStep& step, const Activations& b);
  // The norm of queries, and that of keys, over the heads of all ranks. A head's squares come from
  // one rank, and are added in the order of heads, so every number of ranks gives the same sum.
  void NormaliseWidth(const LayerWeights& w, const Activations& b);

  const ModelConfig& config_;
  const Shard& shard_;
  kernels::Device& device_;
  const kernels::Ops& ops_;
  kernels::Communicator& comm_;
  const KvCache& cache_;
  AdapterLayers& adapters_;
  std::vector<int> places_;  // of each layer's keys and values in cache_; -1: it has none
  std::array<kernels::AttentionParams, 2> params_;  // the second of layers with other_heads
};

}  // namespace continuo::model
