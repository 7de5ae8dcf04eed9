// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace continuo::gateway {

// Forecasts how long an answer takes from the moment a worker begins its prefill: the mean time of
// recent answers to their first token, plus their mean time per further token times the expected
// tokens. The expected number is two standard deviations above the mean of recent answers, which
// few exceed. A function of what it is told; not thread-safe.
class AnswerTime {
 public:
  // Records an answer. Its first token came `first` after its prompt was begun, the last of its
  // `tokens` (of one sequence, at least 1) `rest` after that. Neither is negative.
  void Record(absl::Duration first, absl::Duration rest, int64_t tokens);

  // The time of an answer of at most `max_tokens` tokens (none: no limit). 0 while nothing is
  // known.
  absl::Duration Predict(std::optional<int64_t> max_tokens) const;
  // The expected tokens of such an answer. 0 while nothing is known.
  int64_t PredictTokens(std::optional<int64_t> max_tokens) const;

 private:
  // Sums over answers; recent ones count more.
  double answers_ = 0, first_seconds_ = 0, tokens_ = 0, squared_tokens_ = 0;
  double rest_seconds_ = 0, rest_tokens_ = 0;
};

}  // namespace continuo::gateway
