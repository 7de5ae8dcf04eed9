// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/model_runner.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/run/step_shape.h"

namespace continuo::model {
namespace {

// True for n + 1 offsets that begin at 0, never decrease and end at `total`.
bool AreOffsets(std::span<const int32_t> begin, size_t n, size_t total) {
  return begin.size() == n + 1 && begin.front() == 0 &&
         begin.back() == static_cast<int32_t>(total) && std::is_sorted(begin.begin(), begin.end());
}

}  // namespace

ModelRunner::ModelRunner(const ModelConfig& config, const ModelRunnerOptions& options,
                         std::unique_ptr<kernels::Device> device,
                         std::unique_ptr<kernels::Communicator> communicator)
    : config_(config),
      options_(options),
      shard_(MakeShard(config, communicator->rank(), communicator->size())),
      device_(std::move(device)),
      communicator_(std::move(communicator)),
      step_arrays_(*device_),
      block_copies_(*device_),
      adapters_(*device_, shard_.rank),
      words_(config.encoder.num_token_types > 0),
      sampler_(*device_, config.vocab_size, options.num_threads),
      states_out_(*device_, options.activations, config.hidden_size) {}

// A step may still use the memory. An error has been returned before, or nobody waits for it.
ModelRunner::~ModelRunner() { (void)DropGraphs(); }

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Make(
    const ModelConfig& config, const Checkpoint& checkpoint, const ModelRunnerOptions& options,
    std::unique_ptr<kernels::Device> device, std::unique_ptr<kernels::Communicator> communicator) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(config, options, std::move(device), std::move(communicator)));
  ModelRunner& r = *runner;
  ASSIGN_OR_RETURN(r.weights_, Weights::Load(r.config_, r.shard_, checkpoint, options.weights,
                                             *r.device_, options.weights_cache));
  ASSIGN_OR_RETURN(r.cache_,
                   KvCache::Make(*r.device_, KvCache::Shapes(config, r.shard_, options.kv_dtype),
                                 options.num_blocks, options.block_size));
  CONTINUO_CHECK(config.num_state_layers() == 0 || options.num_state_slots > 0);
  CONTINUO_CHECK(options.adapters == nullptr || r.device_->ops().adapters != nullptr);
  ASSIGN_OR_RETURN(r.states_, StateCache::Make(*r.device_, r.config_, r.shard_, options.activations,
                                               options.num_state_slots));
  r.slot_owners_.resize(static_cast<size_t>(options.num_state_slots));
  ASSIGN_OR_RETURN(r.model_, MakeModel({.config = r.config_,
                                        .shard = r.shard_,
                                        .weights = r.weights_->model(),
                                        .weight_type = options.weights,
                                        .activations = options.activations,
                                        .max_rows = options.max_rows,
                                        .device = *r.device_,
                                        .communicator = *r.communicator_,
                                        .cache = *r.cache_,
                                        .states = r.states_.get(),
                                        .has_adapters = options.adapters != nullptr}));
  RETURN_IF_ERROR(r.ReserveSamples());
  return runner;
}

// Reserves for the largest step, so that memory does not depend on the steps that ran.
absl::Status ModelRunner::ReserveSamples() {
  const auto rows = static_cast<size_t>(options_.max_rows);
  for (Step& step : steps_) {
    step.distinct_rows.reserve(rows);
    step.row_of_sample.reserve(rows);
    step.host_samples.reserve(rows);
  }
  left_.reserve(rows);
  // Copies of blocks precede steps that are replayed as graphs, whose ranks must not wait for
  // memory. Each copy is of a sequence that has a row.
  RETURN_IF_ERROR(block_copies_.Reserve(2 * rows));
  recycled_.token_ids.reserve(rows);
  recycled_.scores.reserve(rows);
  if (options_.adapters != nullptr) {
    RETURN_IF_ERROR(
        adapters_.Reserve(options_.max_rows, options_.adapter_slots, options_.loaded_adapters));
  }
  if (options_.reads_states && samples_here()) {
    RETURN_IF_ERROR(states_out_.Reserve(options_.max_rows));
  }
  return samples_here() || IsAsynchronous() ? sampler_.Reserve(options_.max_rows)
                                            : absl::OkStatus();
}

int64_t RunnerScratchBytes(const ModelConfig& config, const Shard& shard,
                           kernels::WeightType weights, kernels::DType activations, int max_rows,
                           bool has_adapters, const kernels::Device& device) {
  return ScratchBytes(config, shard, weights, activations, max_rows, has_adapters, device) +
         StepSampler::Bytes(device, config.vocab_size, max_rows);
}

absl::Status ModelRunner::DropGraphs() {
  const absl::Status status = device_->Synchronize();
  device_->DropGraphs();
  return status;
}

int64_t ModelRunner::scratch_bytes() const {
  return RunnerScratchBytes(config_, shard_, options_.weights, options_.activations,
                            options_.max_rows, options_.adapters != nullptr, *device_);
}

// No slot receives a state twice, nor one that another sequence reads.
void ModelRunner::CheckStates(const StepPlan& plan) {
  if (config_.num_state_layers() == 0 || plan.is_mtp()) {
    CONTINUO_CHECK(plan.state_from.empty() && plan.state_to.empty());
    return;
  }
  constexpr int32_t kFree = -1, kShared = -2;  // kShared: several read it, or it has been written
  CONTINUO_CHECK(plan.state_from.size() == plan.sequence_ids.size());
  CONTINUO_CHECK(plan.state_to.size() == plan.token_ids.size());
  std::ranges::fill(slot_owners_, kFree);
  const auto owner = [&](int32_t slot) -> int32_t& {
    CONTINUO_CHECK(slot >= 0 && slot < states_->num_slots());
    return slot_owners_[static_cast<size_t>(slot)];
  };
  for (int32_t s = 0; s < plan.num_seqs(); ++s) {
    const int32_t slot = plan.state_from[static_cast<size_t>(s)];
    if (slot != -1) owner(slot) = owner(slot) == kFree ? s : kShared;
  }
  for (int32_t s = 0; s < plan.num_seqs(); ++s) {
    const auto begin = static_cast<size_t>(plan.query_begin[static_cast<size_t>(s)]);
    const auto end = static_cast<size_t>(plan.query_begin[static_cast<size_t>(s) + 1]);
    for (size_t row = begin; row < end; ++row) {
      const int32_t slot = plan.state_to[row];
      if (slot == -1) continue;
      CONTINUO_CHECK(owner(slot) == kFree || owner(slot) == s);
      owner(slot) = kShared;
    }
  }
}

void ModelRunner::CheckPlan(const StepPlan& plan) {
  const size_t rows = plan.token_ids.size(), samples = plan.sample_rows.size();
  const size_t seqs = plan.sequence_ids.size();
  const auto in_vocabulary = [this](int32_t id) { return id >= 0 && id < config_.vocab_size; };
  CONTINUO_CHECK(rows <= static_cast<size_t>(options_.max_rows));
  CONTINUO_CHECK(plan.positions.size() == rows && plan.kv_slots.size() == rows);
  CONTINUO_CHECK(AreOffsets(plan.query_begin, seqs, rows));
  CONTINUO_CHECK(plan.kv_len.size() == seqs && plan.max_blocks >= 0);
  CONTINUO_CHECK(plan.block_tables.size() == seqs * static_cast<size_t>(plan.max_blocks));
  const bool is_second = num_started_ > num_finished_;
  const int num_sampled = is_second ? steps_[parity(num_started_ - 1)].plan->num_samples() : 0;
  for (const int32_t id : plan.token_ids) {
    CONTINUO_CHECK(id < 0 ? id >= SampledBy(num_sampled - 1) : in_vocabulary(id));
  }

  CONTINUO_CHECK(plan.token_types.empty() || plan.token_types.size() == rows);
  for (const int32_t type : plan.token_types) {
    CONTINUO_CHECK(type >= 0 && type < std::max(1, config_.encoder.num_token_types));
  }
  CONTINUO_CHECK(plan.adapters.empty() ||
                 (options_.adapters != nullptr && plan.adapters.size() == seqs && !plan.is_mtp()));
  CheckStates(plan);
  if (plan.is_mtp()) {
    CONTINUO_CHECK(config_.reads_mtp && !is_second && plan.block_copies.empty());
    CONTINUO_CHECK(plan.hidden_rows.size() == rows);
    for (const int32_t row : plan.hidden_rows) {
      CONTINUO_CHECK(row >= 0 && row < num_hidden_rows_);
    }
  }

  CONTINUO_CHECK(plan.sample_targets.size() == samples && plan.sampling.size() == samples);
  CONTINUO_CHECK(AreOffsets(plan.bias_begin, samples, plan.biases.size()));
  CONTINUO_CHECK(AreOffsets(plan.seen_begin, samples, plan.seen.size()));
  CONTINUO_CHECK(std::is_sorted(plan.sample_rows.begin(), plan.sample_rows.end()));
  CONTINUO_CHECK(samples == 0 || (plan.sample_rows.front() >= 0 &&
                                  plan.sample_rows.back() < static_cast<int32_t>(rows)));
  for (const int32_t target : plan.sample_targets) {
    CONTINUO_CHECK(plan.reads_states() ? target == kReadState && options_.reads_states
                                       : target == kSampleToken || in_vocabulary(target));
  }
  const auto check_ids = [&](const auto& entries, const std::vector<int32_t>& begin) {
    for (size_t sample = 0; sample < samples; ++sample) {
      int32_t last = -1;
      for (auto i = static_cast<size_t>(begin[sample]); i < static_cast<size_t>(begin[sample + 1]);
           ++i) {
        CONTINUO_CHECK(entries[i].token_id > last && in_vocabulary(entries[i].token_id));
        last = entries[i].token_id;
      }
    }
  };
  check_ids(plan.biases, plan.bias_begin);
  check_ids(plan.seen, plan.seen_begin);
}

std::optional<PlanWords::Padding> ModelRunner::PaddingOf(const Step& step) const {
  const StepPlan& plan = *step.plan;
  const int rows = plan.num_rows();
  // Ops of adapters are launched with the adapters that a step has.
  const bool decodes = rows > 0 && !plan.is_mtp() && plan.adapters.empty() &&
                       rows == plan.num_seqs() &&
                       step.distinct_rows.size() == plan.token_ids.size();
  if (!decodes) return std::nullopt;
  const int most_blocks = (config_.context_length + options_.block_size - 1) / options_.block_size;
  const int padded = std::min(PaddedRows(rows), options_.max_rows);
  const int columns = PaddedBlocks(std::max(1, plan.max_blocks), most_blocks);
  if (!IsPadded(padded, columns) || !UsesGraphs(padded)) return std::nullopt;
  return PlanWords::Padding{
      .num_sequences = padded - rows, .columns = columns, .spare_block = cache_->num_blocks()};
}

absl::StatusOr<DeviceStep> ModelRunner::Upload(Step& of) {
  const std::optional<PlanWords::Padding> graph_padding = PaddingOf(of);
  const PlanWords::Padding padding =
      graph_padding.value_or(PlanWords::Padding{.columns = std::max(1, of.plan->max_blocks)});
  words_.Set(*of.plan, of.distinct_rows, options_.block_size, padding);
  of.num_wanted = static_cast<int64_t>(of.distinct_rows.size()) + padding.num_sequences;
  ASSIGN_OR_RETURN(const kernels::Tensor all, step_arrays_.Upload(words_.words()));
  const auto view = [&](PlanWords::Part part, int64_t cols = 1) {
    kernels::Tensor t = all;
    t.data = static_cast<int32_t*>(all.data) + part.begin;
    t.shape = {static_cast<int64_t>(part.size) / cols, cols, 1};
    return t;
  };
  DeviceStep step;
  step.token_ids = view(words_.token_ids());
  step.positions = view(words_.positions());
  step.kv_slots = view(words_.kv_slots());
  step.token_types = view(words_.token_types());
  step.kv.kv_len = view(words_.kv_len());
  step.kv.query_begin = view(words_.query_begin());
  step.wanted_rows = view(words_.wanted_rows());
  if (of.plan->is_mtp()) {
    step.hidden_rows = view(words_.hidden_rows());
  } else if (config_.num_state_layers() > 0) {
    step.states = {step.kv.query_begin, view(words_.state_from()), view(words_.state_to())};
  }
  step.kv.block_tables = view(words_.block_tables(), padding.columns);
  step.kv.num_decodes = kernels::CountDecodes(of.plan->query_begin);
  if (step.kv.num_decodes == of.plan->num_seqs()) step.kv.num_decodes += padding.num_sequences;
  step.is_capturable = graph_padding.has_value();
  if (!of.plan->adapters.empty()) {
    RETURN_IF_ERROR(
        adapters_.Set(parity(num_started_), *of.plan, of.distinct_rows, *options_.adapters));
    step.adapters = adapters_.rows();
    step.wanted_adapters = adapters_.wanted();
  }
  return step;
}

SampleSlice ModelRunner::SliceFrom(const Step& step, int begin) const {
  const auto& rows = step.row_of_sample;
  const int logit_rows = LogitRows(*device_);
  const int first_row = rows[static_cast<size_t>(begin)] / logit_rows * logit_rows;
  const auto end = std::lower_bound(rows.begin() + begin, rows.end(), first_row + logit_rows);
  return {begin, std::min(static_cast<int>(end - rows.begin()), begin + kernels::kMaxSamples),
          first_row, rows};
}

kernels::Tensor ModelRunner::LogitsOf(const Step& step, const SampleSlice& slice) {
  return model_->Logits(slice.first_row,
                        std::min<int64_t>(LogitRows(*device_), step.num_wanted - slice.first_row));
}

absl::Status ModelRunner::Start(const StepPlan& plan, MaskFiller fill_mask) {
  CONTINUO_CHECK(num_started_ - num_finished_ < (IsAsynchronous() ? 2 : 1));
  CheckPlan(plan);
  const int own = parity(num_started_);
  Step& step = steps_[static_cast<size_t>(own)];
  step.plan = &plan;
  if (!plan.block_copies.empty()) {
    static_assert(sizeof(BlockCopy) == 2 * sizeof(int32_t) && std::is_standard_layout_v<BlockCopy>);
    const std::span<const int32_t> pairs(&plan.block_copies[0].from, 2 * plan.block_copies.size());
    ASSIGN_OR_RETURN(const kernels::Tensor copies, block_copies_.Upload(pairs, 2));
    cache_->CopyBlocks(copies);
  }
  step.distinct_rows.clear();
  step.row_of_sample.clear();
  for (const int32_t row : plan.sample_rows) {
    if (step.distinct_rows.empty() || step.distinct_rows.back() != row) {
      step.distinct_rows.push_back(row);
    }
    step.row_of_sample.push_back(static_cast<int32_t>(step.distinct_rows.size()) - 1);
  }
  if (plan.num_rows() > 0) {
    ASSIGN_OR_RETURN(const DeviceStep arrays, Upload(step));
    const bool continues = std::any_of(plan.token_ids.begin(), plan.token_ids.end(),
                                       [](int32_t id) { return id < 0; });
    if (continues) sampler_.ResolveTokens(arrays.token_ids);
    step.token_ids = arrays.token_ids;
    RETURN_IF_ERROR(model_->Forward(arrays));
    num_hidden_rows_ =
        plan.is_mtp() ? static_cast<int>(step.distinct_rows.size()) : plan.num_rows();
  }
  step.host_samples.clear();
  if (plan.reads_states()) {
    if (samples_here()) ReadStates(own, step);
    step.event = device_->RecordEvent();
    ++num_started_;
    return absl::OkStatus();
  }
  if (samples_here() || IsAsynchronous()) sampler_.FillMasks(own, plan, fill_mask);
  for (int begin = 0; begin < plan.num_samples();) {
    const SampleSlice slice = SliceFrom(step, begin);
    if (!IsAsynchronous() ||
        !sampler_.SampleOnDevice(own, plan, slice, LogitsOf(step, slice), step.token_ids)) {
      for (int i = slice.begin; i < slice.end; ++i) step.host_samples.push_back(i);
    }
    begin = slice.end;
  }
  step.event = device_->RecordEvent();
  ++num_started_;
  return absl::OkStatus();
}

void ModelRunner::ReadStates(int own, const Step& step) {
  const auto end = static_cast<int64_t>(step.distinct_rows.size());
  for (int64_t first = 0, n = 0; first < end; first += n) {
    n = std::min<int64_t>(LogitRows(*device_), end - first);
    states_out_.Copy(own, first, model_->FinalStates(first, n));
  }
}

void ModelRunner::TakeStates(int own, StepResult& result) const {
  const Step& step = steps_[static_cast<size_t>(own)];
  std::ranges::fill(result.token_ids, 0);
  result.states.clear();
  for (const int32_t row : step.row_of_sample) {
    result.states.push_back(states_out_.Row(own, row));
  }
}

absl::StatusOr<StepResult> ModelRunner::Finish() {
  CONTINUO_CHECK(num_finished_ < num_started_);
  const int own = parity(num_finished_++);
  Step& step = steps_[static_cast<size_t>(own)];
  const int num_samples = step.plan->num_samples();
  RETURN_IF_ERROR(device_->WaitForEvent(step.event));
  adapters_.Release(own);
  // After a rank has failed, logits may be incomplete, so their samples are not returned.
  RETURN_IF_ERROR(communicator_->status());
  StepResult result = std::exchange(recycled_, {});
  result.token_ids.resize(static_cast<size_t>(num_samples));
  result.scores.resize(static_cast<size_t>(num_samples));
  result.states.clear();
  if (step.plan->reads_states()) {
    if (samples_here()) TakeStates(own, result);
    return result;
  }
  left_.clear();
  sampler_.TakeSampled(own, *step.plan, step.host_samples, result, left_);
  if (num_started_ == num_finished_) {
    RETURN_IF_ERROR(SampleOnHost(own, result));
  } else {
    // The next step has overwritten the logits that the host would sample from.
    for (const int32_t sample : left_) result.token_ids[static_cast<size_t>(sample)] = -1;
  }
  if (samples_here()) return result;
  recycled_ = std::move(result);
  return StepResult();
}

absl::Status ModelRunner::SampleOnHost(int own, StepResult& result) {
  const Step& step = steps_[static_cast<size_t>(own)];
  const std::span<const int32_t> left = left_;
  for (size_t begin = 0; begin < left.size();) {
    const SampleSlice slice = SliceFrom(step, left[begin]);
    const auto end =
        static_cast<size_t>(std::lower_bound(left.begin(), left.end(), slice.end) - left.begin());
    const kernels::Tensor logits = LogitsOf(step, slice);
    if (samples_here()) {
      RETURN_IF_ERROR(sampler_.SampleOnHost(own, *step.plan, slice, logits, step.token_ids,
                                            left.subspan(begin, end - begin), result));
    }
    begin = end;
  }
  RETURN_IF_ERROR(device_->Synchronize());
  return communicator_->status();
}

}  // namespace continuo::model
