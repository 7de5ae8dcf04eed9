// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/model_runner.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/step_shape.h"

namespace continuo {
namespace {

// True for n + 1 offsets that begin at 0, do not decrease and end at `total`.
bool AreOffsets(std::span<const int32_t> begin, size_t n, size_t total) {
  return begin.size() == n + 1 && begin.front() == 0 &&
         begin.back() == static_cast<int32_t>(total) && std::is_sorted(begin.begin(), begin.end());
}

}  // namespace

ModelRunner::ModelRunner(const ModelConfig& config, const ModelRunnerOptions& options,
                         std::unique_ptr<Backend> backend,
                         std::unique_ptr<Communicator> communicator)
    : config_(config),
      options_(options),
      shard_(MakeShard(config, communicator->rank(), communicator->size())),
      backend_(std::move(backend)),
      communicator_(std::move(communicator)),
      step_arrays_(*backend_),
      block_copies_(*backend_),
      sampler_(*backend_, config.vocab_size, options.num_threads) {}

// Its memory may be in use; an error was told before, or nobody waits for it.
ModelRunner::~ModelRunner() { (void)backend_->Synchronize(); }

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Make(
    const ModelConfig& config, const Checkpoint& checkpoint, const ModelRunnerOptions& options,
    std::unique_ptr<Backend> backend, std::unique_ptr<Communicator> communicator) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(config, options, std::move(backend), std::move(communicator)));
  ModelRunner& r = *runner;
  ASSIGN_OR_RETURN(r.weights_, Weights::Load(r.config_, r.shard_, checkpoint, options.weights,
                                             *r.backend_, options.weights_cache));
  ASSIGN_OR_RETURN(r.cache_, KvCache::Make(*r.backend_, config.num_layers, options.num_blocks,
                                           options.block_size,
                                           {static_cast<int>(r.shard_.kv_heads.size()),
                                            config.head_dim, options.kv_dtype}));
  ASSIGN_OR_RETURN(r.model_, MakeModel({.config = r.config_,
                                        .shard = r.shard_,
                                        .weights = r.weights_->model(),
                                        .activations = options.activations,
                                        .max_rows = options.max_rows,
                                        .backend = *r.backend_,
                                        .communicator = *r.communicator_,
                                        .cache = *r.cache_}));
  RETURN_IF_ERROR(r.ReserveSamples());
  return runner;
}

// So that memory does not depend on which steps there were.
absl::Status ModelRunner::ReserveSamples() {
  const auto rows = static_cast<size_t>(options_.max_rows);
  for (Step& step : steps_) {
    step.distinct_rows.reserve(rows);
    step.row_of_sample.reserve(rows);
  }
  left_.reserve(rows);
  recycled_.token_ids.reserve(rows);
  recycled_.scores.reserve(rows);
  return samples_here() || WorksApart() ? sampler_.Reserve(options_.max_rows) : absl::OkStatus();
}

int64_t RunnerScratchBytes(const ModelConfig& config, const Shard& shard, DType activations,
                           int max_rows, const Backend& backend) {
  return ScratchBytes(config, shard, activations, max_rows) +
         StepSampler::Bytes(backend, config.vocab_size, max_rows);
}

absl::Status ModelRunner::Forget() {
  RETURN_IF_ERROR(backend_->Synchronize());
  backend_->ForgetRepeated();
  return absl::OkStatus();
}

int64_t ModelRunner::scratch_bytes() const {
  return RunnerScratchBytes(config_, shard_, options_.activations, options_.max_rows, *backend_);
}

void ModelRunner::CheckPlan(const StepPlan& plan) const {
  const size_t rows = plan.token_ids.size(), samples = plan.sample_rows.size();
  const size_t seqs = plan.sequence_ids.size();
  const auto in_vocabulary = [this](int32_t id) { return id >= 0 && id < config_.vocab_size; };
  CONTINUO_CHECK(rows <= static_cast<size_t>(options_.max_rows));
  CONTINUO_CHECK(plan.positions.size() == rows && plan.kv_slots.size() == rows);
  CONTINUO_CHECK(AreOffsets(plan.query_begin, seqs, rows));
  CONTINUO_CHECK(plan.kv_len.size() == seqs && plan.max_blocks >= 0);
  CONTINUO_CHECK(plan.block_tables.size() == seqs * static_cast<size_t>(plan.max_blocks));
  const bool is_second = num_started_ > num_finished_;
  const int num_drawn = is_second ? steps_[parity(num_started_ - 1)].plan->num_samples() : 0;
  for (const int32_t id : plan.token_ids) {
    CONTINUO_CHECK(id < 0 ? id >= DrawnBy(num_drawn - 1) : in_vocabulary(id));
  }

  CONTINUO_CHECK(plan.sample_targets.size() == samples && plan.sampling.size() == samples);
  CONTINUO_CHECK(AreOffsets(plan.bias_begin, samples, plan.biases.size()));
  CONTINUO_CHECK(AreOffsets(plan.seen_begin, samples, plan.seen.size()));
  CONTINUO_CHECK(std::is_sorted(plan.sample_rows.begin(), plan.sample_rows.end()));
  CONTINUO_CHECK(samples == 0 || (plan.sample_rows.front() >= 0 &&
                                  plan.sample_rows.back() < static_cast<int32_t>(rows)));
  for (const int32_t target : plan.sample_targets) {
    CONTINUO_CHECK(target == -1 || in_vocabulary(target));
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

bool ModelRunner::Decodes(const Step& step) const {
  const StepPlan& plan = *step.plan;
  return WorksApart() && plan.num_rows() == plan.num_seqs() && plan.num_rows() <= kMostPaddedRows &&
         step.distinct_rows.size() == plan.token_ids.size();
}

absl::StatusOr<DeviceStep> ModelRunner::Upload(const Step& of) {
  const StepPlan& plan = *of.plan;
  const bool recurs = Decodes(of);
  const int rows = plan.num_rows(), max_blocks = std::max(1, plan.max_blocks);
  const int most_blocks = (config_.context_length + options_.block_size - 1) / options_.block_size;
  const int more = recurs ? std::min(PaddedRows(rows), options_.max_rows) - rows : 0;
  const int columns = recurs ? PaddedBlocks(max_blocks, most_blocks) : max_blocks;
  // The table is last: the others' places depend on the numbers of rows, sequences and samples
  // alone, which are the same from one step of decoding to the next.
  size_t begin[7], size[7];
  int num_parts = 0;
  step_words_.clear();
  // `filler(i)` is of the i-th row that only fills up.
  const auto add = [&](std::span<const int32_t> part, auto filler) {
    begin[num_parts] = step_words_.size();
    step_words_.insert(step_words_.end(), part.begin(), part.end());
    for (int i = 0; i < more; ++i) step_words_.push_back(filler(i));
    size[num_parts] = step_words_.size() - begin[num_parts];
    ++num_parts;
    constexpr size_t kAligned = 4;  // of 16 bytes
    step_words_.resize((step_words_.size() + kAligned - 1) / kAligned * kAligned);
  };
  const auto zero = [](int) { return 0; };
  const int spare = cache_->num_blocks();
  add(plan.token_ids, zero);
  add(plan.positions, zero);
  add(plan.kv_slots, [&](int) { return spare * options_.block_size; });
  add(plan.kv_len, [](int) { return 1; });
  add(plan.query_begin, [&](int i) { return rows + i + 1; });
  add(of.distinct_rows, [&](int i) { return rows + i; });
  begin[num_parts] = step_words_.size();
  for (int s = 0; s < plan.num_seqs(); ++s) {
    const auto row = plan.block_tables.begin() + int64_t{s} * plan.max_blocks;
    step_words_.insert(step_words_.end(), row, row + plan.max_blocks);
    step_words_.insert(step_words_.end(), static_cast<size_t>(columns - plan.max_blocks), -1);
  }
  for (int i = 0; i < more; ++i) {
    step_words_.push_back(spare);
    step_words_.insert(step_words_.end(), static_cast<size_t>(columns - 1), -1);
  }
  size[num_parts] = step_words_.size() - begin[num_parts];
  ASSIGN_OR_RETURN(const Tensor all, step_arrays_.Upload(step_words_));
  const auto view = [&](size_t i, int64_t cols = 1) {
    Tensor t = all;
    t.data = static_cast<int32_t*>(all.data) + begin[i];
    t.shape = {static_cast<int64_t>(size[i]) / cols, cols, 1};
    return t;
  };
  DeviceStep step;
  step.token_ids = view(0);
  step.positions = view(1);
  step.kv_slots = view(2);
  step.kv.kv_len = view(3);
  step.kv.query_begin = view(4);
  step.wanted_rows = view(5);
  step.kv.block_tables = view(6, columns);
  step.recurs = recurs;
  return step;
}

SampleSlice ModelRunner::SliceFrom(const Step& step, int begin) const {
  const auto& rows = step.row_of_sample;
  const int first_row = rows[static_cast<size_t>(begin)] / kLogitRows * kLogitRows;
  const auto end = std::lower_bound(rows.begin() + begin, rows.end(), first_row + kLogitRows);
  return {begin, static_cast<int>(end - rows.begin()), first_row, rows};
}

Tensor ModelRunner::LogitsOf(const Step& step, const SampleSlice& slice) {
  const auto rows = static_cast<int64_t>(step.distinct_rows.size());
  return model_->Logits(slice.first_row, std::min<int64_t>(kLogitRows, rows - slice.first_row));
}

absl::Status ModelRunner::Start(const StepPlan& plan, MaskFiller fill_mask) {
  CONTINUO_CHECK(num_started_ - num_finished_ < (WorksApart() ? 2 : 1));
  CheckPlan(plan);
  const int own = parity(num_started_);
  Step& step = steps_[static_cast<size_t>(own)];
  step.plan = &plan;
  if (!plan.block_copies.empty()) {
    static_assert(sizeof(BlockCopy) == 2 * sizeof(int32_t) && std::is_standard_layout_v<BlockCopy>);
    const std::span<const int32_t> pairs(&plan.block_copies[0].from, 2 * plan.block_copies.size());
    ASSIGN_OR_RETURN(const Tensor copies, block_copies_.Upload(pairs, 2));
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
    const bool goes_on = std::any_of(plan.token_ids.begin(), plan.token_ids.end(),
                                     [](int32_t id) { return id < 0; });
    if (goes_on) sampler_.TakeTokens(arrays.token_ids);
    model_->Forward(arrays);
  }
  if (samples_here() || WorksApart()) sampler_.FillMasks(own, plan, fill_mask);
  step.num_drawn = 0;
  while (WorksApart() && step.num_drawn < plan.num_samples()) {
    const SampleSlice slice = SliceFrom(step, step.num_drawn);
    if (!sampler_.Draw(own, plan, slice, LogitsOf(step, slice))) break;
    step.num_drawn = slice.end;
  }
  step.mark = backend_->Mark();
  ++num_started_;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> ModelRunner::Finish() {
  CONTINUO_CHECK(num_finished_ < num_started_);
  const int own = parity(num_finished_++);
  Step& step = steps_[static_cast<size_t>(own)];
  const int num_samples = step.plan->num_samples();
  RETURN_IF_ERROR(backend_->WaitFor(step.mark));
  // What was drawn from logits that a failed rank left half-done is not taken.
  RETURN_IF_ERROR(communicator_->status());
  StepResult result = std::exchange(recycled_, {});
  result.token_ids.resize(static_cast<size_t>(num_samples));
  result.scores.resize(static_cast<size_t>(num_samples));
  left_.clear();
  sampler_.TakeDrawn(own, *step.plan, step.num_drawn, result, left_);
  for (int i = step.num_drawn; i < num_samples; ++i) left_.push_back(i);
  if (num_started_ == num_finished_) {
    RETURN_IF_ERROR(DrawLeft(own, result));
  } else {
    // The next step has taken the place of the rows that they are drawn from.
    for (const int32_t sample : left_) result.token_ids[static_cast<size_t>(sample)] = -1;
  }
  if (samples_here()) return result;
  recycled_ = std::move(result);
  return StepResult();
}

absl::Status ModelRunner::DrawLeft(int own, StepResult& result) {
  const Step& step = steps_[static_cast<size_t>(own)];
  const std::span<const int32_t> left = left_;
  for (size_t begin = 0; begin < left.size();) {
    const SampleSlice slice = SliceFrom(step, left[begin]);
    const auto end =
        static_cast<size_t>(std::lower_bound(left.begin(), left.end(), slice.end) - left.begin());
    const Tensor logits = LogitsOf(step, slice);
    if (samples_here()) {
      RETURN_IF_ERROR(sampler_.DrawHere(own, *step.plan, slice, logits,
                                        left.subspan(begin, end - begin), result));
    }
    begin = end;
  }
  RETURN_IF_ERROR(backend_->Synchronize());
  return communicator_->status();
}

}  // namespace continuo
