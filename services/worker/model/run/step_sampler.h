// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "services/worker/model/executor.h"
#include "services/worker/model/run/sampler.h"
#include "services/worker/model/step_plan.h"

namespace continuo::model {

// The samples of a plan that read rows of one slice of logits.
struct SampleSlice {
  int begin = 0, end = 0;                  // of the plan's samples
  int first_row = 0;                       // the slice's first, of the distinct rows
  std::span<const int32_t> row_of_sample;  // of every sample of the plan: its distinct row
};

// Draws and scores the samples of steps: where the logits are, if the device does that
// (Backend::DrawTokens), else, and what the device leaves, on the device's host threads by
// SampleToken. The same bits either way. Of a step's parity are its masks and what the device tells
// of it, so that two steps may be under way. One thread at a time.
class StepSampler {
 public:
  // `num_threads`: that the backend has for ParallelFor. The backend outlives this.
  StepSampler(kernels::Backend& backend, int vocab_size, int num_threads);
  ~StepSampler();
  StepSampler(const StepSampler&) = delete;
  StepSampler& operator=(const StepSampler&) = delete;

  // Bytes that Reserve asks for.
  static int64_t Bytes(const kernels::Backend& backend, int vocab_size, int max_samples);
  // Room for steps of so many samples. ResourceExhausted where there is not enough.
  absl::Status Reserve(int max_samples);

  // Asks for the masks of a step's samples, if any has one. The device may be busy.
  void FillMasks(int parity, const StepPlan& plan, MaskFiller fill_mask);
  // Replaces ids that the step before has drawn, where it was drawn on the device.
  void TakeTokens(kernels::Tensor token_ids);
  // Enqueues the draws of a slice on the device. logits f32 [n ≤ LogitRows, vocab]; token_ids i32
  // [at least the plan's rows], after TakeTokens. False where the device does not draw these:
  // nothing happened.
  bool Draw(int parity, const StepPlan& plan, const SampleSlice& slice, kernels::Tensor logits,
            kernels::Tensor token_ids);
  // After the device is through with a step's samples: the results of those that it drew. To
  // `left`, ascending, go those that it left, and `undrawn`, which it was not given.
  void TakeDrawn(int parity, const StepPlan& plan, std::span<const int32_t> undrawn,
                 StepResult& result, std::vector<int32_t>& left);
  // Draws `samples` of a slice on the host, from the slice's logits and the step's token_ids on the
  // device.
  absl::Status DrawHere(int parity, const StepPlan& plan, const SampleSlice& slice,
                        kernels::Tensor logits, kernels::Tensor token_ids,
                        std::span<const int32_t> samples, StepResult& result);

 private:
  struct Parity {
    std::vector<uint32_t> mask;            // [masked samples, MaskWords(vocab)]
    std::vector<int32_t> mask_of_sample;   // index among the masked samples, or -1
    kernels::DrawnToken* drawn = nullptr;  // [capacity_] of AllocateHost
  };

  // Everything that one sample depends on; `logits` is its row.
  SampleInput InputOf(int parity, const StepPlan& plan, int sample, const float* logits) const;
  // The slice for a device; its draws are in draws_.
  kernels::DrawBatch BatchOf(int parity, const StepPlan& plan, const SampleSlice& slice);
  // Whether a sample has a penalty and its row a token that the plan does not know.
  static bool CountsDrawn(const StepPlan& plan, size_t sample);
  // The rows of the slice's logits that the first of `samples` read, as many as fit, to
  // host_logits_ in their order; of each of these samples which one is its, to row_here_. Their
  // number.
  size_t CopyRows(const SampleSlice& slice, kernels::Tensor logits,
                  std::span<const int32_t> samples);
  // Draws samples whose logits the host can read: the slice's, or those that CopyRows has copied.
  void DrawRows(int parity, const StepPlan& plan, const SampleSlice& slice, kernels::Tensor logits,
                std::span<const int32_t> samples, StepResult& result);

  kernels::Backend& backend_;
  const int vocab_size_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::array<Parity, 2> parities_;
  // Where the device does not share its memory:
  int capacity_ = 0;                // samples that it may draw
  int32_t* tokens_ = nullptr;       // [capacity_] on the device: those of the last step
  float* host_logits_ = nullptr;    // [kHostLogitRows, vocab] of AllocateHost
  int32_t* host_tokens_ = nullptr;  // [capacity_], likewise: of a step's rows
  std::vector<kernels::TokenDraw> draws_;
  std::vector<int32_t> row_here_;
};

}  // namespace continuo::model
