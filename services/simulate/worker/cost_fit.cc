// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/cost_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace continuo::simulate {
namespace {

// Scales that give the coefficients about the same size.
constexpr double kTokens = 64, kAttended = 65536, kSamples = 16;
// Keeps the matrix positive definite where the steps do not tell two terms apart.
constexpr double kRidge = 1e-9;

}  // namespace

void CostFit::Add(const engine::StepLoad& load, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  if (load.tokens <= 0 || !(seconds > 0) || !(seconds < 1e4)) return;
  const std::array<double, kTerms> x = {1 / seconds,
                                        static_cast<double>(load.tokens) / kTokens / seconds,
                                        static_cast<double>(load.attention) / kAttended / seconds,
                                        static_cast<double>(load.samples) / kSamples / seconds};
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j <= i; ++j) sums_.a[i][j] += x[i] * x[j];
    sums_.b[i] += x[i];
  }
  ++num_steps_;
}

absl::StatusOr<StepTime> CostFit::Fit() const {
  if (num_steps_ < kFewest) {
    return absl::FailedPreconditionError(
        absl::StrCat(num_steps_, " steps were seen, a fit needs ", kFewest));
  }
  engine::Quadratic<kTerms> sums = sums_;
  for (int i = 0; i < kTerms; ++i) sums.a[i][i] += kRidge * std::max(sums.a[i][i], 1.0);
  std::array<double, kTerms> c = {};
  engine::MinimiseNonNegative(sums, c);
  return StepTime{.fixed = c[0],
                  .per_token = c[1] / kTokens,
                  .per_attended_token = c[2] / kAttended,
                  .per_sample = c[3] / kSamples};
}

double CostFit::Error(const StepTime& step) const {
  if (num_steps_ == 0) return 0;
  const std::array<double, kTerms> c = {step.fixed, step.per_token * kTokens,
                                        step.per_attended_token * kAttended,
                                        step.per_sample * kSamples};
  // The sum of (x c - 1)² over all steps.
  double sum = static_cast<double>(num_steps_);
  for (int i = 0; i < kTerms; ++i) {
    sum -= 2 * sums_.b[i] * c[i];
    for (int j = 0; j < kTerms; ++j) {
      sum += c[i] * c[j] * sums_.a[std::max(i, j)][std::min(i, j)];
    }
  }
  return std::sqrt(std::max(0.0, sum / static_cast<double>(num_steps_)));
}

}  // namespace continuo::simulate
