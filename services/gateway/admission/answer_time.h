// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace continuo::gateway {

// How long an answer takes from the moment a worker begins to read its prompt: what recent answers
// took to their first token, and for each token after it, times the tokens that are expected: two
// standard deviations more than the mean of recent answers, which few exceed. Pure and not
// thread-safe.
class AnswerTime {
 public:
  // The first token of an answer came `first` after its prompt began to be read, the last of its
  // `tokens` (of one sequence, at least 1) `rest` after that. Neither is negative.
  void Record(absl::Duration first, absl::Duration rest, int64_t tokens);

  // Of one that gets at most so many tokens (none: no limit). 0 while nothing is known.
  absl::Duration Predict(std::optional<int64_t> max_tokens) const;
  // The tokens that it is expected to get. 0 while nothing is known.
  int64_t PredictTokens(std::optional<int64_t> max_tokens) const;

 private:
  // Sums over answers; recent ones count more.
  double answers_ = 0, first_seconds_ = 0, tokens_ = 0, squared_tokens_ = 0;
  double rest_seconds_ = 0, rest_tokens_ = 0;
};

}  // namespace continuo::gateway
