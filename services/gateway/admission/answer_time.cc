// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission/answer_time.h"

#include <algorithm>
#include <cmath>

namespace continuo::gateway {
namespace {

// Each further answer multiplies the weight of those before it by this.
constexpr double kKept = 1 - 1.0 / 32;

}  // namespace

void AnswerTime::Record(absl::Duration first, absl::Duration rest, int64_t tokens) {
  for (double* sum :
       {&answers_, &first_seconds_, &tokens_, &squared_tokens_, &rest_seconds_, &rest_tokens_}) {
    *sum *= kKept;
  }
  answers_ += 1;
  first_seconds_ += absl::ToDoubleSeconds(first);
  const auto count = static_cast<double>(tokens);
  tokens_ += count;
  squared_tokens_ += count * count;
  rest_seconds_ += absl::ToDoubleSeconds(rest);
  rest_tokens_ += static_cast<double>(tokens - 1);
}

int64_t AnswerTime::PredictTokens(std::optional<int64_t> max_tokens) const {
  if (answers_ <= 0) return 0;
  const double mean = tokens_ / answers_;
  const double deviation = std::sqrt(std::max(0.0, squared_tokens_ / answers_ - mean * mean));
  const auto tokens = static_cast<int64_t>(std::llround(mean + 2 * deviation));
  return max_tokens.has_value() ? std::min(tokens, *max_tokens) : tokens;
}

absl::Duration AnswerTime::Predict(std::optional<int64_t> max_tokens) const {
  if (answers_ <= 0) return absl::ZeroDuration();
  double seconds = first_seconds_ / answers_;
  const auto rest = static_cast<double>(std::max<int64_t>(0, PredictTokens(max_tokens) - 1));
  if (rest_tokens_ > 0) seconds += rest * rest_seconds_ / rest_tokens_;
  return absl::Seconds(seconds);
}

}  // namespace continuo::gateway
