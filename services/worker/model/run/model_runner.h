// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "services/worker/model/adapter/adapter_pool.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/executor.h"
#include "services/worker/model/network/kv_cache.h"
#include "services/worker/model/network/model.h"
#include "services/worker/model/network/state_cache.h"
#include "services/worker/model/run/adapter_step.h"
#include "services/worker/model/run/device_array.h"
#include "services/worker/model/run/plan_words.h"
#include "services/worker/model/run/state_reader.h"
#include "services/worker/model/run/step_sampler.h"

namespace continuo::model {

struct ModelRunnerOptions {
  kernels::WeightType weights = kernels::WeightType::kF32;
  kernels::DType activations = kernels::DType::kF32;  // f32, bf16 or f16
  kernels::DType kv_dtype = kernels::DType::kF32;     // KV cache: f32, bf16, f16, i8 or f8
  int num_blocks = 0;
  int block_size = 16;
  int num_state_slots = 0;                      // of a model with states at least 2
  int max_rows = 0;                             // of one step
  bool reads_states = false;                    // plans may read states (kReadState)
  std::shared_ptr<const AdapterPool> adapters;  // of those that plans may name; null: none
  std::vector<int64_t> adapter_slots;           // as DeviceAdapters::Reserve takes them
  // Those that are in the pool from the beginning.
  std::vector<std::shared_ptr<const Adapter>> loaded_adapters;
  bool graphs = true;   // replay steps that decode as graphs, where possible
  int num_threads = 1;  // that the device has for ParallelFor
  const WeightsCache* weights_cache = nullptr;  // as Weights::Load takes it; for Make alone
};

// Bytes that a rank needs besides weights and KV cache: the network's buffers, and the sampler's
// where the host cannot read the device's logits.
int64_t RunnerScratchBytes(const ModelConfig& config, const Shard& shard,
                           kernels::WeightType weights, kernels::DType activations, int max_rows,
                           bool has_adapters, const kernels::Device& device);

// One rank: uploads a StepPlan, runs the network, samples. With several ranks, RankGroup gives each
// its own ModelRunner and thread and passes all of them the same plans; only rank 0 returns a
// result. Where the device samples, every rank samples for itself from the same logits, since the
// next step may need the tokens before the host has them. One thread at a time.
class ModelRunner : public Executor {
 public:
  // Waits for the steps in flight.
  ~ModelRunner() override;
  // Loads this rank's shard. `checkpoint` has passed CheckWeights and is not read after the return.
  // ResourceExhausted where the device has not enough memory.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Make(
      const ModelConfig& config, const Checkpoint& checkpoint, const ModelRunnerOptions& options,
      std::unique_ptr<kernels::Device> device, std::unique_ptr<kernels::Communicator> communicator);

  absl::Status Start(const StepPlan& plan, MaskFiller fill_mask) override;
  absl::StatusOr<StepResult> Finish() override;
  bool IsAsynchronous() const override { return !device_->SharesHostMemory(); }
  double TakeBusySeconds() override { return device_->TakeBusySeconds(); }
  void Recycle(StepResult result) override { recycled_ = std::move(result); }

  // Between steps, also after an error: waits for the device and drops the captured graphs.
  absl::Status DropGraphs();
  // After DropGraphs: gives the KV cache another number of blocks, which are empty; 0 frees their
  // memory.
  absl::Status ResizeCache(int num_blocks) { return cache_->Resize(num_blocks); }

  // True if steps that decode this many rows are replayed as a graph.
  bool UsesGraphs(int rows) const {
    return options_.graphs && IsAsynchronous() && model_->IsCapturable(rows);
  }
  // Calls Device::BindThread.
  void BindThread() { device_->BindThread(); }
  int vocab_size() const { return config_.vocab_size; }
  std::string backend_name() const { return device_->name(); }
  kernels::Communicator& communicator() { return *communicator_; }
  const Weights& weights() const { return *weights_; }
  int64_t weight_bytes() const { return weights_->bytes(); }
  int64_t kv_bytes() const { return cache_->bytes(); }
  int64_t state_bytes() const { return states_->bytes(); }
  int64_t scratch_bytes() const;

 private:
  ModelRunner(const ModelConfig& config, const ModelRunnerOptions& options,
              std::unique_ptr<kernels::Device> device,
              std::unique_ptr<kernels::Communicator> communicator);

  // Reserves memory for a sample on each row.
  absl::Status ReserveSamples();
  // A step in flight.
  struct Step {
    const StepPlan* plan = nullptr;
    std::vector<int32_t> distinct_rows;  // rows that samples read, ascending
    std::vector<int32_t> row_of_sample;  // index into distinct_rows
    std::vector<int32_t> host_samples;   // samples that the device was not given, ascending
    int64_t num_wanted = 0;              // rows with logits: distinct ones and padding
    kernels::Tensor token_ids;           // of the device's rows, padding included
    int64_t event = 0;                   // of the device, after all that Start enqueued
  };

  static int parity(int64_t step) { return static_cast<int>(step % 2); }
  bool samples_here() const { return shard_.rank == 0; }
  // A broken plan is a bug of the engine, not a client's mistake: it ends the process.
  void CheckPlan(const StepPlan& plan);
  void CheckStates(const StepPlan& plan);
  // The padding that gives the step the shape of a graph; none unless it only decodes.
  std::optional<PlanWords::Padding> PaddingOf(const Step& step) const;
  absl::StatusOr<DeviceStep> Upload(Step& step);
  // Returns the samples from `begin` on whose rows are in one slice of logits.
  SampleSlice SliceFrom(const Step& step, int begin) const;
  kernels::Tensor LogitsOf(const Step& step, const SampleSlice& slice);
  // Enqueues copies of the states of the step's distinct rows to the host.
  void ReadStates(int parity, const Step& step);
  // Moves the states of a finished step to `result`.
  void TakeStates(int parity, StepResult& result) const;
  // Samples `left_` on the host.
  absl::Status SampleOnHost(int parity, StepResult& result);

  const ModelConfig config_;
  const ModelRunnerOptions options_;
  const Shard shard_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::Communicator> communicator_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<StateCache> states_;
  std::unique_ptr<Model> model_;

  DeviceArray step_arrays_;  // all of a plan, so that it is one copy
  DeviceArray block_copies_;
  AdapterStep adapters_;
  PlanWords words_;  // the host's copy of step_arrays_

  int num_hidden_rows_ = 0;           // that a step of the MTP module can read
  std::vector<int32_t> slot_owners_;  // of CheckStates: a sequence of the step for each slot

  std::array<Step, 2> steps_;
  int64_t num_started_ = 0, num_finished_ = 0;
  StepSampler sampler_;        // used on rank 0, and where the device samples
  StateReader states_out_;     // used on rank 0, where plans read states
  std::vector<int32_t> left_;  // samples of the finished step that are left to the host
  StepResult recycled_;        // memory for the next result
};

}  // namespace continuo::model
