// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/network/activations.h"
#include "services/worker/model/network/adapter_layers.h"

namespace continuo::model {

// Returns the function that an MLP's gate passes.
kernels::GateFunction GateFunctionOf(Activation activation);

// MLPs and mixtures of experts. `input` is the layer's normalised input; what is to be added to the
// residual stream is left in buffers.sum, f32 [rows, hidden], the same on every rank. Made once for
// a decoder.
class MlpLayers {
 public:
  // The references outlive the object.
  MlpLayers(const ModelConfig& config, const Shard& shard, kernels::Device& device,
            kernels::Communicator& communicator, AdapterLayers& adapters);

  // Fills what is the same in all steps. The activations' memory is there.
  absl::Status Prepare(const Activations& all);

  // Enqueues a dense MLP, a wide one or not, but for its last bias.
  void Dense(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
             const Activations& buffers);
  // Enqueues a mixture of experts, and reads the input as buffers.h, too. Every rank picks the same
  // experts and holds a part of each. The K splits of an expert are summed before the experts are:
  // each expert's result is rounded once, whatever the number of ranks. The shared expert's splits
  // go the same way.
  void Experts(const ExpertsWeights& w, const kernels::MatMulInput& input,
               const Activations& buffers) {
    Experts(w, input, buffers, buffers.h);
  }
  // Enqueues a dense MLP and experts beside it, which read the residual stream, and the sum of
  // their normalised results (ExpertsConfig::beside_dense).
  void SideBySide(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
                  const Activations& buffers);

 private:
  // The same with another input of the router.
  void Experts(const ExpertsWeights& w, const kernels::MatMulInput& input, const Activations& b,
               kernels::Tensor router_input);
  // Computes the inner rows of an MLP, which its last product takes.
  kernels::MatMulInput Inner(const kernels::MatMulInput& input, const kernels::Product& gate,
                             const kernels::Product& up, const Activations& b);
  // The same of a layer's dense MLP, with what adapters add.
  kernels::MatMulInput AdaptedInner(int layer, const kernels::MatMulInput& input,
                                    const kernels::Product& gate, const kernels::Product& up,
                                    const Activations& b);
  // Applies the activation function where there is no `up`.
  void Activate(kernels::Tensor x) { ops_.rows.GateMul(gate_function_, x, x, kernels::Tensor{}); }
  // Writes this rank's part of what the shared expert makes of the input.
  void SharedExpert(const ExpertsWeights& w, const kernels::MatMulInput& input,
                    const Activations& b, kernels::Tensor out);
  // Sums what experts made of a shorter vector, and projects it back.
  void CombineLatent(const ExpertsWeights& w, kernels::Tensor sums,
                     const kernels::ExpertRoutes& routes, const Activations& b);

  const ModelConfig& config_;
  const Shard& shard_;
  kernels::Device& device_;
  const kernels::Ops& ops_;
  kernels::Communicator& comm_;
  AdapterLayers& adapters_;
  const kernels::GateFunction gate_function_;
  // A copy of the current layer's expert_begin, where products need it.
  std::vector<int32_t> host_expert_begin_;
};

}  // namespace continuo::model
