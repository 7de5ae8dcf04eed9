// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "services/worker/model/adapter/adapter_pool.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/network/kv_cache.h"
#include "services/worker/model/network/model.h"
#include "services/worker/model/network/state_cache.h"
#include "services/worker/model/run/adapter_step.h"
#include "services/worker/model/step_plan.h"
#include "tests/worker/model/router_log.h"

namespace continuo::testing {

struct HarnessOptions {
  std::string device = "cpu";  // others have one rank
  std::string isa = "auto";
  int tensor_parallel = 1;
  int threads = 1;                              // of each rank
  kernels::DType dtype = kernels::DType::kF32;  // of activations
  std::optional<kernels::WeightType> weights;   // where absent, as the activations
  kernels::DType kv_dtype = kernels::DType::kF32;
  int num_blocks = 64;
  int block_size = 16;
  int max_rows = 1024;
  std::vector<std::string> adapters;  // folders; plans name them by their places here
  bool reads_mtp = false;             // plans may be of the module for multi-token prediction
  RouterLog* router_log = nullptr;    // where it is given, of one rank
};

// Runs a model with its KV cache on every rank, without a sampler: it takes StepPlans and returns
// logits.
class ModelHarness {
 public:
  static absl::StatusOr<std::unique_ptr<ModelHarness>> Make(const std::string& dir,
                                                            const HarnessOptions& options);
  ~ModelHarness();

  // Runs the plan, a thread for each rank, and returns rank 0's logits [num_samples * vocab]. All
  // ranks' are the same; a difference is a test failure.
  std::vector<float> Run(const model::StepPlan& plan);

  const model::ModelConfig& config() const { return config_; }

 private:
  struct Rank {
    model::Shard shard;
    std::unique_ptr<kernels::Communicator> communicator;
    std::unique_ptr<kernels::Device> device, logged;
    std::unique_ptr<model::Weights> weights;
    std::unique_ptr<model::KvCache> cache;
    std::unique_ptr<model::StateCache> states;
    std::unique_ptr<model::Model> model;
    std::optional<model::AdapterStep> adapters;
  };
  std::vector<float> RunRank(Rank& rank, const model::StepPlan& plan);

  model::ModelConfig config_;
  std::shared_ptr<model::AdapterPool> adapter_pool_;
  std::vector<std::shared_ptr<const model::AdapterLease>> adapters_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// The instruction sets that this build and machine have, "scalar" first.
std::vector<std::string> UsableIsas();

}  // namespace continuo::testing
