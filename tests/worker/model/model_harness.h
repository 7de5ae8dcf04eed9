// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/communicator.h"
#include "services/worker/model/config.h"
#include "services/worker/model/kv_cache.h"
#include "services/worker/model/model.h"
#include "services/worker/model/shard.h"
#include "services/worker/model/step_plan.h"
#include "services/worker/model/weights.h"

namespace continuo::testing {

struct HarnessOptions {
  std::string device = "cpu";  // others have one rank
  std::string isa = "auto";
  int tensor_parallel = 1;
  int threads = 1;                    // of each rank
  DType dtype = DType::kF32;          // of activations
  std::optional<WeightType> weights;  // where absent, as the activations
  DType kv_dtype = DType::kF32;
  int num_blocks = 64;
  int block_size = 16;
  int max_rows = 1024;
};

// Model and KV cache on every rank, without a sampler: StepPlan in, logits out.
class ModelHarness {
 public:
  static absl::StatusOr<std::unique_ptr<ModelHarness>> Make(const std::string& dir,
                                                            const HarnessOptions& options);
  ~ModelHarness();

  // Runs the plan, a thread for each rank, and returns rank 0's logits [num_samples * vocab]. All
  // ranks' are the same; a difference is a test failure.
  std::vector<float> Run(const StepPlan& plan);

  const ModelConfig& config() const { return config_; }

 private:
  struct Rank {
    Shard shard;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Weights> weights;
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<Model> model;
  };
  std::vector<float> RunRank(Rank& rank, const StepPlan& plan);

  ModelConfig config_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// The instruction sets that this build and machine have, "scalar" first.
std::vector<std::string> UsableIsas();

}  // namespace continuo::testing
