// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "services/worker/model/executor.h"
#include "services/worker/model/run/sampler.h"
#include "services/worker/model/step_plan.h"

namespace continuo::model {

// The samples of a plan that read rows of one slice of logits.
struct SampleSlice {
  int begin = 0, end = 0;                  // of the plan's samples
  int first_row = 0;                       // first row of the slice, among the distinct rows
  std::span<const int32_t> row_of_sample;  // distinct row of every sample of the plan
};

// Samples and scores tokens of steps: on the device, if it can, and the rest on the device's host
// threads by SampleToken, with the same bits either way. Masks and device results are
// double-buffered by step parity, so two steps can be in flight. One thread at a time.
class StepSampler {
 public:
  // The device has `num_threads` for ParallelFor and outlives this.
  StepSampler(kernels::Device& device, int vocab_size, int num_threads);
  ~StepSampler();
  StepSampler(const StepSampler&) = delete;
  StepSampler& operator=(const StepSampler&) = delete;

  // Bytes that Reserve allocates.
  static int64_t Bytes(const kernels::Device& device, int vocab_size, int max_samples);
  // Allocates memory for steps of max_samples. ResourceExhausted where there is not enough.
  absl::Status Reserve(int max_samples);

  // Calls the mask filler if a sample of the step has a mask. The device may be busy meanwhile.
  void FillMasks(int parity, const StepPlan& plan, MaskFiller fill_mask);
  // Replaces references to tokens of the previous step, which the device has sampled, by their ids.
  void ResolveTokens(kernels::Tensor token_ids);
  // Enqueues the samples of a slice on the device. logits f32 [n ≤ LogitRows, vocab]; token_ids i32
  // [at least the plan's rows], after ResolveTokens. Returns false, without effect, where the
  // device cannot sample these.
  bool SampleOnDevice(int parity, const StepPlan& plan, const SampleSlice& slice,
                      kernels::Tensor logits, kernels::Tensor token_ids);
  // Once the device has finished a step: moves the tokens that it sampled to `result`, and appends
  // the samples that are left to the host to `left`, ascending: `host_samples`, which the device
  // was not given, and those that it could not sample.
  void TakeSampled(int parity, const StepPlan& plan, std::span<const int32_t> host_samples,
                   StepResult& result, std::vector<int32_t>& left);
  // Samples `samples` of a slice on the host, from the slice's logits and the step's token_ids on
  // the device.
  absl::Status SampleOnHost(int parity, const StepPlan& plan, const SampleSlice& slice,
                            kernels::Tensor logits, kernels::Tensor token_ids,
                            std::span<const int32_t> samples, StepResult& result);

 private:
  struct Parity {
    std::vector<uint32_t> mask;                // [masked samples, MaskWords(vocab)]
    std::vector<int32_t> mask_of_sample;       // index among the masked samples, or -1
    kernels::SampledToken* sampled = nullptr;  // [capacity_] of AllocateHost
  };

  // Collects everything that one sample depends on; `logits` is its row.
  SampleInput InputOf(int parity, const StepPlan& plan, int sample, const float* logits) const;
  // Makes the slice's requests for the device; the result refers to requests_.
  kernels::SampleBatch BatchOf(int parity, const StepPlan& plan, const SampleSlice& slice);
  // True if a sample has a penalty and the token of its row is not known to the plan.
  static bool CountsUnknownToken(const StepPlan& plan, size_t sample);
  // Copies rows of the slice's logits, for as many of the first `samples` as fit, to host_logits_,
  // and writes which of the copied rows each of these samples reads to row_here_. Returns their
  // number.
  size_t CopyRows(const SampleSlice& slice, kernels::Tensor logits,
                  std::span<const int32_t> samples);
  // Samples from logits that the host can read: the slice's, or those that CopyRows has copied.
  void SampleRows(int parity, const StepPlan& plan, const SampleSlice& slice,
                  kernels::Tensor logits, std::span<const int32_t> samples, StepResult& result);

  kernels::Device& device_;
  const int vocab_size_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::array<Parity, 2> parities_;
  // Where the device does not share its memory:
  int capacity_ = 0;                // samples of a step at most
  int32_t* tokens_ = nullptr;       // [capacity_] on the device, sampled by the last step
  float* host_logits_ = nullptr;    // [kHostLogitRows, vocab] of AllocateHost
  int32_t* host_tokens_ = nullptr;  // [capacity_] of AllocateHost: ids of a step's rows
  std::vector<kernels::SampleRequest> requests_;
  std::vector<int32_t> row_here_;
};

}  // namespace continuo::model
