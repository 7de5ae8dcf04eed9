// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/simulate/results.h"

namespace continuo::cli {

// One term of an SLO: a latency and the most that it may be.
struct SloTerm {
  enum class Latency { kFirstToken, kBetweenTokens, kWholeRequest };
  std::string name;  // as the user wrote it: "ttft_p99"
  Latency latency = Latency::kFirstToken;
  double share = 0.99;  // the percentile, in (0, 1]; 0 is the mean
  double limit = 0;     // in seconds
};

// A service level objective: all terms hold, and no more than `errors` of the requests are rejected
// or fail.
struct Slo {
  std::vector<SloTerm> terms;
  double errors = 0;  // a share
};

// Parses "ttft_p99=2s,itl_p99=50ms,e2e_mean=30s,errors=0.1%". INVALID_ARGUMENT says what is
// allowed.
absl::StatusOr<Slo> ParseSlo(std::string_view text);

// The value that the term limits, in seconds.
double ValueOf(const SloTerm& term, const simulate::Results& results);

// The share of the requests that were rejected or failed.
double ErrorsOf(const simulate::Results& results);

bool Holds(const Slo& slo, const simulate::Results& results);

}  // namespace continuo::cli
