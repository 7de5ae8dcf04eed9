// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/step_sampler.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/tensor_rows.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/network/model.h"
#include "services/worker/model/run/philox.h"

namespace continuo::model {
namespace {

int64_t LogitBytes(int vocab_size) {
  return int64_t{kHostLogitRows} * vocab_size * int64_t{sizeof(float)};
}

int Capacity(int max_samples) { return std::max(max_samples, kernels::kMaxSamples); }

template <typename T>
std::span<const T> PartOf(const std::vector<T>& values, const std::vector<int32_t>& offsets,
                          size_t begin, size_t end) {
  return std::span(values).subspan(static_cast<size_t>(offsets[begin]),
                                   static_cast<size_t>(offsets[end] - offsets[begin]));
}

int32_t PositionOf(const StepPlan& plan, size_t sample) {
  return plan.positions[static_cast<size_t>(plan.sample_rows[sample])] + (plan.is_mtp() ? 2 : 1);
}

}  // namespace

StepSampler::StepSampler(kernels::Device& device, int vocab_size, int num_threads)
    : device_(device),
      vocab_size_(vocab_size),
      scratch_(static_cast<size_t>(std::max(1, num_threads))) {}

StepSampler::~StepSampler() {
  if (device_.SharesHostMemory()) return;
  for (const Parity& parity : parities_) device_.FreeHost(parity.sampled);
  device_.FreeHost(host_logits_);
  device_.FreeHost(host_tokens_);
  device_.Free(tokens_);
}

int64_t StepSampler::Bytes(const kernels::Device& device, int vocab_size, int max_samples) {
  if (device.SharesHostMemory()) return 0;
  const int64_t each = 2 * int64_t{sizeof(kernels::SampledToken)} + 2 * int64_t{sizeof(int32_t)};
  return LogitBytes(vocab_size) + Capacity(max_samples) * each;
}

absl::Status StepSampler::Reserve(int max_samples) {
  for (Parity& parity : parities_) {
    parity.mask_of_sample.reserve(static_cast<size_t>(max_samples));
  }
  row_here_.reserve(static_cast<size_t>(max_samples));
  if (device_.SharesHostMemory()) return absl::OkStatus();
  requests_.reserve(kernels::kMaxSamples);
  const auto capacity = static_cast<size_t>(Capacity(max_samples));
  for (Parity& parity : parities_) {
    ASSIGN_OR_RETURN(void* const sampled,
                     device_.AllocateHost(capacity * sizeof(kernels::SampledToken)));
    parity.sampled = static_cast<kernels::SampledToken*>(sampled);
  }
  ASSIGN_OR_RETURN(void* const logits,
                   device_.AllocateHost(static_cast<size_t>(LogitBytes(vocab_size_))));
  host_logits_ = static_cast<float*>(logits);
  ASSIGN_OR_RETURN(void* const rows, device_.AllocateHost(capacity * sizeof(int32_t)));
  host_tokens_ = static_cast<int32_t*>(rows);
  ASSIGN_OR_RETURN(void* const tokens, device_.Allocate(capacity * sizeof(int32_t)));
  tokens_ = static_cast<int32_t*>(tokens);
  capacity_ = static_cast<int>(capacity);
  return absl::OkStatus();
}

void StepSampler::FillMasks(int parity, const StepPlan& plan, MaskFiller fill_mask) {
  auto& [mask, mask_of_sample, sampled] = parities_[static_cast<size_t>(parity)];
  int num_masked = 0;
  mask_of_sample.clear();
  for (const SamplingParams& params : plan.sampling) {
    mask_of_sample.push_back(params.masked ? num_masked++ : -1);
  }
  if (num_masked == 0) return;
  mask.assign(static_cast<size_t>(num_masked) * static_cast<size_t>(MaskWords(vocab_size_)),
              ~uint32_t{0});
  fill_mask(std::span<uint32_t>(mask));
}

void StepSampler::ResolveTokens(kernels::Tensor token_ids) {
  CONTINUO_CHECK(tokens_ != nullptr);
  device_.ops().sampling.ResolveSampledIds(token_ids,
                                           {tokens_, kernels::DType::kI32, {capacity_, 1, 1}});
}

bool StepSampler::CountsUnknownToken(const StepPlan& plan, size_t sample) {
  return plan.token_ids[static_cast<size_t>(plan.sample_rows[sample])] < 0 &&
         HasPenalty(plan.sampling[sample]);
}

SampleInput StepSampler::InputOf(int parity, const StepPlan& plan, int sample,
                                 const float* logits) const {
  const Parity& own = parities_[static_cast<size_t>(parity)];
  const auto i = static_cast<size_t>(sample);
  SampleInput input;
  input.logits = std::span<const float>(logits, static_cast<size_t>(vocab_size_));
  input.params = plan.sampling[i];
  input.position = PositionOf(plan, i);
  input.target = plan.sample_targets[i];
  input.biases = PartOf(plan.biases, plan.bias_begin, i, i + 1);
  input.seen = PartOf(plan.seen, plan.seen_begin, i, i + 1);
  if (CountsUnknownToken(plan, i)) {
    input.answered = host_tokens_[plan.sample_rows[i]];
    CONTINUO_CHECK(input.answered >= 0 && input.answered < vocab_size_);
  }
  if (own.mask_of_sample[i] >= 0) {
    const auto words = static_cast<size_t>(MaskWords(vocab_size_));
    input.mask =
        std::span(own.mask).subspan(static_cast<size_t>(own.mask_of_sample[i]) * words, words);
  }
  return input;
}

kernels::SampleBatch StepSampler::BatchOf(int parity, const StepPlan& plan,
                                          const SampleSlice& slice) {
  const Parity& own = parities_[static_cast<size_t>(parity)];
  const auto begin = static_cast<size_t>(slice.begin), end = static_cast<size_t>(slice.end);
  requests_.clear();
  int32_t num_masks = 0;
  std::span<const uint32_t> masks;  // from the slice's first masked sample on
  for (size_t i = begin; i < end; ++i) {
    const SamplingParams& p = plan.sampling[i];
    if (p.masked && num_masks == 0) {
      const auto words = static_cast<size_t>(MaskWords(vocab_size_));
      masks = std::span(own.mask).subspan(static_cast<size_t>(own.mask_of_sample[i]) * words);
    }
    requests_.push_back(
        {.uniform = UniformNumber(p.seed, p.sequence_index, PositionOf(plan, i)),
         .row = slice.row_of_sample[i] - slice.first_row,
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
         .answered_row = CountsUnknownToken(plan, i) ? plan.sample_rows[i] : -1,
         .mask = p.masked ? num_masks++ : -1,
         // The host computes more alternatives; the device then leaves the sample to it.
         .num_alternatives = p.num_logprobs <= kernels::kMaxAlternatives ? p.num_logprobs : -1});
  }
  masks = masks.first(static_cast<size_t>(num_masks) * static_cast<size_t>(MaskWords(vocab_size_)));
  return {.requests = requests_,
          .biases = PartOf(plan.biases, plan.bias_begin, begin, end),
          .seen = PartOf(plan.seen, plan.seen_begin, begin, end),
          .masks = masks};
}

bool StepSampler::SampleOnDevice(int parity, const StepPlan& plan, const SampleSlice& slice,
                                 kernels::Tensor logits, kernels::Tensor token_ids) {
  const int n = slice.end - slice.begin;
  if (n > kernels::kMaxSamples || slice.end > capacity_) return false;
  const kernels::Tensor tokens = {tokens_ + slice.begin, kernels::DType::kI32, {n, 1, 1}};
  kernels::SampledToken* const sampled =
      parities_[static_cast<size_t>(parity)].sampled + slice.begin;
  return device_.ops().sampling.SampleTokens({sampled, static_cast<size_t>(n)}, tokens, logits,
                                             token_ids, BatchOf(parity, plan, slice));
}

void StepSampler::TakeSampled(int parity, const StepPlan& plan,
                              std::span<const int32_t> host_samples, StepResult& result,
                              std::vector<int32_t>& left) {
  const kernels::SampledToken* const all = parities_[static_cast<size_t>(parity)].sampled;
  // On a host thread of the device, for its floating-point state.
  device_.ParallelFor(1, [&](int) {
    for (int i = 0; i < plan.num_samples(); ++i) {
      if (!host_samples.empty() && host_samples.front() == i) {
        left.push_back(i);
        host_samples = host_samples.subspan(1);
        continue;
      }
      const auto sample = static_cast<size_t>(i);
      const kernels::SampledToken& sampled = all[sample];
      const bool is_scored = plan.sampling[sample].num_logprobs >= 0;
      if (sampled.token_id < 0 || (is_scored && sampled.num_alternatives < 0)) {
        left.push_back(i);
        continue;
      }
      CONTINUO_CHECK(sampled.token_id < vocab_size_);
      result.token_ids[sample] = sampled.token_id;
      TokenScore& score = result.scores[sample];
      score.logprob = 0;
      score.alternatives.clear();
      if (!is_scored) continue;
      CONTINUO_CHECK(sampled.num_alternatives <= kernels::kMaxAlternatives);
      const LogprobOf logprob_of(sampled.max_logit, sampled.sum);
      score.logprob = logprob_of(sampled.logit);
      for (int j = 0; j < sampled.num_alternatives; ++j) {
        const kernels::TokenLogit& alternative = sampled.alternatives[j];
        score.alternatives.push_back({alternative.token_id, logprob_of(alternative.logit)});
      }
    }
  });
}

size_t StepSampler::CopyRows(const SampleSlice& slice, kernels::Tensor logits,
                             std::span<const int32_t> samples) {
  row_here_.clear();
  int64_t num_copied = 0, first = 0, n = 0;  // rows [first, first + n) are next
  const auto copy = [&] {
    device_.CopyOut(host_logits_ + num_copied * vocab_size_, RowsOf(logits, first, n));
    num_copied += n;
  };
  for (const int32_t sample : samples) {
    const int64_t row = slice.row_of_sample[static_cast<size_t>(sample)] - slice.first_row;
    const bool is_new = n == 0 || row >= first + n;
    if (is_new && num_copied + n == kHostLogitRows) break;
    if (is_new && n > 0 && row > first + n) {
      copy();
      n = 0;
    }
    if (n == 0) first = row;
    if (is_new) ++n;
    row_here_.push_back(static_cast<int32_t>(num_copied + n - 1));
  }
  if (n > 0) copy();
  return row_here_.size();
}

absl::Status StepSampler::SampleOnHost(int parity, const StepPlan& plan, const SampleSlice& slice,
                                       kernels::Tensor logits, kernels::Tensor token_ids,
                                       std::span<const int32_t> samples, StepResult& result) {
  const bool is_here = device_.SharesHostMemory();
  if (!is_here &&
      std::ranges::any_of(samples, [&](int32_t i) { return CountsUnknownToken(plan, i); })) {
    CONTINUO_CHECK(token_ids.size() >= plan.num_rows() && plan.num_rows() <= capacity_);
    device_.CopyOut(host_tokens_, RowsOf(token_ids, 0, plan.num_rows()));
  }
  while (!samples.empty()) {
    const size_t n = is_here ? samples.size() : CopyRows(slice, logits, samples);
    RETURN_IF_ERROR(device_.Synchronize());
    SampleRows(parity, plan, slice, logits, samples.first(n), result);
    samples = samples.subspan(n);
  }
  return absl::OkStatus();
}

void StepSampler::SampleRows(int parity, const StepPlan& plan, const SampleSlice& slice,
                             kernels::Tensor logits, std::span<const int32_t> samples,
                             StepResult& result) {
  const bool is_here = device_.SharesHostMemory();
  const auto logits_of = [&](size_t i) {
    const float* const all = is_here ? static_cast<const float*>(logits.data) : host_logits_;
    const int64_t row = is_here
                            ? slice.row_of_sample[static_cast<size_t>(samples[i])] - slice.first_row
                            : row_here_[i];
    return all + row * vocab_size_;
  };
  // Each worker takes the next sample that none has taken; which one does not matter.
  std::atomic<size_t> next = 0;
  const int workers = static_cast<int>(std::min(scratch_.size(), samples.size()));
  device_.ParallelFor(workers, [&](int worker) {
    SamplerScratch& scratch = scratch_[static_cast<size_t>(worker)];
    for (size_t i = next.fetch_add(1); i < samples.size(); i = next.fetch_add(1)) {
      const auto sample = static_cast<size_t>(samples[i]);
      SampleOutput output = SampleToken(InputOf(parity, plan, samples[i], logits_of(i)), scratch);
      result.token_ids[sample] = output.token_id;
      result.scores[sample] = std::move(output.score);
    }
  });
}

}  // namespace continuo::model
