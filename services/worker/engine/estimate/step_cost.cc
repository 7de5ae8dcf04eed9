// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/step_cost.h"

#include <algorithm>
#include <bit>

#include "services/worker/engine/estimate/quadratic.h"

namespace continuo::engine {
namespace {

constexpr double kKeep = 0.9;       // decay of a size class at each of its observations
constexpr double kMaxSurprise = 4;  // a step counts as at most this multiple of its prediction
// A ridge pulls the coefficients of attention and samples towards 0, so that they take only what
// the constant and the tokens cannot explain: steps that tell them apart may come late.
constexpr double kRidge = 0.01;
constexpr int kFirstRidged = 2;
constexpr double kInertia = 1e-4;  // pull towards the last solution, relative to the weights
constexpr double kSurprising = 1.5;
constexpr int kSurpriseAfter = 8;                   // observations
constexpr int64_t kGrowth = 4;                      // see max_tokens()
constexpr double kShortest = 1e-7, kLongest = 1e4;  // seconds

}  // namespace

StepCost::Terms StepCost::TermsOf(const StepLoad& load) {
  // Scaled so that the coefficients have about the same size.
  return {1.0, static_cast<double>(load.tokens) / 64, static_cast<double>(load.attention) / 65536,
          static_cast<double>(load.samples) / 16};
}

void StepCost::Observe(const StepLoad& load, absl::Duration measured) {
  double seconds = absl::ToDoubleSeconds(measured);
  if (load.tokens <= 0 || !(seconds >= 0)) return;
  seconds = std::clamp(seconds, kShortest, kLongest);
  // A single disturbed step should not change the fit.
  if (num_observed_ >= kSurpriseAfter) {
    NoteSurprise(seconds / std::max(kShortest, absl::ToDoubleSeconds(Predict(load))));
    seconds =
        std::min(seconds, kMaxSurprise * std::max(kShortest, absl::ToDoubleSeconds(Predict(load))));
  }
  ++num_observed_;
  max_tokens_ = std::max(max_tokens_, kGrowth * load.tokens);

  const Terms x = TermsOf(load);
  const int size =
      std::min(static_cast<int>(std::bit_width(static_cast<uint64_t>(load.tokens))), kClasses - 1);
  Sums& sums = classes_[size];
  sums.n = kKeep * sums.n + 1;
  sums.yy = kKeep * sums.yy + seconds * seconds;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) {
      sums.xx[i][j] = kKeep * sums.xx[i][j] + x[i] * x[j];
    }
    sums.xy[i] = kKeep * sums.xy[i] + x[i] * seconds;
  }
  Fit();
}

// Scales everything known if the last three steps agree that the machine has another speed.
void StepCost::NoteSurprise(double ratio) {
  std::ranges::rotate(surprises_, surprises_.begin() + 1);
  surprises_.back() = ratio;
  const auto [least, most] = std::ranges::minmax(surprises_);
  const double scale = least > kSurprising ? least : most < 1 / kSurprising ? most : 1;
  if (scale == 1) return;
  for (Sums& sums : classes_) {
    for (double& xy : sums.xy) xy *= scale;
    sums.yy *= scale * scale;
  }
  for (double& c : coefficients_) c *= scale;
  surprises_.fill(1);
}

// Solves least squares over the classes. Each is weighted by the inverse of its mean square, so
// that errors are relative. The pull towards the last solution decides where nothing was measured.
void StepCost::Fit() {
  Quadratic<kTerms> all;
  for (const Sums& sums : classes_) {
    if (sums.n == 0) continue;
    const double weight = sums.n / sums.yy;
    for (int i = 0; i < kTerms; ++i) {
      for (int j = 0; j <= i; ++j) all.a[i][j] += weight * sums.xx[i][j];
      all.b[i] += weight * sums.xy[i];
    }
  }
  const double inertia = kInertia * all.a[0][0];
  for (int i = 0; i < kTerms; ++i) {
    if (i >= kFirstRidged) all.a[i][i] *= 1 + kRidge;
    all.a[i][i] += inertia;
    all.b[i] += inertia * coefficients_[i];
  }
  MinimiseNonNegative(all, coefficients_);
}

absl::Duration StepCost::TokenTime(const StepLoad& load, int64_t num_wasted,
                                   absl::Duration measured) const {
  const double all = absl::ToDoubleSeconds(Predict(load));
  if (!(all > 0) || load.tokens <= 0) return absl::ZeroDuration();
  // What was measured beyond the prediction slows all parts of the step alike. Each draft has a
  // row of logits.
  const Terms x = TermsOf(load);
  const auto wasted = static_cast<double>(std::clamp<int64_t>(num_wasted, 0, load.tokens));
  const double kept = 1 - wasted / static_cast<double>(load.tokens);
  const auto samples = static_cast<double>(std::max<int64_t>(1, load.samples));
  const double useful = kept * (coefficients_[1] * x[1] + coefficients_[2] * x[2]) +
                        std::max(0.0, 1 - wasted / samples) * coefficients_[3] * x[3];
  return std::max(absl::ZeroDuration(), measured) * (useful / all);
}

absl::Duration StepCost::Predict(const StepLoad& load) const {
  const Terms x = TermsOf(load);
  double seconds = 0;
  for (int i = 0; i < kTerms; ++i) seconds += coefficients_[i] * x[i];
  return absl::Seconds(seconds);
}

}  // namespace continuo::engine
