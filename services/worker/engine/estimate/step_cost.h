// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace continuo::engine {

// The work of a step, as far as it decides how long the step takes.
struct StepLoad {
  int64_t tokens = 0;
  int64_t attention = 0;  // number of tokens that each token attends to, summed up
  int64_t samples = 0;    // vectors of logits
  // The part of `attention` that is of sequences with one token in the step, which read keys and
  // values for it alone. WithSequence counts it; StepCost does not tell it apart.
  int64_t decode_attention = 0;

  // Adds `count` tokens of a sequence, which follow `context` others.
  StepLoad WithTokens(int64_t context, int64_t count, int64_t num_samples) const {
    const int64_t pairs = count * context + count * (count + 1) / 2;
    return {tokens + count, attention + pairs, samples + num_samples, decode_attention};
  }
  // Adds all tokens that a sequence has in the step.
  StepLoad WithSequence(int64_t context, int64_t count, int64_t num_samples) const {
    StepLoad load = WithTokens(context, count, num_samples);
    if (count == 1) load.decode_attention += context + 1;
    return load;
  }
};

// Predicts how long a step takes:
//
//   seconds = c0 + c1 tokens + c2 attention + c3 samples,   every c ≥ 0
//
// fitted to the measured steps by least squares; errors are relative to what steps of about the
// same size take. Steps are kept as sums in classes by size (powers of two of their tokens). A
// class forgets only when it is measured again, so the cost of a prompt is still known after a day
// of decoding. If three steps in a row take more than 1.5 times as long as predicted, or less than
// 1/1.5, the machine is taken to have changed, and everything known is scaled. Memory is constant.
// Not thread-safe.
class StepCost {
 public:
  void Observe(const StepLoad& load, absl::Duration measured);
  // Returns 0 before the first observation.
  absl::Duration Predict(const StepLoad& load) const;
  // Returns the part of `measured`, the duration of a step, that its tokens took; the rest is what
  // any step takes (c0). `num_wasted` of the tokens, drafts that were wrong, do not count. 0 where
  // nothing was observed. Its sum over steps is the work of the requests, however they were
  // batched.
  absl::Duration TokenTime(const StepLoad& load, int64_t num_wasted, absl::Duration measured) const;
  // The most tokens that a step should have: four times the largest step measured, so that the
  // first long prompt is not run on a guess.
  int64_t max_tokens() const { return max_tokens_; }

 private:
  static constexpr int kTerms = 4;
  static constexpr int kClasses = 16;
  using Terms = std::array<double, kTerms>;

  // Decayed sums of 1, x xᵀ, x y and y² over the steps of one size class.
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
  std::array<double, 3> surprises_ = {1, 1, 1};  // measured / predicted of the last steps
  int64_t max_tokens_ = 16;
};

}  // namespace continuo::engine
