// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/model/model_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "kernels/host/thread_communicator.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/run/device_array.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

constexpr int kStateSlots = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<ModelHarness>> ModelHarness::Make(const std::string& dir,
                                                                 const HarnessOptions& options) {
  std::unique_ptr<ModelHarness> harness(new ModelHarness);
  ASSIGN_OR_RETURN(harness->config_, model::ReadModelConfig(dir));
  if (options.reads_mtp) RETURN_IF_ERROR(model::AddMtpLayer(harness->config_));
  const model::ModelConfig& config = harness->config_;
  ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(dir));
  RETURN_IF_ERROR(model::CheckWeights(config, checkpoint));
  if (!options.adapters.empty()) {
    std::vector<model::Shard> shards;
    for (int i = 0; i < options.tensor_parallel; ++i) {
      shards.push_back(model::MakeShard(config, i, options.tensor_parallel));
    }
    harness->adapter_pool_ = std::make_shared<model::AdapterPool>(config, std::move(shards));
    for (const std::string& folder : options.adapters) {
      ASSIGN_OR_RETURN(harness->adapters_.emplace_back(), harness->adapter_pool_->Load(folder));
    }
  }
  auto communicators = kernels::host::MakeThreadCommunicators(options.tensor_parallel);
  for (int i = 0; i < options.tensor_parallel; ++i) {
    auto rank = std::make_unique<Rank>();
    rank->shard = model::MakeShard(config, i, options.tensor_parallel);
    rank->communicator = std::move(communicators[static_cast<size_t>(i)]);
    ASSIGN_OR_RETURN(rank->device, kernels::MakeDevice({.device = options.device,
                                                        .num_threads = options.threads,
                                                        .isa = options.isa}));
    const kernels::WeightType weights = options.weights.value_or(
        options.dtype == kernels::DType::kBF16 ? kernels::WeightType::kBF16
                                               : kernels::WeightType::kF32);
    ASSIGN_OR_RETURN(rank->weights,
                     model::Weights::Load(config, rank->shard, checkpoint, weights, *rank->device));
    ASSIGN_OR_RETURN(rank->cache, model::KvCache::Make(
                                      *rank->device,
                                      model::KvCache::Shapes(config, rank->shard, options.kv_dtype),
                                      options.num_blocks, options.block_size));
    ASSIGN_OR_RETURN(rank->states, model::StateCache::Make(*rank->device, config, rank->shard,
                                                           options.dtype, kStateSlots));
    const bool is_logged = options.router_log != nullptr;
    CONTINUO_CHECK(!is_logged || options.tensor_parallel == 1);
    if (is_logged) rank->logged = LogRouters(*rank->device, *options.router_log);
    ASSIGN_OR_RETURN(rank->model,
                     model::MakeModel({.config = config,
                                       .shard = rank->shard,
                                       .weights = rank->weights->model(),
                                       .weight_type = weights,
                                       .activations = options.dtype,
                                       .max_rows = options.max_rows,
                                       .device = is_logged ? *rank->logged : *rank->device,
                                       .communicator = *rank->communicator,
                                       .cache = *rank->cache,
                                       .states = rank->states.get(),
                                       .has_adapters = !options.adapters.empty()}));
    rank->adapters.emplace(*rank->device, i);
    if (!options.adapters.empty()) {
      std::vector<std::shared_ptr<const model::Adapter>> adapters;
      std::vector<int64_t> slot_bytes;
      for (const auto& lease : harness->adapters_) {
        adapters.push_back(lease->adapter);
        slot_bytes.push_back(static_cast<int64_t>(lease->adapter->memory(i).size()));
      }
      RETURN_IF_ERROR(rank->adapters->Reserve(options.max_rows, slot_bytes, adapters));
    }
    harness->ranks_.push_back(std::move(rank));
  }
  return harness;
}

ModelHarness::~ModelHarness() = default;

std::vector<float> ModelHarness::Run(const model::StepPlan& given) {
  model::StepPlan plan = given;
  if (config_.has_states() && plan.state_from.empty() && !plan.is_mtp()) PlaceStates(plan);
  std::vector<std::vector<float>> logits(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    threads.emplace_back([&, i] { logits[i] = RunRank(*ranks_[i], plan); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 1; i < logits.size() && !logits[0].empty(); ++i) {
    EXPECT_EQ(std::memcmp(logits[0].data(), logits[i].data(), logits[0].size() * sizeof(float)), 0)
        << "rank " << i << " has other logits than rank 0";
  }
  return logits[0];
}

std::vector<float> ModelHarness::RunRank(Rank& rank, const model::StepPlan& plan) {
  kernels::Device& device = *rank.device;
  model::DeviceArray ids(device), positions(device), slots(device), tables(device), lengths(device),
      begins(device), rows(device), copies(device), from(device), to(device), hidden(device);
  if (!plan.block_copies.empty()) {
    rank.cache->CopyBlocks(
        *copies.Upload({&plan.block_copies[0].from, 2 * plan.block_copies.size()}, 2));
  }
  model::DeviceStep step;
  step.token_ids = *ids.Upload(plan.token_ids);
  step.positions = *positions.Upload(plan.positions);
  step.kv_slots = *slots.Upload(plan.kv_slots);
  step.kv.block_tables = *tables.Upload(plan.block_tables, plan.max_blocks);
  step.kv.kv_len = *lengths.Upload(plan.kv_len);
  step.kv.query_begin = *begins.Upload(plan.query_begin);
  step.kv.num_decodes = kernels::CountDecodes(plan.query_begin);
  if (plan.is_mtp()) {
    step.hidden_rows = *hidden.Upload(plan.hidden_rows);
  } else if (config_.has_states()) {
    step.states = {step.kv.query_begin, *from.Upload(plan.state_from), *to.Upload(plan.state_to)};
  }
  // Each row occurs once, as the model requires.
  CONTINUO_CHECK(std::ranges::adjacent_find(plan.sample_rows, std::greater_equal<>()) ==
                 plan.sample_rows.end());
  step.wanted_rows = *rows.Upload(plan.sample_rows);
  if (!plan.adapters.empty()) {
    EXPECT_TRUE(rank.adapters->Set(0, plan, plan.sample_rows, *adapter_pool_).ok());
    step.adapters = rank.adapters->rows();
    step.wanted_adapters = rank.adapters->wanted();
  }
  EXPECT_TRUE(rank.model->Forward(step).ok());
  const size_t vocab = static_cast<size_t>(config_.vocab_size);
  std::vector<float> all(plan.sample_rows.size() * vocab);
  for (size_t first = 0; first < plan.sample_rows.size(); first += model::kHostLogitRows) {
    const size_t n = std::min<size_t>(model::kHostLogitRows, plan.sample_rows.size() - first);
    const kernels::Tensor logits =
        rank.model->Logits(static_cast<int64_t>(first), static_cast<int64_t>(n));
    device.CopyOut(all.data() + first * vocab, logits);
    EXPECT_TRUE(device.Synchronize().ok());
  }
  return all;
}

std::vector<std::string> UsableIsas() {
  std::vector<std::string> isas;
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512_bf16", "neon"}) {
    if (kernels::MakeDevice({.isa = isa}).ok()) isas.push_back(isa);
  }
  CONTINUO_CHECK(!isas.empty());
  return isas;
}

}  // namespace continuo::testing
