// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "services/worker/model/executor.h"
#include "services/worker/model/sampler.h"
#include "services/worker/model/step_plan.h"

namespace continuo {

// The samples of a plan that read rows of one slice of logits.
struct SampleSlice {
  int begin = 0, end = 0;                  // of the plan's samples
  int first_row = 0;                       // the slice's first, of the distinct rows
  std::span<const int32_t> row_of_sample;  // of every sample of the plan: its distinct row
};

// Draws and scores the samples of a step: where the logits are, if the device does that
// (Backend::DrawTokens), else, and what the device leaves, on the device's host threads by
// SampleToken. The same bits either way. One thread at a time.
class StepSampler {
 public:
  // `num_threads`: that the backend has for ParallelFor. The backend outlives this.
  StepSampler(Backend& backend, int vocab_size, int num_threads);
  ~StepSampler();
  StepSampler(const StepSampler&) = delete;
  StepSampler& operator=(const StepSampler&) = delete;

  // Bytes of the host that Reserve asks for.
  static int64_t HostBytes(const Backend& backend, int vocab_size);
  // Room for steps of so many samples. ResourceExhausted where there is not enough.
  absl::Status Reserve(int max_samples);

  // Asks for the masks of a step's samples, if any has one. The device may be busy.
  void FillMasks(const StepPlan& plan, MaskFiller fill_mask);
  // Enqueues what a slice needs of the device. logits f32 [n ≤ kLogitRows, vocab].
  void Enqueue(const StepPlan& plan, const SampleSlice& slice, Tensor logits);
  // After Synchronize: the results of what was enqueued last. The logits are still there.
  absl::Status Finish(const StepPlan& plan, StepResult& result);
  // How many of the last slice the host has drawn.
  size_t num_left() const { return left_.size(); }

 private:
  // Of the slice's logits.
  int64_t RowOf(size_t sample) const;
  // Everything that one sample depends on; `logits` is its row.
  SampleInput InputOf(const StepPlan& plan, size_t sample, const float* logits) const;
  std::span<const uint32_t> MaskOf(size_t sample) const;
  // The slice for a device; its draws are in draws_.
  DrawBatch BatchOf(const StepPlan& plan);
  // Takes what the device tells of each sample of the slice; those that it left go to left_.
  void TakeDrawn(const StepPlan& plan, StepResult& result);
  // Draws left_[begin, end) from their logits on the host's threads.
  void SampleLeft(const StepPlan& plan, size_t begin, size_t end, StepResult& result);

  struct Left {
    int32_t sample;
    const float* logits;  // on the host
  };
  Backend& backend_;
  const int vocab_size_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  // [kLogitRows, vocab] of AllocateHost; null where the device shares its memory.
  float* host_logits_ = nullptr;
  DrawnToken* drawn_ = nullptr;          // [kMaxDraws] of AllocateHost; likewise
  std::vector<uint32_t> mask_;           // [masked samples, MaskWords(vocab)]
  std::vector<int32_t> mask_of_sample_;  // index among the masked samples, or -1
  std::vector<TokenDraw> draws_;
  std::vector<Left> left_;  // for the host
  SampleSlice slice_;       // what was enqueued last, and its logits
  Tensor logits_;
  bool drawn_there_ = false;
};

}  // namespace continuo
