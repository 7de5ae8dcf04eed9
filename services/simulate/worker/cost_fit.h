// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/simulate/worker/worker_profile.h"
#include "services/worker/engine/estimate/quadratic.h"
#include "services/worker/engine/estimate/step_cost.h"

namespace continuo::simulate {

// Fits a StepTime to the steps of a real worker, by least squares of relative errors, with no term
// below 0. Not thread-safe.
class CostFit {
 public:
  // A step with this work took so long. Steps without tokens or time do not count.
  void Add(const engine::StepLoad& load, absl::Duration took);

  int64_t num_steps() const { return num_steps_; }
  // FAILED_PRECONDITION if there are fewer than kFewest steps.
  absl::StatusOr<StepTime> Fit() const;
  // The root of the mean squared relative error of `step` over all steps.
  double Error(const StepTime& step) const;

  static constexpr int64_t kFewest = 50;

 private:
  static constexpr int kTerms = 4;

  engine::Quadratic<kTerms> sums_;
  int64_t num_steps_ = 0;
};

}  // namespace continuo::simulate
