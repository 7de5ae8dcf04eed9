// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/worker/model/step_plan.h"

namespace continuo {

// Called once per step with masked samples, while the device is busy, to say which tokens each
// sample with `masked` set may pick. `mask` is [number of masked samples, MaskWords(vocab)], in the
// order of the samples, bit id % 32 of word id / 32, all ones on entry.
using MaskFiller = absl::FunctionRef<void(std::span<uint32_t> mask)>;

constexpr int MaskWords(int vocab_size) { return (vocab_size + 31) / 32; }

// Runs a StepPlan on every rank and returns what rank 0 sampled. One thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  // An error means that the device or a rank is lost: nothing of the step may be used, and the
  // process ends.
  virtual absl::StatusOr<StepResult> Run(const StepPlan& plan, MaskFiller fill_mask) = 0;
  // Whether the device works by itself while this thread does not. Then Run calls fill_mask once
  // more in every step, with an empty mask, when the device has been given its work: what the
  // caller has to do is done beside that.
  virtual bool WorksApart() const { return false; }
  // Between steps: gives the memory of a result back, so that the next one needs none.
  virtual void Recycle(StepResult) {}
};

}  // namespace continuo
