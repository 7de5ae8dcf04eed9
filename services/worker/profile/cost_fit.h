// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/engine/estimate/quadratic.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/profile/worker_profile.h"

namespace continuo::profile {

// Fits a StepTime to the steps of a real worker by least squares, with no term below 0, so that a
// further sample never costs less than the one before it. As in engine::StepCost, errors are
// relative to what steps of about the same size take, so that small steps count as much as large
// ones and the mean of each size is met. Not thread-safe.
class CostFit {
 public:
  // A step with this work took so long. Steps without tokens or time do not count.
  void Add(const engine::StepLoad& load, absl::Duration took);

  int64_t num_steps() const { return num_steps_; }
  // FAILED_PRECONDITION if there are fewer than kFewest steps.
  absl::StatusOr<StepTime> Fit() const;
  // The root of the mean squared error of `step`, relative to steps of the same size.
  double Error(const StepTime& step) const;

  static constexpr int64_t kFewest = 50;

 private:
  static constexpr int kKnees = static_cast<int>(StepTime::kSampleKnees.size());
  // The index of the first knee's term, behind the fixed time, tokens, attention, decode attention
  // and samples.
  static constexpr int kFirstKnee = 5;
  static constexpr int kTerms = kFirstKnee + kKnees;
  // The terms of a StepTime, scaled to about the same size.
  using Terms = std::array<double, kTerms>;
  static Terms TermsOf(const engine::StepLoad& load);
  static Terms CoefficientsOf(const StepTime& step);

  static constexpr int kClasses = 25;

  // Sums of x xᵀ, x y and y² over the steps whose tokens have so many binary digits.
  struct Sums {
    engine::Quadratic<kTerms> x;
    double n = 0, yy = 0;
  };
  std::array<Sums, kClasses> classes_;
  int64_t num_steps_ = 0;
};

}  // namespace continuo::profile
