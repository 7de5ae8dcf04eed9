// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/worker/model/step_plan.h"

namespace continuo::model {

// Called by Start for a step with masked samples, while the device is busy, to say which tokens
// each sample with `masked` set may pick. `mask` is [number of masked samples, MaskWords(vocab)],
// in the order of the samples, bit id % 32 of word id / 32, all ones on entry.
using MaskFiller = absl::FunctionRef<void(std::span<uint32_t> mask)>;

constexpr int MaskWords(int vocab_size) { return (vocab_size + 31) / 32; }

// Runs StepPlans on every rank, one after the other, and returns what rank 0 sampled. One thread at
// a time. An error means that the device or a rank is lost: nothing of the step may be used, and
// the process ends.
class Executor {
 public:
  virtual ~Executor() = default;
  // Begins a step. The plan stays as it is until the step has been finished.
  virtual absl::Status Start(const StepPlan& plan, MaskFiller fill_mask) = 0;
  // Waits for the step that began first.
  virtual absl::StatusOr<StepResult> Finish() = 0;
  // Both.
  absl::StatusOr<StepResult> Run(const StepPlan& plan, MaskFiller fill_mask) {
    if (absl::Status status = Start(plan, fill_mask); !status.ok()) return status;
    return Finish();
  }
  // Whether the device works by itself while this thread does not. Then a second step may begin
  // before the first has been finished, and use what that one draws (SampledBy). What the device
  // could not draw of the first one is then lost: the result has -1 for the token.
  virtual bool IsAsynchronous() const { return false; }
  // As Backend::TakeBusySeconds, of the first rank's device and the steps that have been finished.
  virtual double TakeBusySeconds() { return 0; }
  // Gives the memory of a result back, so that the next one needs none.
  virtual void Recycle(StepResult) {}
};

}  // namespace continuo::model
