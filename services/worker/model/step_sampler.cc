// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/step_sampler.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/model.h"
#include "services/worker/model/philox.h"

namespace continuo {
namespace {

int64_t LogitBytes(int vocab_size) {
  return int64_t{kLogitRows} * vocab_size * int64_t{sizeof(float)};
}

template <typename T>
std::span<const T> PartOf(const std::vector<T>& values, const std::vector<int32_t>& offsets,
                          size_t begin, size_t end) {
  return std::span(values).subspan(static_cast<size_t>(offsets[begin]),
                                   static_cast<size_t>(offsets[end] - offsets[begin]));
}

}  // namespace

StepSampler::StepSampler(Backend& backend, int vocab_size, int num_threads)
    : backend_(backend),
      vocab_size_(vocab_size),
      scratch_(static_cast<size_t>(std::max(1, num_threads))) {}

StepSampler::~StepSampler() {
  backend_.FreeHost(host_logits_);
  backend_.FreeHost(drawn_);
}

int64_t StepSampler::HostBytes(const Backend& backend, int vocab_size) {
  if (backend.SharesHostMemory()) return 0;
  return LogitBytes(vocab_size) + int64_t{kMaxDraws} * int64_t{sizeof(DrawnToken)};
}

absl::Status StepSampler::Reserve(int max_samples) {
  const auto n = static_cast<size_t>(max_samples);
  mask_of_sample_.reserve(n);
  left_.reserve(n);
  if (backend_.SharesHostMemory()) return absl::OkStatus();
  draws_.reserve(kMaxDraws);
  ASSIGN_OR_RETURN(void* const logits,
                   backend_.AllocateHost(static_cast<size_t>(LogitBytes(vocab_size_))));
  host_logits_ = static_cast<float*>(logits);
  ASSIGN_OR_RETURN(void* const drawn, backend_.AllocateHost(kMaxDraws * sizeof(DrawnToken)));
  drawn_ = static_cast<DrawnToken*>(drawn);
  return absl::OkStatus();
}

void StepSampler::FillMasks(const StepPlan& plan, MaskFiller fill_mask) {
  int num_masked = 0;
  mask_of_sample_.clear();
  for (const SamplingParams& params : plan.sampling) {
    mask_of_sample_.push_back(params.masked ? num_masked++ : -1);
  }
  if (num_masked == 0) return;
  mask_.assign(static_cast<size_t>(num_masked) * static_cast<size_t>(MaskWords(vocab_size_)),
               ~uint32_t{0});
  fill_mask(std::span<uint32_t>(mask_));
}

int64_t StepSampler::RowOf(size_t sample) const {
  return slice_.row_of_sample[sample] - slice_.first_row;
}

std::span<const uint32_t> StepSampler::MaskOf(size_t sample) const {
  if (mask_of_sample_[sample] < 0) return {};
  const auto words = static_cast<size_t>(MaskWords(vocab_size_));
  return std::span(mask_).subspan(static_cast<size_t>(mask_of_sample_[sample]) * words, words);
}

SampleInput StepSampler::InputOf(const StepPlan& plan, size_t sample, const float* logits) const {
  SampleInput input;
  input.logits = std::span<const float>(logits, static_cast<size_t>(vocab_size_));
  input.params = plan.sampling[sample];
  input.position = plan.positions[static_cast<size_t>(plan.sample_rows[sample])] + 1;
  input.target = plan.sample_targets[sample];
  input.biases = PartOf(plan.biases, plan.bias_begin, sample, sample + 1);
  input.seen = PartOf(plan.seen, plan.seen_begin, sample, sample + 1);
  input.mask = MaskOf(sample);
  return input;
}

DrawBatch StepSampler::BatchOf(const StepPlan& plan) {
  const auto begin = static_cast<size_t>(slice_.begin), end = static_cast<size_t>(slice_.end);
  draws_.clear();
  int32_t num_masks = 0;
  std::span<const uint32_t> masks;  // from the slice's first on
  for (size_t i = begin; i < end; ++i) {
    const SamplingParams& p = plan.sampling[i];
    const int32_t position = plan.positions[static_cast<size_t>(plan.sample_rows[i])] + 1;
    if (p.masked && num_masks == 0) {
      const auto words = static_cast<size_t>(MaskWords(vocab_size_));
      masks = std::span(mask_).subspan(static_cast<size_t>(mask_of_sample_[i]) * words);
    }
    draws_.push_back({.uniform = UniformDraw(p.seed, p.sequence_index, position),
                      .row = static_cast<int32_t>(RowOf(i)),
                      .target = plan.sample_targets[i],
                      .temperature = p.temperature,
                      .top_k = p.top_k,
                      .top_p = p.top_p,
                      .min_p = p.min_p,
                      .repetition_penalty = p.repetition_penalty,
                      .presence_penalty = p.presence_penalty,
                      .frequency_penalty = p.frequency_penalty,
                      .bias_begin = plan.bias_begin[i] - plan.bias_begin[begin],
                      .bias_end = plan.bias_begin[i + 1] - plan.bias_begin[begin],
                      .seen_begin = plan.seen_begin[i] - plan.seen_begin[begin],
                      .seen_end = plan.seen_begin[i + 1] - plan.seen_begin[begin],
                      .mask = p.masked ? num_masks++ : -1,
                      .num_alternatives = p.num_logprobs});
  }
  masks = masks.first(static_cast<size_t>(num_masks) * static_cast<size_t>(MaskWords(vocab_size_)));
  return {.draws = draws_,
          .biases = PartOf(plan.biases, plan.bias_begin, begin, end),
          .seen = PartOf(plan.seen, plan.seen_begin, begin, end),
          .masks = masks};
}

void StepSampler::Enqueue(const StepPlan& plan, const SampleSlice& slice, Tensor logits) {
  slice_ = slice;
  logits_ = logits;
  drawn_there_ = false;
  if (backend_.SharesHostMemory()) return;
  const int n = slice.end - slice.begin;
  const bool fits =
      std::all_of(plan.sampling.begin() + slice.begin, plan.sampling.begin() + slice.end,
                  [](const SamplingParams& p) { return p.num_logprobs <= kMaxAlternatives; });
  if (n <= kMaxDraws && fits) {
    drawn_there_ = backend_.DrawTokens({drawn_, static_cast<size_t>(n)}, logits, BatchOf(plan));
  }
  if (!drawn_there_) backend_.CopyOut(host_logits_, logits);
}

absl::Status StepSampler::Finish(const StepPlan& plan, StepResult& result) {
  left_.clear();
  if (!drawn_there_) {
    const float* const logits =
        host_logits_ != nullptr ? host_logits_ : static_cast<const float*>(logits_.data);
    for (int i = slice_.begin; i < slice_.end; ++i) {
      left_.push_back({i, logits + RowOf(static_cast<size_t>(i)) * vocab_size_});
    }
    SampleLeft(plan, 0, left_.size(), result);
    return absl::OkStatus();
  }
  // With the floating-point state of the threads that draw.
  backend_.ParallelFor(1, [&](int) { TakeDrawn(plan, result); });
  // Several may read one row, so there may be more than host_logits_ holds at a time.
  for (size_t begin = 0; begin < left_.size(); begin += kLogitRows) {
    const size_t end = std::min(left_.size(), begin + kLogitRows);
    for (size_t i = begin; i < end; ++i) {
      float* const to = host_logits_ + static_cast<int64_t>(i - begin) * vocab_size_;
      Tensor row = logits_;
      row.shape[0] = 1;
      row.data = static_cast<float*>(logits_.data) +
                 RowOf(static_cast<size_t>(left_[i].sample)) * vocab_size_;
      backend_.CopyOut(to, row);
      left_[i].logits = to;
    }
    RETURN_IF_ERROR(backend_.Synchronize());
    SampleLeft(plan, begin, end, result);
  }
  return absl::OkStatus();
}

void StepSampler::TakeDrawn(const StepPlan& plan, StepResult& result) {
  for (int i = slice_.begin; i < slice_.end; ++i) {
    const auto sample = static_cast<size_t>(i);
    const DrawnToken& drawn = drawn_[i - slice_.begin];
    const bool is_scored = plan.sampling[sample].num_logprobs >= 0;
    if (drawn.token_id < 0 || (is_scored && drawn.num_alternatives < 0)) {
      left_.push_back({i, nullptr});
      continue;
    }
    CONTINUO_CHECK(drawn.token_id < vocab_size_);
    result.token_ids[sample] = drawn.token_id;
    TokenScore& score = result.scores[sample];
    score.logprob = 0;
    score.alternatives.clear();
    if (!is_scored) continue;
    CONTINUO_CHECK(drawn.num_alternatives <= kMaxAlternatives);
    const LogprobOf logprob_of(drawn.max_logit, drawn.sum);
    score.logprob = logprob_of(drawn.logit);
    for (int j = 0; j < drawn.num_alternatives; ++j) {
      const TokenLogit& alternative = drawn.alternatives[j];
      score.alternatives.push_back({alternative.token_id, logprob_of(alternative.logit)});
    }
  }
}

void StepSampler::SampleLeft(const StepPlan& plan, size_t begin, size_t end, StepResult& result) {
  // Each worker takes the next sample that none has taken; which one does not matter.
  std::atomic<size_t> next = begin;
  const int workers = static_cast<int>(std::min(scratch_.size(), end - begin));
  backend_.ParallelFor(workers, [&](int worker) {
    SamplerScratch& scratch = scratch_[static_cast<size_t>(worker)];
    for (size_t i = next.fetch_add(1); i < end; i = next.fetch_add(1)) {
      const auto sample = static_cast<size_t>(left_[i].sample);
      SampleOutput output = SampleToken(InputOf(plan, sample, left_[i].logits), scratch);
      result.token_ids[sample] = output.token_id;
      result.scores[sample] = std::move(output.score);
    }
  });
}

}  // namespace continuo
