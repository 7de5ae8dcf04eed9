// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/step_cost.h"

#include <algorithm>
#include <bit>

namespace continuo {
namespace {

constexpr double kKeep = 0.97;      // of a class's past at each of its observations: about 33 steps
constexpr int kSweeps = 16;         // of coordinate descent; starts from the last solution
constexpr double kMaxSurprise = 4;  // a step counts as at most this multiple of its prediction
constexpr int kSurpriseAfter = 8;   // observations
constexpr int64_t kGrowth = 4;      // see max_rows()
constexpr double kShortest = 1e-7;  // seconds; keeps relative errors finite

}  // namespace

StepCost::Terms StepCost::TermsOf(const StepLoad& load) {
  // Scaled so that the coefficients have about the same size.
  return {1.0, static_cast<double>(load.rows) / 64, static_cast<double>(load.attention) / 65536,
          static_cast<double>(load.samples) / 16};
}

void StepCost::Observe(const StepLoad& load, absl::Duration measured) {
  double seconds = absl::ToDoubleSeconds(measured);
  if (load.rows <= 0 || !(seconds >= 0)) return;
  // A neighbour's hiccup should not change the fit at once; a machine that has really become
  // slower is believed within a few steps, as the prediction grows with each.
  if (num_observed_ >= kSurpriseAfter) {
    const double predicted = absl::ToDoubleSeconds(Predict(load));
    if (predicted > 0) seconds = std::min(seconds, kMaxSurprise * predicted);
  }
  seconds = std::max(seconds, kShortest);
  ++num_observed_;
  max_rows_ = std::max(max_rows_, kGrowth * load.rows);

  const Terms x = TermsOf(load);
  const double weight = 1 / (seconds * seconds);
  const int size =
      std::min(static_cast<int>(std::bit_width(static_cast<uint64_t>(load.rows))), kClasses - 1);
  Sums& sums = classes_[size];
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) {
      sums.xx[i][j] = kKeep * sums.xx[i][j] + weight * x[i] * x[j];
    }
    sums.xy[i] = kKeep * sums.xy[i] + weight * x[i] * seconds;
  }
  Fit();
}

// Non-negative least squares by coordinate descent. Directions that nothing was measured in stay
// where they were.
void StepCost::Fit() {
  Sums all;
  for (const Sums& sums : classes_) {
    for (int i = 0; i < kTerms; ++i) {
      for (int j = 0; j < kTerms; ++j) all.xx[i][j] += sums.xx[i][j];
      all.xy[i] += sums.xy[i];
    }
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int i = 0; i < kTerms; ++i) {
      if (all.xx[i][i] <= 0) continue;
      double rest = all.xy[i];
      for (int j = 0; j < kTerms; ++j) {
        if (j != i) rest -= all.xx[i][j] * coefficients_[j];
      }
      coefficients_[i] = std::max(0.0, rest / all.xx[i][i]);
    }
  }
}

absl::Duration StepCost::Predict(const StepLoad& load) const {
  const Terms x = TermsOf(load);
  double seconds = 0;
  for (int i = 0; i < kTerms; ++i) seconds += coefficients_[i] * x[i];
  return absl::Seconds(seconds);
}

}  // namespace continuo
