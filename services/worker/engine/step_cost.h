// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace continuo {

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
// fitted by least squares of the relative error to the steps measured so far. Steps are kept as
// sums in classes by size (powers of two of their rows); a class forgets only as it is measured
// anew, so a day of decoding alone leaves known what a prompt costs. Memory is constant, an
// observation costs about a microsecond. Not thread-safe.
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

  // Decayed sums over the steps of one size: x xᵀ and x y, each step divided by its length.
  struct Sums {
    std::array<Terms, kTerms> xx = {};
    Terms xy = {};
  };
  static Terms TermsOf(const StepLoad& load);
  void Fit();

  std::array<Sums, kClasses> classes_ = {};
  Terms coefficients_ = {};
  int64_t num_observed_ = 0;
  int64_t max_rows_ = 16;
};

}  // namespace continuo
