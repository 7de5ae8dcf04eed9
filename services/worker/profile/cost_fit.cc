// SPDX-License-Identifier: Apache-2.0
#include "services/worker/profile/cost_fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace continuo::profile {
namespace {

// Scales that give the coefficients about the same size.
constexpr double kTokens = 64, kAttended = 65536, kSamples = 16;
// Keeps the matrix positive definite where the steps do not tell two terms apart.
constexpr double kRidge = 1e-9;

}  // namespace

CostFit::Terms CostFit::TermsOf(const engine::StepLoad& load) {
  Terms x = {1, static_cast<double>(load.tokens) / kTokens,
             static_cast<double>(load.attention) / kAttended,
             static_cast<double>(load.decode_attention) / kAttended,
             static_cast<double>(load.samples) / kSamples};
  for (int i = 0; i < kKnees; ++i) {
    const int64_t over = std::max<int64_t>(0, load.samples - StepTime::kSampleKnees[i]);
    x[kFirstKnee + i] = static_cast<double>(over) / kSamples;
  }
  return x;
}

CostFit::Terms CostFit::CoefficientsOf(const StepTime& step) {
  Terms c = {step.fixed, step.per_token * kTokens, step.per_attended_token * kAttended,
             step.per_decode_attended_token * kAttended, step.per_sample * kSamples};
  for (int i = 0; i < kKnees; ++i) c[kFirstKnee + i] = step.per_sample_over[i] * kSamples;
  return c;
}

void CostFit::Add(const engine::StepLoad& load, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  if (load.tokens <= 0 || !(seconds > 0) || !(seconds < 1e4)) return;
  const Terms x = TermsOf(load);
  const int digits = static_cast<int>(std::bit_width(static_cast<uint64_t>(load.tokens)));
  Sums& sums = classes_[static_cast<size_t>(std::min(digits, kClasses - 1))];
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j <= i; ++j) sums.x.a[i][j] += x[i] * x[j];
    sums.x.b[i] += x[i] * seconds;
  }
  sums.n += 1;
  sums.yy += seconds * seconds;
  ++num_steps_;
}

absl::StatusOr<StepTime> CostFit::Fit() const {
  if (num_steps_ < kFewest) {
    return absl::FailedPreconditionError(
        absl::StrCat(num_steps_, " steps were seen, a fit needs ", kFewest));
  }
  engine::Quadratic<kTerms> sums;
  for (const Sums& of_size : classes_) {
    if (of_size.n == 0) continue;
    const double weight = of_size.n / of_size.yy;
    for (int i = 0; i < kTerms; ++i) {
      for (int j = 0; j <= i; ++j) sums.a[i][j] += weight * of_size.x.a[i][j];
      sums.b[i] += weight * of_size.x.b[i];
    }
  }
  for (int i = 0; i < kTerms; ++i) sums.a[i][i] += kRidge * std::max(sums.a[i][i], 1.0);
  Terms c = {};
  engine::MinimiseNonNegative(sums, c);
  StepTime step = {.fixed = c[0],
                   .per_token = c[1] / kTokens,
                   .per_attended_token = c[2] / kAttended,
                   .per_decode_attended_token = c[3] / kAttended,
                   .per_sample = c[4] / kSamples};
  for (int i = 0; i < kKnees; ++i) step.per_sample_over[i] = c[kFirstKnee + i] / kSamples;
  return step;
}

double CostFit::Error(const StepTime& step) const {
  if (num_steps_ == 0) return 0;
  const Terms c = CoefficientsOf(step);
  double sum = 0;
  for (const Sums& of_size : classes_) {
    if (of_size.n == 0) continue;
    double squares = of_size.yy;  // of x c - y
    for (int i = 0; i < kTerms; ++i) {
      squares -= 2 * of_size.x.b[i] * c[i];
      for (int j = 0; j < kTerms; ++j) {
        squares += c[i] * c[j] * of_size.x.a[std::max(i, j)][std::min(i, j)];
      }
    }
    sum += std::max(0.0, squares) * of_size.n / of_size.yy;
  }
  return std::sqrt(sum / static_cast<double>(num_steps_));
}

}  // namespace continuo::profile
