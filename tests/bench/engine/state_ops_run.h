// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/replica.h"
#include "services/worker/model/load/load_options.h"
#include "services/worker/model/network/activations.h"
#include "services/worker/model/network/state_cache.h"
#include "services/worker/model/step_plan.h"

namespace continuo::bench {

// The ops on recurrent states of a model's steps, without the products around them, of one rank on
// the CPU: what the order of rows costs.
class StateOpsRun {
 public:
  // The model has layers with state. `max_rows` and `slots` are those of all plans.
  static absl::StatusOr<std::unique_ptr<StateOpsRun>> Make(const model::LoadOptions& options,
                                                           int max_rows, int slots);
  ~StateOpsRun();

  // Returns the seconds that the convolutions and recurrences of all layers take for the rows of
  // these steps together, the mean of as many runs as 0.3 s hold.
  double Seconds(std::span<const model::StepPlan> steps);

 private:
  StateOpsRun() = default;
  void Run(const model::StepPlan& plan);

  model::ModelConfig config_;
  model::Shard shard_;
  std::unique_ptr<kernels::Replica> replica_;
  kernels::Replica::Rank rank_;
  std::unique_ptr<model::StateCache> cache_;
  void* memory_ = nullptr;
  model::Activations buffers_;
  kernels::Tensor taps_, heads_;  // of ones
};

}  // namespace continuo::bench
