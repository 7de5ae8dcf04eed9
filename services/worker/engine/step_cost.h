// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace continuo::engine {

// What makes a step long.
struct StepLoad {
  int64_t rows = 0;
  int64_t attention = 0;  // tokens that the rows attend to, summed over rows
  int64_t samples = 0;    // rows of logits

  // With `count` rows that follow the `context` tokens already in the cache.
  StepLoad WithRows(int64_t context, int64_t count, int64_t num_samples) const {
    return {rows + count, attention + count * context + count * (count + 1) / 2,
            samples + num_samples};
  }
};

// Predicts how long a step takes:
//
//   seconds = c0 + c1 rows + c2 attention + c3 samples,   every c ≥ 0
//
// fitted to the steps measured so far by least squares, of errors relative to what steps of about
// the same size take. Steps are kept as sums in classes by size (powers of two of their rows); a
// class forgets only as it is measured anew, so a day of decoding alone leaves known what a prompt
// costs. Where three steps in a row take more than 1.5 times as long as predicted, or less than
// 1/1.5, the machine is taken to have changed, and everything known is scaled. Memory is constant,
// an observation costs about 0.3 µs. Not thread-safe.
class StepCost {
 public:
  void Observe(const StepLoad& load, absl::Duration measured);
  // 0 before the first observation.
  absl::Duration Predict(const StepLoad& load) const;
  // Steps grow by at most this factor over the largest one measured, so that no first long prompt
  // is run on a guess.
  int64_t max_rows() const { return max_rows_; }

 private:
  static constexpr int kTerms = 4;
  static constexpr int kClasses = 16;
  using Terms = std::array<double, kTerms>;

  // Decayed sums over the steps of one size: of 1, x xᵀ, x y and y².
  struct Sums {
    double n = 0;
    std::array<Terms, kTerms> xx = {};
    Terms xy = {};
    double yy = 0;
  };
  static Terms TermsOf(const StepLoad& load);
  void NoteSurprise(double ratio);
  void Fit();

  std::array<Sums, kClasses> classes_ = {};
  Terms coefficients_ = {};
  int64_t num_observed_ = 0;
  std::array<double, 3> surprises_ = {1, 1, 1};  // measured / predicted, of the last steps
  int64_t max_rows_ = 16;
};

}  // namespace continuo::engine
