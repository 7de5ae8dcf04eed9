// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/worker/model/step_plan.h"

namespace continuo::model {

// Start calls this on its caller's thread, for a step with masked samples, to learn which tokens
// each sample with `masked` set may take. `mask` is [number of masked samples, MaskWords(vocab)],
// in the order of the samples, bit id % 32 of word id / 32, all ones on entry.
using MaskFiller = absl::FunctionRef<void(std::span<uint32_t> mask)>;

constexpr int MaskWords(int vocab_size) { return (vocab_size + 31) / 32; }

// Runs StepPlans on every rank, one after the other, and returns the tokens that rank 0 sampled.
// One thread at a time. An error means that the device or a rank is lost: nothing of the step may
// be used, and the process ends.
class Executor {
 public:
  virtual ~Executor() = default;
  // Starts a step. The plan must not change until the step has been finished.
  virtual absl::Status Start(const StepPlan& plan, MaskFiller fill_mask) = 0;
  // Waits for the step that was started first.
  virtual absl::StatusOr<StepResult> Finish() = 0;
  // Starts a step and waits for it.
  absl::StatusOr<StepResult> Run(const StepPlan& plan, MaskFiller fill_mask) {
    if (absl::Status status = Start(plan, fill_mask); !status.ok()) return status;
    return Finish();
  }
  // True if the device works while this thread does not. Then a second step may start before the
  // first has been finished, and refer to its samples (SampledBy). Samples of the first step that
  // the device left to the host are then lost: the result has -1 for them.
  virtual bool IsAsynchronous() const { return false; }
  // Returns what Device::TakeBusySeconds does, of the first rank's device and the steps that have
  // been finished.
  virtual double TakeBusySeconds() { return 0; }
  // Takes the memory of a result back for the next one.
  virtual void Recycle(StepResult) {}
};

}  // namespace continuo::model
