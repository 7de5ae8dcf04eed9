// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/engine/state_ops_run.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "kernels/state_ops.h"
#include "services/base/status_macros.h"
#include "services/worker/model/load/load_plan.h"
#include "tests/bench/kernels/ceilings.h"

namespace continuo::bench {

absl::StatusOr<std::unique_ptr<StateOpsRun>> StateOpsRun::Make(const model::LoadOptions& options,
                                                               int max_rows, int slots) {
  std::unique_ptr<StateOpsRun> made(new StateOpsRun);
  StateOpsRun& run = *made;
  ASSIGN_OR_RETURN(model::LoadEstimate estimate, model::EstimateLoad(options));
  run.config_ = std::move(estimate.config);
  const model::ModelConfig& c = run.config_;
  run.shard_ = model::MakeShard(c, 0, 1);
  ASSIGN_OR_RETURN(run.replica_, kernels::MakeReplica({.device = options.device, .num_ranks = 1}));
  ASSIGN_OR_RETURN(run.rank_, run.replica_->MakeRank(0, options.device.num_threads));
  kernels::Device& device = *run.rank_.device;
  ASSIGN_OR_RETURN(run.cache_, model::StateCache::Make(device, c, run.shard_,
                                                       estimate.types.activations, slots));
  const model::ActivationSizes sizes = {
      .activations = estimate.types.activations, .rows = max_rows, .logit_rows = 1};
  const int64_t bytes = model::LayOut(c, run.shard_, sizes, nullptr, &run.buffers_);
  const int64_t channels =
      std::max<int64_t>({run.shard_.state_key_heads.size() * c.states.key_dim,
                         run.shard_.state_heads.size() * c.states.value_dim, c.hidden_size});
  const int64_t taps = c.states.conv_width * channels;
  ASSIGN_OR_RETURN(run.memory_, device.Allocate(static_cast<size_t>(bytes + 4 * 2 * taps)));
  model::LayOut(c, run.shard_, sizes, static_cast<uint8_t*>(run.memory_), &run.buffers_);
  auto* const weights = reinterpret_cast<float*>(static_cast<uint8_t*>(run.memory_) + bytes);
  std::fill_n(weights, 2 * taps, 1.0f);
  run.taps_ = {weights, kernels::DType::kF32, {c.states.conv_width, channels, 1}};
  run.heads_ = {weights + taps, kernels::DType::kF32, {run.shard_.state_heads.size(), 1, 1}};
  // Zeros stay zeros, and time does not depend on values.
  const model::StateBuffers& b = run.buffers_.states;
  for (const kernels::Tensor& buffer : {b.q, b.k, b.v, b.step, b.gate}) {
    if (buffer.size() > 0) std::fill_n(static_cast<uint8_t*>(buffer.data), buffer.bytes(), 0);
  }
  for (int i = 0; i < c.num_state_layers(); ++i) {
    const model::StateCache::Layer layer = run.cache_->LayerAt(i);
    for (const kernels::Tensor& array : {layer.q_rows, layer.k_rows, layer.v_rows, layer.matrix}) {
      if (array.size() > 0) std::fill_n(static_cast<uint8_t*>(array.data), array.bytes(), 0);
    }
  }
  return made;
}

StateOpsRun::~StateOpsRun() {
  if (memory_ != nullptr) rank_.device->Free(memory_);
}

double StateOpsRun::Seconds(std::span<const model::StepPlan> steps) {
  for (const model::StepPlan& plan : steps) Run(plan);
  int calls = 0;
  const double start = bench::Seconds();
  do {
    for (const model::StepPlan& plan : steps) Run(plan);
    ++calls;
  } while (bench::Seconds() - start < 0.3);
  return (bench::Seconds() - start) / calls;
}

void StateOpsRun::Run(const model::StepPlan& plan) {
  const model::StateConfig& s = config_.states;
  const auto view = [](const std::vector<int32_t>& values) {
    return kernels::Tensor{const_cast<int32_t*>(values.data()),
                           kernels::DType::kI32,
                           {static_cast<int64_t>(values.size()), 1, 1}};
  };
  const kernels::StatePlaces places = {view(plan.query_begin), view(plan.state_from),
                                       view(plan.state_to)};
  const model::Activations buffers = buffers_.First(plan.num_rows());
  const model::StateBuffers& b = buffers.states;
  kernels::StateOps& ops = rank_.device->ops().states;
  const auto convolve = [&](kernels::Tensor out, kernels::Tensor x, kernels::Tensor states) {
    const kernels::Tensor taps = {
        taps_.data, kernels::DType::kF32, {s.conv_width, out.size() / out.rows(), 1}};
    ops.CausalConv(out, x, {.taps = taps}, /*silu=*/s.kind != model::StateKind::kConv, states,
                   places);
  };
  for (int i = 0; i < config_.num_state_layers(); ++i) {
    const model::StateCache::Layer layer = cache_->LayerAt(i);
    if (s.kind == model::StateKind::kConv) {
      convolve(b.v, b.q, layer.q_rows);
      continue;
    }
    convolve(b.mixed_q, b.q, layer.q_rows);
    convolve(b.mixed_k, b.k, layer.k_rows);
    convolve(b.mixed_v, b.v, layer.v_rows);
    const bool is_sum = s.kind == model::StateKind::kSum;
    ops.StateDecay(b.decay, is_sum ? b.strength : kernels::Tensor{}, b.step, heads_, heads_,
                   s.least_step, s.most_step);
    if (!is_sum) ops.Sigmoid(b.strength, b.gate);
    kernels::StateUpdate update;
    update.rule = is_sum ? kernels::StateUpdate::Rule::kSum : kernels::StateUpdate::Rule::kDelta;
    update.q = b.mixed_q;
    update.k = b.mixed_k;
    update.v = b.mixed_v;
    update.decay = b.decay;
    update.strength = b.strength;
    update.num_heads = s.num_heads;
    update.num_key_heads = s.num_key_heads;
    ops.UpdateStates(b.v, update, layer.matrix, places);
  }
}

}  // namespace continuo::bench
